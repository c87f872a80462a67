//! Common parts of the algorithms that find their own price.
//!
//! Idea: guests want memory above their floors and have credits. The algorithm finds a price at
//! which all rentable memory is rented, then serves guests in some order: each gets what it wants,
//! up to what it can pay for at that price and what is left. While all wants fit, memory is free.
//!
//! Source: flexmemd §3.2.3, §4.4, §4.5.

use super::price::{Price, PriceForMany};

/// A guest that wants memory, in whole pages. Bidders are listed by name, and ties are settled in
/// that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bidder {
    /// Memory wanted above the floor.
    pub want: u64,
    /// Credits it can spend.
    pub credits: u64,
    /// Weight for dividing memory and credits.
    pub weight: u64,
}

impl Bidder {
    /// Pages it buys at `price` if there are enough.
    pub(super) fn demand(&self, price: &PriceForMany) -> u64 {
        self.want.min(price.affordable(self.credits))
    }
}

/// Pages sold, and their price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sale {
    /// One price for all.
    pub price: Price,
    /// Pages per bidder; their sum does not exceed the rentable pages.
    pub bought: Vec<u64>,
}

/// Gives all bidders what they want, free of charge; `None` if that does not fit.
pub(super) fn plenty(bidders: &[Bidder], rentable: u64) -> Option<Sale> {
    let wanted: u128 = bidders.iter().map(|bidder| u128::from(bidder.want)).sum();
    (wanted <= u128::from(rentable)).then(|| Sale {
        price: Price::FREE,
        bought: bidders.iter().map(|bidder| bidder.want).collect(),
    })
}

/// Serves bidders in `order`, each with its demand at `price` while pages are left.
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
    let mut left = rentable;
    for bidder in bidders {
        left = left.saturating_sub(bidder.demand(&price));
        if left == 0 {
            return true;
        }
    }
    left == 0
}
