//! `auction`: sealed bids, the highest that sells everything is the price (flexmemd §4.5).
//!
//! Properties: memory is free while all wants fit; when they do not, all of it is rented; who
//! offers most is served first. Fair over a long time only: with guests that want more than there is
//! and have about the same credits, one has everything and pays with all it has, then another
//! (flexmemd §4.6; `tests/flexmemd.rs` shows it). `round-robin` is the cure.
//!
//! Algorithm: a bid is `credits / want`, 0 where nothing is wanted. While `Σ want ≤ R` the price is
//! 0. Else at price p each buys `min(want, ⌊credits / p⌋)`; p is the highest bid at which these add
//! up to R or more, and guests are served in descending bids until nothing is left. What is bought
//! falls as p rises: the bids are sorted once and bisected, with sums from the left and right that
//! spare most counting. O(n log n).
//!
//! Deviations: the paper prints the bid upside down, `want / credits`; its words, the most that a
//! guest can pay and still afford its target, are `credits / want`. Bids and prices are exact
//! fractions.

use super::market::{Bidder, Sale, plenty, sells_out, serve};
use super::price::Price;

/// The most that a guest can pay per page and still afford all it wants.
pub(super) fn bid(bidder: &Bidder) -> Price {
    Price::of_pages(bidder.credits, bidder.want)
}

/// Finds the price and serves by descending bids, `rentable` pages in all.
pub(super) fn auction(bidders: &[Bidder], rentable: u64) -> Sale {
    if let Some(sale) = plenty(bidders, rentable) {
        return sale;
    }
    let order = by_descending_bids(bidders);
    let price = price(bidders, &order, rentable);
    Sale { price, bought: serve(bidders, &order, price, rentable) }
}

/// Places of the bidders, the highest bid first, ties by name.
pub(super) fn by_descending_bids(bidders: &[Bidder]) -> Vec<usize> {
    // Whole bids, of credits times a power of two, order nearly all; fractions order the rest.
    let richest = bidders.iter().map(|bidder| bidder.credits).max().unwrap_or(0);
    let scale = richest.leading_zeros().min(63);
    let whole = |bidder: &Bidder| (bidder.credits << scale).checked_div(bidder.want).unwrap_or(0);
    let mut order: Vec<(u64, usize)> = bidders.iter().map(whole).zip(0..).collect();
    order.sort_unstable_by(|&(more, a), &(less, b)| {
        let exactly = || bid(&bidders[b]).cmp(&bid(&bidders[a]));
        less.cmp(&more).then_with(exactly).then(a.cmp(&b))
    });
    order.into_iter().map(|(_, place)| place).collect()
}

/// The highest bid at which everything is sold; the wants must exceed `rentable`, so that at the
/// lowest bid everything is.
pub(super) fn price(bidders: &[Bidder], order: &[usize], rentable: u64) -> Price {
    // What those up to each place want, who can afford all of it at that place's bid, and what all
    // after it can spend, of which each loses less than a page by rounding. Who wants nothing is
    // left out.
    let spends = |bidder: &Bidder| if bidder.want > 0 { u128::from(bidder.credits) } else { 0 };
    let mut so_far = (0u128, bidders.iter().map(spends).sum::<u128>());
    let sums: Vec<(u128, u128)> = order
        .iter()
        .map(|&i| {
            so_far.0 += u128::from(bidders[i].want);
            so_far.1 -= spends(&bidders[i]);
            so_far
        })
        .collect();
    let sold_at = |&place: &usize| {
        let price = bid(&bidders[order[place]]);
        let (wanted, credits_after) = sums[place];
        let most = wanted + price.affordable_in_sum(credits_after);
        let rounded_off = (order.len() - place - 1) as u128;
        most >= u128::from(rentable)
            && (most - most.min(rounded_off) >= u128::from(rentable)
                || sells_out(bidders, price, rentable))
    };
    // Bids fall from place to place and demand rises: the first place at which all is sold.
    let (mut low, mut high) = (0, order.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if sold_at(&middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    order.get(low).map_or(Price::FREE, |&i| bid(&bidders[i]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bidder(want: u64, credits: u64) -> Bidder {
        Bidder { want, credits, weight: 100 }
    }

    #[test]
    fn by_hand() {
        // 100 pages. Bids: 600 / 60 = 10, 480 / 80 = 6, 900 / 30 = 30.
        // At 30: 20 + 16 + 30 = 66. At 10: 60 + 48 + 30 = 138 >= 100: the price.
        // Served 30 first, then 60, then the 10 that are left.
        let bidders = [bidder(60, 600), bidder(80, 480), bidder(30, 900)];
        let sale = auction(&bidders, 100);
        assert_eq!((sale.price, sale.bought), (Price::of_pages(10, 1), vec![60, 10, 30]));
        let sale = auction(&bidders, 66);
        assert_eq!((sale.price, sale.bought), (Price::of_pages(30, 1), vec![20, 16, 30]));
    }

    #[test]
    fn free_while_wants_fit_and_nothing_wanted_bids_nothing() {
        let bidders = [bidder(60, 600), bidder(0, 9000)];
        assert_eq!(auction(&bidders, 60).price, Price::FREE);
        assert_eq!(auction(&bidders, 60).bought, [60, 0]);
        assert!(bid(&bidders[1]).is_free());
        assert_eq!(auction(&bidders, 59).bought, [59, 0]);
    }

    /// The misprint frozen: `want / credits` is 1/2 for the first and 1/20 for the second guest,
    /// who could pay ten times as much a page.
    #[test]
    fn the_printed_bid_would_serve_the_poorest_first() {
        let bidders = [bidder(100, 200), bidder(100, 2000)];
        assert_eq!(bid(&bidders[0]), Price::of_pages(2, 1));
        assert_eq!(bid(&bidders[1]), Price::of_pages(20, 1));
        assert_eq!(auction(&bidders, 100).bought, [0, 100]);
    }

    /// Tries every bid, and counts demand at each.
    fn every_bid(bidders: &[Bidder], rentable: u64) -> Sale {
        let mut order: Vec<usize> = (0..bidders.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(bid(&bidders[i])));
        let wanted: u64 = bidders.iter().map(|b| b.want).sum();
        let demand = |price: Price| -> u64 {
            bidders.iter().map(|b| b.want.min(price.affordable(b.credits))).sum()
        };
        let bids = order.iter().map(|&i| bid(&bidders[i]));
        let price = bids.filter(|&bid| wanted > rentable && demand(bid) >= rentable).max();
        let price = price.unwrap_or(Price::FREE);
        let mut left = rentable;
        let mut bought = vec![0; bidders.len()];
        for i in order {
            bought[i] = bidders[i].want.min(price.affordable(bidders[i].credits)).min(left);
            left -= bought[i];
        }
        Sale { price, bought }
    }

    proptest! {
        #[test]
        fn agrees_with_trying_every_bid(
            bidders in prop::collection::vec((0..50u64, 0..800u64), 0..9), rentable in 0..200u64
        ) {
            let bidders: Vec<Bidder> = bidders.into_iter().map(|(w, c)| bidder(w, c)).collect();
            let sale = auction(&bidders, rentable);
            prop_assert_eq!(&sale, &every_bid(&bidders, rentable));
            let wanted: u64 = bidders.iter().map(|b| b.want).sum();
            prop_assert_eq!(sale.bought.iter().sum::<u64>(), wanted.min(rentable));
        }
    }
}
