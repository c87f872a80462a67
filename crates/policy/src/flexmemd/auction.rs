//! `auction`: sealed bids; the price is the highest bid that sells everything (flexmemd §4.5).
//!
//! Properties: memory is free while all wants fit; when they do not, all of it is rented; the
//! highest bidder is served first. Fair only over a long time: if guests with equal credits each
//! want more than there is, one gets everything and pays with all its credits, then another
//! (flexmemd §4.6; shown in `tests/it/flexmemd.rs`). `round-robin` avoids that. A guest keeps what
//! it rents until another bids more than [`INCUMBENT_MARGIN_PERCENT`] above it, so guests with bids
//! that near to each other keep what they have.
//!
//! Algorithm: a bid is `credits / want`, or 0 if nothing is wanted. While `Σ want ≤ R` the price is
//! 0. Otherwise, at price p each guest buys `min(want, ⌊credits / p⌋)`; p is the highest bid at
//! which these add up to R or more, and guests are served in descending bids until nothing is left.
//! Sales fall as p rises, so the bids are sorted once and bisected; prefix and suffix sums avoid
//! most counting. O(n log n).
//!
//! A guest that already rents memory bids in two lots ([`Lots`]): an incumbent's lot for the pages
//! that it rents and still wants, with its bid raised by the margin, and a lot for the rest at its
//! bid. For the first lot it pays the market's price less the margin, or its own bid where that is
//! lower; so it never pays more than it bid.
//!
//! Deviations: the paper does not favour incumbents. The paper prints the bid upside down, `want /
//! credits`; its text, the most that a guest can pay and still afford its target, means `credits /
//! want`. Bids and prices are exact fractions.

use super::market::{Bidder, Sale, plenty, sells_out};
use super::price::Price;

/// By how much, in percent, another guest's bid must exceed that of a guest that rents the pages.
///
/// It lies near the geometric mean of two ratios of bids. Without any change of demand, bids differ
/// by up to some 8 %: a want may be off by the 2 % of a guest's memory that its statistics leave
/// free to move ([`demand`](super::demand)), some 3 % of what it rents, and a tax moves up to 5 %
/// of a balance. On the other hand, a waiting guest must have its turn. Of two equal guests, the
/// one that rents everything pays with all its credits and gets half of them back; then the other
/// one bids twice as much (+100 %). With more guests, the one that waits longest bids even more.
pub(super) const INCUMBENT_MARGIN_PERCENT: u64 = 25;

/// The most that a guest can pay per page and still afford all it wants.
pub(super) fn bid(bidder: &Bidder) -> Price {
    Price::of_pages(bidder.credits, bidder.want)
}

/// Finds the price and serves guests by descending bids, `rentable` pages in all. Each guest rents
/// `rented` pages so far.
pub(super) fn auction(bidders: &[Bidder], rented: &[u64], rentable: u64) -> Sale {
    if let Some(sale) = plenty(bidders, rentable) {
        return sale;
    }
    let lots = Lots::of(bidders, rented);
    let order = by_descending_bids(&lots.bids);
    let price = price(&lots.bids, &order, rentable);
    let mut sale = Sale { price, bought: vec![0; bidders.len()], rents: vec![0; bidders.len()] };
    let for_many = price.for_many();
    let mut left = rentable;
    for lot in order {
        let (bid, index, is_held) = (&lots.bids[lot], lots.of[lot], lots.are_held[lot]);
        let pages = if is_held { bid.want } else { bid.demand(&for_many) }.min(left);
        left -= pages;
        let rent = for_many.rent(pages).min(bid.credits);
        sale.bought[index] += pages;
        sale.rents[index] += if is_held { without_margin(rent) } else { rent };
    }
    sale
}

/// The lots that guests bid for.
struct Lots {
    /// Each lot, as if a separate guest bid for it.
    bids: Vec<Bidder>,
    /// The index of the guest that bids for the lot.
    of: Vec<usize>,
    /// Whether that guest rents it already.
    are_held: Vec<bool>,
}

