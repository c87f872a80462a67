//! `direct-assign`: the highest price at which all memory is rented, the richest first
//! (flexmemd §4.4).
//!
//! Properties: memory is free while all wants fit; when they do not, all of it is rented whenever
//! that is possible at any price, so nothing is wasted; who saved credits is served before who spent
//! them, so nobody has more than its part for good.
//!
//! Algorithm: `want = max(0, desired − static_min)`. While `Σ want ≤ R` the price is 0. Else, in
//! descending credits, `rented(p) = min(want, ⌊credits / p⌋, left)`, at the highest whole price
//! `p ≥ 1` per KiB and period at which all of R is still rented; at none if there is no such price.
//! What is rented falls as p rises: bisection, O(n log c) with c the credits per page of R.
//!
//! Deviations: the paper takes the highest p with `tot_rented(p) ≤ R`, which is true of every p,
//! since nobody is given more than is left; it states the aim, which is what is done here. Whole
//! pages: `⌊credits / p⌋` KiB are rounded down to pages.

use super::market::{Bidder, Sale, plenty, sells_out, serve};
use super::price::{PRICE_MAX, Price};

/// Finds the price and serves by descending credits, `rentable` pages in all.
pub(super) fn direct_assign(bidders: &[Bidder], rentable: u64) -> Sale {
    if let Some(sale) = plenty(bidders, rentable) {
        return sale;
    }
    let sells_out = |per_kib| sells_out(bidders, Price::per_kib(per_kib), rentable);
    // All that could be paid in all, for all there is: no higher price sells everything.
    let credits: u128 = bidders.iter().map(|bidder| u128::from(bidder.credits)).sum();
    let bound = credits / u128::from(rentable.max(1)) / u128::from(Price::per_kib(1).rent(1));
    let (mut sold, mut unsold) = (0, bound.min(u128::from(PRICE_MAX)) as u64 + 1);
    while unsold - sold > 1 {
        let middle = sold + (unsold - sold) / 2;
        if sells_out(middle) {
            sold = middle;
        } else {
            unsold = middle;
        }
    }
    let price = Price::per_kib(sold);
    let richest = |bidder: &Bidder| std::cmp::Reverse(bidder.credits);
    let mut order: Vec<_> = bidders.iter().map(richest).zip(0..).collect();
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(_, place)| place).collect();
    Sale { price, bought: serve(bidders, &order, price, rentable) }
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
        // 100 pages; wants 80, 60 and 10. At p = 3 a page costs 12: 600 / 12 = 50, 480 / 12 = 40 and
        // 10 are 100, all of it. At 4 (16 a page): 37 + 30 + 10 = 77.
        let bidders = [bidder(80, 600), bidder(60, 480), bidder(10, 900)];
        let sale = direct_assign(&bidders, 100);
        assert_eq!((sale.price, sale.bought), (Price::per_kib(3), vec![50, 40, 10]));
        // One page less to rent: still p = 3, and the poorest, served last, does without it.
        assert_eq!(direct_assign(&bidders, 99).bought, [50, 39, 10]);
        // One more than is sold at 3: p = 2 (8 a page): 75 + 60 + 10, in the order 10, 75, 16.
        let sale = direct_assign(&bidders, 101);
        assert_eq!((sale.price, sale.bought), (Price::per_kib(2), vec![75, 16, 10]));
    }

    #[test]
    fn free_while_wants_fit_and_when_nobody_can_pay() {
        let bidders = [bidder(80, 600), bidder(20, 0)];
        assert_eq!(direct_assign(&bidders, 100).price, Price::FREE);
        assert_eq!(direct_assign(&bidders, 100).bought, [80, 20]);
        // At p = 1 they can pay 20 + 2 of 60 pages.
        let poor = [bidder(50, 80), bidder(50, 8)];
        let sale = direct_assign(&poor, 60);
        assert_eq!((sale.price, sale.bought), (Price::FREE, vec![50, 10]));
    }

    /// The misprint frozen: "the highest p with `tot_rented(p) ≤ R`" has no highest p.
    #[test]
    fn the_printed_condition_is_true_of_every_price() {
        let bidders = [bidder(80, 600), bidder(60, 480)];
        for p in [1, 10, 1000, PRICE_MAX] {
            let bought = serve(&bidders, &[0, 1], Price::per_kib(p), 100);
            assert!(bought.iter().sum::<u64>() <= 100);
        }
        assert_eq!(direct_assign(&bidders, 100).bought.iter().sum::<u64>(), 100);
    }

    /// Tries every price from the highest that anybody could pay.
    fn every_price(bidders: &[Bidder], rentable: u64) -> Sale {
        let mut order: Vec<usize> = (0..bidders.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(bidders[i].credits));
        let rented = |price: Price| {
            let mut left = rentable;
            let mut bought = vec![0; bidders.len()];
            for &i in &order {
                bought[i] = bidders[i].want.min(price.affordable(bidders[i].credits)).min(left);
                left -= bought[i];
            }
            bought
        };
        let wanted: u64 = bidders.iter().map(|b| b.want).sum();
        let richest = bidders.iter().map(|b| b.credits).max().unwrap_or(0);
        let prices = (1..=richest).rev().map(Price::per_kib);
        let price = prices
            .filter(|_| wanted > rentable)
            .find(|&price| rented(price).iter().sum::<u64>() == rentable)
            .unwrap_or(Price::FREE);
        Sale { price, bought: rented(price) }
    }

    proptest! {
        #[test]
        fn agrees_with_trying_every_price(
            bidders in prop::collection::vec((0..50u64, 0..800u64), 0..7), rentable in 1..200u64
        ) {
            let bidders: Vec<Bidder> = bidders.into_iter().map(|(w, c)| bidder(w, c)).collect();
            prop_assert_eq!(direct_assign(&bidders, rentable), every_price(&bidders, rentable));
        }
    }
}
