//! `demand-proportional`: grants requests while memory lasts, then takes from guests above their
//! fair part for guests below it (flexmemd §4.3).
//!
//! Properties: gives no memory that was not requested; while requests fit, each is granted in full;
//! when they do not, every guest has at least what it wants or its fair part, whichever is less; no
//! credits, because the rule itself is fair; answers each request once, at once.
//!
//! Algorithm: `fair = static_min + R × weight / Σ weight`. A guest wants what it rents, plus its
//! request if it has one. If the wants fit, they are granted. Otherwise guests that rent more for
//! their weight than the requesting one give memory up, the highest first, until it has what it
//! requested or all rent equally much for their weight.
//!
//! That is weighted max-min fair division of R among the wants ([`divide`]), which the paper
//! computes by iteration: no guest is raised above its want, and none is lowered while another is
//! higher for its weight. The fair parts add up to R, so the common level is never below them.
//!
//! Deviations: requests that arrive between two decisions are settled together, so their order does
//! not matter; a single one follows the paper's rule. Weight is `static_min × shares`, the paper's
//! at equal shares.
//! Cost: O(n log n).

use super::max_min::divide;

/// Pages above the floor for guests that want `wants[i]` above theirs.
pub(super) fn demand_proportional(wants: &[u64], weights: &[u64], rentable: u64) -> Vec<u64> {
    divide(wants, weights, rentable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_guest_highest_for_its_weight_gives_memory_up() {
        // 120 pages and equal weights: 40 each is fair. Rented are 70, 30 and 20, so none is free.
        // The third requests 10 more: the first has most and gives them up.
        assert_eq!(demand_proportional(&[70, 30, 30], &[1; 3], 120), [60, 30, 30]);
        // It requests 60 more: it ties with the first at 45, and the second keeps what it has.
        assert_eq!(demand_proportional(&[70, 30, 80], &[1; 3], 120), [45, 30, 45]);
        // The first requests more but already has the most for its weight: nothing changes.
        assert_eq!(demand_proportional(&[90, 30, 20], &[1; 3], 120), [70, 30, 20]);
        // The first gives 30 back: all have what they want.
        assert_eq!(demand_proportional(&[40, 30, 20], &[1; 3], 120), [40, 30, 20]);
    }

    /// flexmemd §4.3 literally: moves page by page from the guest that rents most for its weight to
    /// the one that requests, until that has what it requested or would be above the giver.
    fn page_by_page(
        rented: &[u64],
        weights: &[u64],
        rentable: u64,
        requester: usize,
        ask: u64,
    ) -> Vec<u64> {
        let mut parts = rented.to_vec();
        for _ in 0..ask {
            if parts.iter().sum::<u64>() < rentable {
                parts[requester] += 1;
                continue;
            }
            let greediest = (0..parts.len())
                .filter(|&i| i != requester && parts[i] > 0)
                .max_by(|&a, &b| (parts[a] * weights[b]).cmp(&(parts[b] * weights[a])));
            let Some(giver) = greediest else { break };
            if (parts[requester] + 1) * weights[giver] > (parts[giver] - 1) * weights[requester]
                && (parts[requester] + 1) * weights[giver] > parts[giver] * weights[requester]
            {
                break;
            }
            parts[giver] -= 1;
            parts[requester] += 1;
        }
        parts
    }

    proptest! {
        #[test]
        fn agrees_with_taking_page_by_page(
            guests in prop::collection::vec((0..60u64, 1..6u64), 2..7),
            ask in 0..120u64,
            spare in 0..30u64,
        ) {
            let (rented, weights): (Vec<u64>, Vec<u64>) = guests.into_iter().unzip();
            let rentable = rented.iter().sum::<u64>() + spare;
            let mut wants = rented.clone();
            wants[0] += ask;
            let parts = demand_proportional(&wants, &weights, rentable);
            let oracle = page_by_page(&rented, &weights, rentable, 0, ask);
            let slack = parts.len() as u64;
            for (part, expected) in parts.iter().zip(&oracle) {
                prop_assert!(part.abs_diff(*expected) <= slack, "{:?} {:?}", parts, oracle);
            }
            let weight: u64 = weights.iter().sum();
            for i in 0..parts.len() {
                prop_assert!(parts[i] >= wants[i].min(rentable * weights[i] / weight));
                prop_assert!(parts[i] <= wants[i]);
            }
        }
    }
}
