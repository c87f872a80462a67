//! `auction`: sealed bids; the price is the highest bid that sells everything (flexmemd §4.5).
//!
//! Properties: memory is free while all wants fit; when they do not, all of it is rented; the
//! highest bidder is served first. Fair only over a long time: if guests with equal credits each
//! want more than there is, one gets everything and pays with all its credits, then another
//! (flexmemd §4.6; shown in `tests/it/flexmemd.rs`). `round-robin` avoids that.
//!
//! Algorithm: a bid is `credits / want`, or 0 if nothing is wanted. While `Σ want ≤ R` the price is
//! 0. Otherwise, at price p each guest buys `min(want, ⌊credits / p⌋)`; p is the highest bid at
//! which these add up to R or more, and guests are served in descending bids until nothing is left.
//! Sales fall as p rises, so the bids are sorted once and bisected; prefix and suffix sums avoid
//! most counting. O(n log n).
//!
//! Deviations: the paper prints the bid upside down, `want / credits`; its text, the most that a
//! guest can pay and still afford its target, means `credits / want`. Bids and prices are exact
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

/// Places of the bidders by descending bid, ties by name.
pub(super) fn by_descending_bids(bidders: &[Bidder]) -> Vec<usize> {
    // Integer bids, scaled by a power of two, order nearly all; exact fractions order the rest.
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

/// The highest bid at which everything is sold. The wants must exceed `rentable`, so that
/// everything is sold at the lowest bid.
pub(super) fn price(bidders: &[Bidder], order: &[usize], rentable: u64) -> Price {
    // For each place: the wants up to it, which are all affordable at its bid, and the credits
    // of the bidders after it, each losing less than a page by rounding. Bidders that want nothing
    // are left out.
    let spends = |bidder: &Bidder| if bidder.want > 0 { u128::from(bidder.credits) } else { 0 };
    let (mut wanted, mut credits_after) = (0u128, bidders.iter().map(spends).sum::<u128>());
    let mut sums: Vec<(u128, u128)> = Vec::with_capacity(order.len());
    for &i in order {
        wanted += u128::from(bidders[i].want);
        credits_after -= spends(&bidders[i]);
        sums.push((wanted, credits_after));
    }
    let sells_out_at = |place: usize| {
        let price = bid(&bidders[order[place]]);
        let (wanted, credits_after) = sums[place];
        let most = wanted + price.affordable_in_sum(credits_after);
        let rounded_off = (order.len() - place - 1) as u128;
        most >= u128::from(rentable)
            && (most - most.min(rounded_off) >= u128::from(rentable)
                || sells_out(bidders, price, rentable))
    };
    // Bids fall from place to place and demand rises. Finds the first place where all is sold.
    let (mut low, mut high) = (0, order.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if sells_out_at(middle) {
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
    fn the_price_is_the_highest_bid_that_sells_everything() {
        // 100 pages. Bids: 600 / 60 = 10, 480 / 80 = 6, 900 / 30 = 30.
        // At 30: 20 + 16 + 30 = 66. At 10: 60 + 48 + 30 = 138 >= 100: the price.
        // The third gets 30, then the first 60, then the second the 10 that are left.
        let bidders = [bidder(60, 600), bidder(80, 480), bidder(30, 900)];
        let sale = auction(&bidders, 100);
        assert_eq!((sale.price, sale.bought), (Price::of_pages(10, 1), vec![60, 10, 30]));
        let sale = auction(&bidders, 66);
        assert_eq!((sale.price, sale.bought), (Price::of_pages(30, 1), vec![20, 16, 30]));
    }

    #[test]
    fn memory_is_free_while_wants_fit() {
        let bidders = [bidder(60, 600), bidder(0, 9000)];
        assert_eq!(auction(&bidders, 60).price, Price::FREE);
        assert_eq!(auction(&bidders, 60).bought, [60, 0]);
        assert!(bid(&bidders[1]).is_free());
        assert_eq!(auction(&bidders, 59).bought, [59, 0]);
    }

    /// Shows the misprint: `want / credits` is 1/2 for the first and 1/20 for the second guest,
    /// which could pay ten times as much a page.
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