impl Lots {
    /// The lots of `bidders` that each rent `rented` so far: the rented part of what a guest wants,
    /// and the rest, each with its part of the guest's credits.
    fn of(bidders: &[Bidder], rented: &[u64]) -> Lots {
        let mut lots = Lots { bids: Vec::new(), of: Vec::new(), are_held: Vec::new() };
        for (index, (bidder, rented)) in bidders.iter().zip(rented).enumerate() {
            let held = bidder.want.min(*rented);
            let more = bidder.want - held;
            let for_more = match more {
                0 => 0,
                _ => part(bidder.credits, more, bidder.want),
            };
            if held > 0 {
                let credits = with_margin(bidder.credits - for_more);
                lots.add(index, true, Bidder { want: held, credits, ..*bidder });
            }
            if more > 0 || held == 0 {
                lots.add(index, false, Bidder { want: more, credits: for_more, ..*bidder });
            }
        }
        lots
    }

    fn add(&mut self, index: usize, is_held: bool, bid: Bidder) {
        self.bids.push(bid);
        self.of.push(index);
        self.are_held.push(is_held);
    }
}

/// `credits × pages / whole`, rounded down.
fn part(credits: u64, pages: u64, whole: u64) -> u64 {
    (u128::from(credits) * u128::from(pages) / u128::from(whole)) as u64
}

/// `credits` raised by the margin, rounded down; below 2^63, as there are fewer credits.
pub(super) fn with_margin(credits: u64) -> u64 {
    credits + (u128::from(credits) * u128::from(INCUMBENT_MARGIN_PERCENT) / 100) as u64
}

/// Undoes [`with_margin`], rounded up; never more than the credits before.
fn without_margin(credits: u64) -> u64 {
    let hundredths = u128::from(credits) * 100;
    hundredths.div_ceil(u128::from(100 + INCUMBENT_MARGIN_PERCENT)) as u64
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
    order.into_iter().map(|(_, index)| index).collect()
}

