//! What the algorithms that find their own price have in common.
//!
//! Idea: guests want memory above their floor and have credits; a price is found at which all of
//! the rentable memory is rented; then they are served in an order, each as much as it wants, can
//! pay at that price, and is left. As long as everybody's wants fit, memory is free.
//!
//! Source: flexmemd §3.2.3, §4.4, §4.5.

use super::price::{Price, PriceForMany};

/// A guest that wants memory, in whole pages. Ties are settled in the order in which bidders are
/// listed: by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bidder {
    /// Memory wanted above the floor.
    pub want: u64,
    /// Credits it can spend.
    pub credits: u64,
    /// What memory and credits are shared out by.
    pub weight: u64,
}

impl Bidder {
    /// What it takes at `price` if there is enough.
    pub(super) fn demand(&self, price: &PriceForMany) -> u64 {
        self.want.min(price.affordable(self.credits))
    }
}

/// What was sold, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sale {
    /// The same for everybody.
    pub price: Price,
    /// Pages per bidder; together no more than there are.
    pub bought: Vec<u64>,
}

/// Everybody what it wants, free of charge, where that fits.
pub(super) fn plenty(bidders: &[Bidder], rentable: u64) -> Option<Sale> {
    let wanted: u128 = bidders.iter().map(|bidder| u128::from(bidder.want)).sum();
    (wanted <= u128::from(rentable)).then(|| Sale {
        price: Price::FREE,
        bought: bidders.iter().map(|bidder| bidder.want).collect(),
    })
}

/// One after the other in `order`, each its demand at `price` as long as anything is left.
pub(super) fn serve(bidders: &[Bidder], order: &[usize], price: Price, rentable: u64) -> Vec<u64> {
    let price = price.for_many();
    let mut bought = vec![0; bidders.len()];
    let mut left = rentable;
    for &i in order {
        bought[i] = bidders[i].demand(&price).min(left);
        left -= bought[i];
    }
    bought
}

/// Whether all of `rentable` is rented at `price`.
pub(super) fn sells_out(bidders: &[Bidder], price: Price, rentable: u64) -> bool {
    let price = price.for_many();
    let mut demand = 0u64;
    for bidder in bidders {
        demand = demand.saturating_add(bidder.demand(&price));
        if demand >= rentable {
            return true;
        }
    }
    demand >= rentable
}
