//! `direct-assign`: rents out all memory at the highest possible price, the guest with most credits
//! first (flexmemd §4.4).
//!
//! Properties: memory is free while all wants fit; when they do not, all of it is rented if that is
//! possible at any price, so none is wasted. Guests that saved credits are served before those that
//! spent them, so no guest has more than its part forever.
//!
//! Algorithm: `want = max(0, desired − static_min)`. While `Σ want ≤ R` the price is 0. Otherwise,
//! in descending credits, `rented(p) = min(want, ⌊credits / p⌋, left)`, at the highest whole price
//! `p ≥ 1` per KiB and period at which all of R is still rented; without such a price, at 0. For
//! pages that it already rents and can still pay for, a guest is served as if its credits were a
//! margin higher.
//!
//! Rented memory falls as p rises. The search comes down by Newton's steps: the credits of guests
//! that cannot pay for their wants at p, divided by the memory that the other guests leave of R,
//! are an upper bound of the price. From there it gallops down past the effect of rounding to
//! pages, and bisects the last stride. Demand beyond R is taken from the guests with fewest
//! credits, by a heap. O(n) for each of a few steps, and O(k log n) for k guests that lose memory.
//!
//! Deviations: the paper does not favour guests that rent the memory already (incumbents). Because
//! prices are whole, guests can pay for somewhat more than R. The one served last saved the credits
//! for that and was first in the next period, so between equal wants memory went back and forth
//! forever. The paper takes the highest p with `tot_rented(p) ≤ R`, which holds for every p,
//! because no guest gets more than is left; here its stated aim is implemented. `⌊credits / p⌋` KiB
//! are rounded down to pages.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::auction::with_margin;
use super::market::{Bidder, Sale, plenty, sells_out};
use super::price::{PRICE_MAX, Price};

/// Finds the price and serves guests by descending credits, `rentable` pages in all. Each guest
/// rents `rented` pages so far.
pub(super) fn direct_assign(bidders: &[Bidder], rented: &[u64], rentable: u64) -> Sale {
    if let Some(sale) = plenty(bidders, rentable) {
        return sale;
    }
    let price = Price::per_kib(highest_that_sells(bidders, rentable));
    Sale::at(price, richest_first(bidders, rented, price, rentable))
}

/// The highest whole price per KiB at which all of `rentable` is rented. The wants must exceed
/// `rentable`, so that all is rented at a price of 0.
fn highest_that_sells(bidders: &[Bidder], rentable: u64) -> u64 {
    let sells_out = |per_kib| sells_out(bidders, Price::per_kib(per_kib), rentable);
    let mut unsold = PRICE_MAX + 1;
    loop {
        let bound = upper_bound(bidders, unsold, rentable);
        if bound + 1 >= unsold {
            break;
        }
        unsold = bound + 1;
    }
    let (mut sold, mut stride) = (unsold - 1, 1);
    while sold > 0 && !sells_out(sold) {
        (unsold, sold) = (sold, sold.saturating_sub(stride));
        stride *= 2;
    }
    while unsold - sold > 1 {
        let middle = sold + (unsold - sold) / 2;
        if sells_out(middle) {
            sold = middle;
        } else {
            unsold = middle;
        }
    }
    sold
}

/// An upper bound of the whole prices per KiB at which everything is rented. The nearer `per_kib`
/// is to the highest of them, the tighter the bound.
fn upper_bound(bidders: &[Bidder], per_kib: u64, rentable: u64) -> u64 {
    let page = Price::per_kib(1).rent(1);
    let (mut taken, mut credits) = (0u128, 0u128);
    for bidder in bidders {
        let cost = u128::from(bidder.want) * u128::from(page * per_kib);
        if cost <= u128::from(bidder.credits) {
            taken += u128::from(bidder.want);
        } else {
            credits += u128::from(bidder.credits);
        }
    }
    match u128::from(rentable).saturating_sub(taken) {
        // Nothing is left: everything is rented at that price.
        0 => per_kib,
        left => {
            u64::try_from(credits / left / u128::from(page)).unwrap_or(PRICE_MAX).min(PRICE_MAX)
        }
    }
}