/// The highest bid at which everything is sold. The wants must exceed `rentable`, so that
/// everything is sold at the lowest bid.
pub(super) fn price(bidders: &[Bidder], order: &[usize], rentable: u64) -> Price {
    // For each index: the wants up to it, which are all affordable at its bid, and the credits
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
    let sells_out_at = |index: usize| {
        let price = bid(&bidders[order[index]]);
        let (wanted, credits_after) = sums[index];
        let most = wanted + price.affordable_in_sum(credits_after);
        let rounded_off = (order.len() - index - 1) as u128;
        most >= u128::from(rentable)
            && (most - most.min(rounded_off) >= u128::from(rentable)
                || sells_out(bidders, price, rentable))
    };
    // Bids fall from index to index and demand rises. Finds the first index where all is sold.
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

    /// A sale to guests that rent nothing yet.
    fn first_sale(bidders: &[Bidder], rentable: u64) -> Sale {
        auction(bidders, &vec![0; bidders.len()], rentable)
    }

    #[test]
    fn the_price_is_the_highest_bid_that_sells_everything() {
        // 100 pages. Bids: 600 / 60 = 10, 480 / 80 = 6, 900 / 30 = 30.
        // At 30: 20 + 16 + 30 = 66. At 10: 60 + 48 + 30 = 138 >= 100: the price.
        // The third gets 30, then the first 60, then the second the 10 that are left.
        let bidders = [bidder(60, 600), bidder(80, 480), bidder(30, 900)];
        let sale = first_sale(&bidders, 100);
        assert_eq!((sale.price, sale.bought), (Price::of_pages(10, 1), vec![60, 10, 30]));
        let sale = first_sale(&bidders, 66);
        assert_eq!((sale.price, sale.bought), (Price::of_pages(30, 1), vec![20, 16, 30]));
    }

    #[test]
    fn memory_is_free_while_wants_fit() {
        let bidders = [bidder(60, 600), bidder(0, 9000)];
        assert_eq!(first_sale(&bidders, 60).price, Price::FREE);
        assert_eq!(first_sale(&bidders, 60).bought, [60, 0]);
        assert!(bid(&bidders[1]).is_free());
        assert_eq!(first_sale(&bidders, 59).bought, [59, 0]);
    }

    /// Shows the misprint: `want / credits` is 1/2 for the first and 1/20 for the second guest,
    /// which could pay ten times as much a page.
    #[test]
    fn the_printed_bid_would_serve_the_poorest_first() {
        let bidders = [bidder(100, 200), bidder(100, 2000)];
        assert_eq!(bid(&bidders[0]), Price::of_pages(2, 1));
        assert_eq!(bid(&bidders[1]), Price::of_pages(20, 1));
        assert_eq!(first_sale(&bidders, 100).bought, [0, 100]);
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
        let rents = bought.iter().map(|&pages| price.rent(pages)).collect();
        Sale { price, bought, rents }
    }

    #[test]
    fn an_incumbent_keeps_its_pages_until_beaten_by_the_margin() {
        // 100 pages, all rented by the first, whose bid is 10; both want all of them.
        for (credits, expected) in [(1000, [100, 0]), (1250, [100, 0]), (1251, [0, 100])] {
            let bidders = [bidder(100, 1000), bidder(100, credits)];
            assert_eq!(auction(&bidders, &[100, 0], 100).bought, expected, "{credits}");
        }
        // Its rent never exceeds its credits, although the price is above its bid.
        let sale = auction(&[bidder(100, 1000), bidder(100, 1250)], &[100, 0], 100);
        assert_eq!((sale.price, sale.rents), (Price::of_pages(1250, 100), vec![1000, 0]));
    }

    #[test]
    fn guests_with_like_bids_keep_what_each_has() {
        let bidders = [bidder(100, 1000), bidder(100, 1100), bidder(80, 900)];
        for rented in [[50, 30, 20], [0, 80, 20], [100, 0, 0]] {
            assert_eq!(auction(&bidders, &rented, 100).bought, rented, "{rented:?}");
        }
        // Pages that a guest no longer wants go to the highest bid among the others.
        let less = [bidder(100, 1000), bidder(10, 1100), bidder(80, 900)];
        assert_eq!(auction(&less, &[50, 30, 20], 100).bought, [50, 10, 40]);
    }

    proptest! {
        #[test]
        fn all_is_sold_and_no_rent_exceeds_credits(
            bidders in prop::collection::vec((0..50u64, 0..800u64, 0..60u64), 1..9),
            rentable in 0..200u64,
        ) {
            let rented: Vec<u64> = bidders.iter().map(|it| it.2).collect();
            let bidders: Vec<Bidder> = bidders.into_iter().map(|it| bidder(it.0, it.1)).collect();
            let sale = auction(&bidders, &rented, rentable);
            let wanted: u64 = bidders.iter().map(|b| b.want).sum();
            prop_assert_eq!(sale.bought.iter().sum::<u64>(), wanted.min(rentable));
            for (index, bidder) in bidders.iter().enumerate() {
                prop_assert!(sale.bought[index] <= bidder.want);
                prop_assert!(sale.rents[index] <= bidder.credits);
            }
        }

        /// No page leaves a guest for one whose bid is not above its own by the margin.
        #[test]
        fn pages_leave_an_incumbent_for_bids_beyond_the_margin_only(
            bidders in prop::collection::vec((1..50u64, 1..800u64, 0..60u64), 2..9),
            spare in 0..20u64,
        ) {
            let rented: Vec<u64> = bidders.iter().map(|it| it.0.min(it.2)).collect();
            let bidders: Vec<Bidder> = bidders.into_iter().map(|it| bidder(it.0, it.1)).collect();
            let rentable = rented.iter().sum::<u64>() + spare;
            let sale = auction(&bidders, &rented, rentable);
            for (loser, low) in bidders.iter().enumerate() {
                for (winner, high) in bidders.iter().enumerate() {
                    let loses = sale.bought[loser] < rented[loser];
                    if loses && sale.bought[winner] > rented[winner] {
                        // By cross products; lots lose up to a credit each when they are split.
                        let held = rented[loser];
                        let raised = (100 + INCUMBENT_MARGIN_PERCENT) * low.credits * held;
                        let slack = 100 * low.want * high.want;
                        let beats = 100 * high.credits * low.want * held;
                        prop_assert!(beats + slack >= raised * high.want, "{:?}", sale);
                    }
                }
            }
        }

        #[test]
        fn agrees_with_trying_every_bid(
            bidders in prop::collection::vec((0..50u64, 0..800u64), 0..9), rentable in 0..200u64
        ) {
            let bidders: Vec<Bidder> = bidders.into_iter().map(|(w, c)| bidder(w, c)).collect();
            let sale = first_sale(&bidders, rentable);
            prop_assert_eq!(&sale, &every_bid(&bidders, rentable));
            let wanted: u64 = bidders.iter().map(|b| b.want).sum();
            prop_assert_eq!(sale.bought.iter().sum::<u64>(), wanted.min(rentable));
        }
    }
}
