//! The kinds of prices.

/// The kind of a [`PriceRule`](super::PriceRule).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pricing {
    /// There are no credits.
    None,
    /// The same for every guest.
    Fixed,
    /// In proportion to what a guest rents.
    Proportional,
    /// From the operator's table.
    Custom,
    /// Found by the algorithm: the custom price of the paper's last three algorithms.
    Market,
}
