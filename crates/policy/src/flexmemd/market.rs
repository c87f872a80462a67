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
    /// What each pays for them, at most its credits.
    pub rents: Vec<u64>,
}

impl Sale {
    /// `bought` pages, each at `price`.
    pub(super) fn at(price: Price, bought: Vec<u64>) -> Sale {
        let for_many = price.for_many();
        let rents = bought.iter().map(|&pages| for_many.rent(pages)).collect();
        Sale { price, bought, rents }
    }
}

/// Gives all bidders what they want, free of charge; `None` if that does not fit.
pub(super) fn plenty(bidders: &[Bidder], rentable: u64) -> Option<Sale> {
    let wanted: u128 = bidders.iter().map(|bidder| u128::from(bidder.want)).sum();
    (wanted <= u128::from(rentable)).then(|| Sale {
        price: Price::FREE,
        bought: bidders.iter().map(|bidder| bidder.want).collect(),
        rents: vec![0; bidders.len()],
    })
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