/// Serves bidders by descending credits, each with its demand at `price` while pages are left.
/// Pages that a bidder rents already are served as if its credits were a margin higher
/// ([`INCUMBENT_MARGIN_PERCENT`](super::auction::INCUMBENT_MARGIN_PERCENT)).
fn richest_first(bidders: &[Bidder], rented: &[u64], price: Price, rentable: u64) -> Vec<u64> {
    let price = price.for_many();
    let mut bought: Vec<u64> = bidders.iter().map(|bidder| bidder.demand(&price)).collect();
    let demand: u128 = bought.iter().map(|&pages| u128::from(pages)).sum();
    let mut beyond = demand.saturating_sub(u128::from(rentable));
    if beyond == 0 {
        return bought;
    }
    let mut poorest = BinaryHeap::with_capacity(2 * bidders.len());
    for (index, bidder) in bidders.iter().enumerate() {
        let held = bought[index].min(rented[index]);
        let more = bought[index] - held;
        poorest.push((Reverse(with_margin(bidder.credits)), false, index, held));
        poorest.push((Reverse(bidder.credits), true, index, more));
    }
    while let Some((_, _, index, pages)) = poorest.pop() {
        let less = beyond.min(u128::from(pages)) as u64;
        bought[index] -= less;
        beyond -= u128::from(less);
        if beyond == 0 {
            break;
        }
    }
    bought
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Serves, by descending credits, what bidders rent and what they want beyond it, each with its
    /// demand at `price` while pages are left. For what bidders rent, their credits are raised by
    /// the margin.
    fn serve(bidders: &[Bidder], rented: &[u64], price: Price, rentable: u64) -> Vec<u64> {
        let price = price.for_many();
        let mut order = Vec::new();
        for (index, bidder) in bidders.iter().enumerate() {
            let demand = bidder.demand(&price);
            let held = demand.min(rented[index]);
            order.push((Reverse(with_margin(bidder.credits)), false, index, held));
            order.push((Reverse(bidder.credits), true, index, demand - held));
        }
        order.sort_unstable();
        let mut bought = vec![0; bidders.len()];
        let mut left = rentable;
        for (_, _, index, pages) in order {
            let pages = pages.min(left);
            bought[index] += pages;
            left -= pages;
        }
        bought
    }

    /// A sale to guests that rent nothing yet.
    fn first_sale(bidders: &[Bidder], rentable: u64) -> Sale {
        direct_assign(bidders, &vec![0; bidders.len()], rentable)
    }

    fn bidder(want: u64, credits: u64) -> Bidder {
        Bidder { want, credits, weight: 100 }
    }

    #[test]
    fn the_price_is_the_highest_that_sells_everything() {
        // 100 pages; wants 80, 60 and 10. At p = 3 a page costs 12: 600 / 12 = 50, 480 / 12 = 40
        // and 10 are 100, all of it. At 4 (16 a page): 37 + 30 + 10 = 77.
        let bidders = [bidder(80, 600), bidder(60, 480), bidder(10, 900)];
        let sale = first_sale(&bidders, 100);
        assert_eq!((sale.price, sale.bought), (Price::per_kib(3), vec![50, 40, 10]));
        // One page less to rent: still p = 3, and the poorest, served last, gets one less.
        assert_eq!(first_sale(&bidders, 99).bought, [50, 39, 10]);
        // One page more than is sold at 3: p = 2 (8 a page): 75 + 60 + 10, served in the order 10,
        // 75, 16.
        let sale = first_sale(&bidders, 101);
        assert_eq!((sale.price, sale.bought), (Price::per_kib(2), vec![75, 16, 10]));
    }

    #[test]
    fn memory_is_free_while_wants_fit_or_credits_are_lacking() {
        let bidders = [bidder(80, 600), bidder(20, 0)];
        assert_eq!(first_sale(&bidders, 100).price, Price::FREE);
        assert_eq!(first_sale(&bidders, 100).bought, [80, 20]);
        // At p = 1 they can pay 20 + 2 of 60 pages.
        let poor = [bidder(50, 80), bidder(50, 8)];
        let sale = first_sale(&poor, 60);
        assert_eq!((sale.price, sale.bought), (Price::FREE, vec![50, 10]));
    }

    /// Both can pay for 51 of 100 pages at p = 10, which is 40 a page.
    #[test]
    fn an_incumbent_keeps_its_pages_unless_another_is_richer() {
        let bidders = [bidder(80, 2050), bidder(80, 2040)];
        assert_eq!(first_sale(&bidders, 100).bought, [51, 49]);
        for rented in [[50, 50], [49, 51], [51, 49]] {
            assert_eq!(direct_assign(&bidders, &rented, 100).bought, rented);
        }
        // More than it can pay for is not kept.
        assert_eq!(direct_assign(&bidders, &[20, 80], 100).bought, [49, 51]);
        // A guest with more than a quarter more comes first. At p = 11 both can pay for 101.
        let bidders = [bidder(55, 2440), bidder(80, 1951)];
        assert_eq!(direct_assign(&bidders, &[50, 50], 99).bought, [55, 44]);
    }

    /// Shows the misprint: there is no "highest p with `tot_rented(p) ≤ R`".
    #[test]
    fn the_printed_condition_holds_at_every_price() {
        let bidders = [bidder(80, 600), bidder(60, 480)];
        for p in [1, 10, 1000, PRICE_MAX] {
            let bought = richest_first(&bidders, &[0, 0], Price::per_kib(p), 100);
            assert!(bought.iter().sum::<u64>() <= 100);
        }
        assert_eq!(first_sale(&bidders, 100).bought.iter().sum::<u64>(), 100);
    }

    /// Tries every price, from the highest that any guest could pay.
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
        Sale::at(price, rented(price))
    }

    proptest! {
        #[test]
        fn agrees_with_trying_every_price(
            bidders in prop::collection::vec((0..50u64, 0..800u64), 0..7), rentable in 1..200u64
        ) {
            let bidders: Vec<Bidder> = bidders.into_iter().map(|(w, c)| bidder(w, c)).collect();
            prop_assert_eq!(first_sale(&bidders, rentable), every_price(&bidders, rentable));
        }

        /// With figures of every magnitude. Also checks that the richest are served first.
        #[test]
        fn no_higher_price_sells_everything(
            bidders in prop::collection::vec(
                (0..1u64 << 40, 0..40u32, 0..1u64 << 50, 0..50u32, 0..1u64 << 40), 1..40
            ),
            rentable in 1..1u64 << 42, down in 0..42u32,
        ) {
            let rentable = (rentable >> down).max(1);
            let rented: Vec<u64> = bidders.iter().map(|it| it.4 >> it.1).collect();
            let bidders: Vec<Bidder> =
                bidders.into_iter().map(|(w, a, c, b, _)| bidder(w >> a, c >> b)).collect();
            let Sale { price, bought, .. } = direct_assign(&bidders, &rented, rentable);
            prop_assert_eq!(&bought, &serve(&bidders, &rented, price, rentable));
            if plenty(&bidders, rentable).is_none() {
                let page = Price::per_kib(1).rent(1);
                let per_kib = price.rent(1) / page;
                prop_assert!(sells_out(&bidders, price, rentable));
                prop_assert!(
                    per_kib == PRICE_MAX
                        || !sells_out(&bidders, Price::per_kib(per_kib + 1), rentable)
                );
            }
        }
    }
}
