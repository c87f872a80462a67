//! `round-robin`: the auction, served in rounds (flexmemd §4.6).
//!
//! Properties: memory is free while all wants fit; when they do not, all of it is rented. Guests
//! with about equal credits have about equal memory, while `auction` would give everything to one
//! and then to another. With at least as many pages as guests, every guest that can pay for a page
//! has one in every period, so none starves.
//!
//! Algorithm: the price is that of `auction`. Guests in turn buy up to a limit per round, 1 GiB or
//! a quarter of their floor, until they have what they want or can pay for, or nothing is left.
//!
//! Deviations: all rounds are shortened equally, so that the last one is complete. The paper's last
//! round is cut off for the guests lowest in the order of bids. Because a guest that had more has
//! paid more, a round's worth of memory would then wander from guest to guest forever: 1 GiB a
//! second with three guests and 4 GiB. With complete rounds the order of bids does not matter, and
//! the result is weighted max-min fair division of R among what guests want and can pay for, with
//! the limits as weights ([`divide`]). Only the ratio of the limits matters, not their size. Limits
//! by floor include shares; with equal limits, shares count through the credits they bring.
//! Cost: O(n log n).

use super::auction::{by_descending_bids, price};
use super::market::{Bidder, Sale, plenty};
use super::max_min::divide;

/// The relative limit of each guest per round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoundLimit {
    /// The same for all guests: 1 GiB in the paper, which evaluates this.
    #[default]
    Equal,
    /// In proportion to floor and shares: a quarter of the floor in the paper.
    ByFloor,
}

impl RoundLimit {
    fn weight(self, bidder: &Bidder) -> u64 {
        match self {
            RoundLimit::Equal => 1,
            RoundLimit::ByFloor => bidder.weight,
        }
    }
}

/// Finds the auction's price and serves in rounds, `rentable` pages in all.
pub(crate) fn round_robin(bidders: &[Bidder], rentable: u64, limit: RoundLimit) -> Sale {
    if let Some(sale) = plenty(bidders, rentable) {
        return sale;
    }
    let price = price(bidders, &by_descending_bids(bidders), rentable);
    let for_many = price.for_many();
    let demands: Vec<u64> = bidders.iter().map(|bidder| bidder.demand(&for_many)).collect();
    let weights: Vec<u64> = bidders.iter().map(|bidder| limit.weight(bidder)).collect();
    Sale::at(price, divide(&demands, &weights, rentable))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flexmemd::price::Price;

    const GIB: u64 = 1 << 18;

    fn bidder(want: u64, credits: u64) -> Bidder {
        Bidder { want, credits, weight: 1000 * GIB }
    }

    /// The situation of flexmemd §4.6: 4 GiB, guests that want all of it, credits nearly equal.
    #[test]
    fn complete_rounds_match_a_hand_calculation() {
        let bidders = [bidder(4 * GIB, 1_000_000_000), bidder(4 * GIB, 1_000_000_001)];
        // The second bid is the price; at it the first guest can pay for all but a page of 4 GiB.
        // Rounds of 1 GiB: second, first, second, first.
        let sale = round_robin(&bidders, 4 * GIB, RoundLimit::Equal);
        assert_eq!(sale.price, Price::of_pages(1_000_000_001, 4 * GIB));
        assert_eq!(sale.bought, [2 * GIB, 2 * GIB]);
        // 3 GiB: two rounds of 0.75 GiB, instead of one of 1 GiB and one for the second guest
        // alone.
        let sale = round_robin(&bidders, 3 * GIB, RoundLimit::Equal);
        assert_eq!(sale.bought, [3 * GIB / 2, 3 * GIB / 2]);
        // With floors of 1 and 3 GiB a round gives a quarter of each, 256 and 768 MiB.
        let floors = [bidders[0], Bidder { weight: 3000 * GIB, ..bidders[1] }];
        let sale = round_robin(&floors, 4 * GIB, RoundLimit::ByFloor);
        assert_eq!(sale.bought, [GIB, 3 * GIB]);
        // One guest wants 0.5 GiB and gets it; the next can pay for 1 GiB. The price is the bid of
        // the last: 1,000 million for 4 GiB.
        let three = [bidder(GIB / 2, 1 << 28), bidder(4 * GIB, 250_000_000), bidders[0]];
        let sale = round_robin(&three, 4 * GIB, RoundLimit::Equal);
        assert_eq!(sale.price, Price::of_pages(1_000_000_000, 4 * GIB));
        assert_eq!(sale.bought, [GIB / 2, GIB, 5 * GIB / 2]);
    }

    /// The paper's rounds, in descending bids, with the last round cut off.
    fn by_papers_rounds(bidders: &[Bidder], rentable: u64, rounds: &[u64]) -> Vec<u64> {
        let order = by_descending_bids(bidders);
        let price = price(bidders, &order, rentable);
        let price = price.for_many();
        let mut bought = vec![0; bidders.len()];
        let mut left = rentable;
        loop {
            let before = left;
            for &i in &order {
                let more = (bidders[i].demand(&price) - bought[i]).min(rounds[i]).min(left);
                bought[i] += more;
                left -= more;
            }
            if before == left {
                return bought;
            }
        }
    }

    proptest! {
        #[test]
        fn differs_from_the_papers_rounds_by_at_most_one_round(
            bidders in prop::collection::vec((0..90u64, 0..800u64, 4..60u64), 1..9),
            rentable in 0..300u64,
            fixed in prop::option::of(1..40u64),
        ) {
            let bidders: Vec<Bidder> = bidders
                .into_iter()
                .map(|(want, credits, quarter)| {
                    Bidder { want, credits, weight: 4000 * quarter }
                })
                .collect();
            let wanted: u64 = bidders.iter().map(|b| b.want).sum();
            prop_assume!(wanted > rentable);
            let limit = match fixed {
                Some(_) => RoundLimit::Equal,
                None => RoundLimit::ByFloor,
            };
            let rounds: Vec<u64> =
                bidders.iter().map(|b| fixed.unwrap_or(b.weight / 4000)).collect();
            let sale = round_robin(&bidders, rentable, limit);
            prop_assert_eq!(sale.bought.iter().sum::<u64>(), rentable);
            let by_papers_rounds = by_papers_rounds(&bidders, rentable, &rounds);
            for i in 0..bidders.len() {
                let apart = sale.bought[i].abs_diff(by_papers_rounds[i]);
                prop_assert!(apart <= rounds[i] + 1, "{:?} {:?}", sale.bought, by_papers_rounds);
            }
        }

        #[test]
        fn every_guest_that_can_pay_gets_memory(
            bidders in prop::collection::vec((1..90u64, 1..800u64), 1..9), rentable in 9..300u64,
        ) {
            let bidders: Vec<Bidder> = bidders.into_iter().map(|(w, c)| bidder(w, c)).collect();
            let sale = round_robin(&bidders, rentable, RoundLimit::Equal);
            let price = sale.price.for_many();
            for (bidder, bought) in bidders.iter().zip(&sale.bought) {
                prop_assert_eq!(*bought > 0, bidder.demand(&price) > 0);
            }
        }
    }
}
