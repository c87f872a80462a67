//! `demand-proportional`: what is asked for, until it runs out; then nobody below its fair part for
//! somebody above it (flexmemd §4.3).
//!
//! Properties: gives nothing that was not asked for; while requests fit, each is granted in full;
//! when they do not, everybody has at least what it wants or its fair part, whichever is less; no
//! credits, since fairness is in the rule itself; answers a request once, at once.
//!
//! Algorithm: with `fair = static_min + R × weight / Σ weight`, what a guest wants is its rented
//! memory and its request, for one that asked, and its rented memory for the others. If the wants
//! fit, they are granted. Else guests that rent more for their weight than the one that asked give
//! way, those furthest above first, until it has what it asked for or they all rent equally much for
//! their weight.
//!
//! That is weighted max-min fair division of R among the wants ([`divide`]), which the paper reaches
//! by iteration: nobody is raised above its want, nobody lowered while somebody is higher for its
//! weight; and since the fair parts add up to R, the common level is never below them.
//!
//! Deviations: requests that arrive between two decisions are settled together, so that their order
//! does not matter; with one, it is the paper's rule. Weight is `static_min × shares`, the paper's
//! at equal shares. Cost: O(n log n).

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
    fn by_hand() {
        // 120 pages, equal weights: fair is 40 each. Rented: 70, 30 and 20, so nothing is free.
        // The third asks for 10: the first, who has most, gives way.
        assert_eq!(demand_proportional(&[70, 30, 30], &[1; 3], 120), [60, 30, 30]);
        // It asks for 60: it ties with the first at 45, the second keeps what it has.
        assert_eq!(demand_proportional(&[70, 30, 80], &[1; 3], 120), [45, 30, 45]);
        // The first asks for more and has the most for its weight already: nothing.
        assert_eq!(demand_proportional(&[90, 30, 20], &[1; 3], 120), [70, 30, 20]);
        // The first gives 30 back: everybody has what it wants.
        assert_eq!(demand_proportional(&[40, 30, 20], &[1; 3], 120), [40, 30, 20]);
    }

    /// flexmemd §4.3 literally: page by page from whoever rents most for its weight to the guest
    /// that asked, until it has what it asked for or would be above the one that gives.
    fn page_by_page(
        rented: &[u64],
        weights: &[u64],
        rentable: u64,
        who: usize,
        ask: u64,
    ) -> Vec<u64> {
        let mut parts = rented.to_vec();
        for _ in 0..ask {
            if parts.iter().sum::<u64>() < rentable {
                parts[who] += 1;
                continue;
            }
            let greediest = (0..parts.len())
                .filter(|&i| i != who && parts[i] > 0)
                .max_by(|&a, &b| (parts[a] * weights[b]).cmp(&(parts[b] * weights[a])));
            let Some(giver) = greediest else { break };
            if (parts[who] + 1) * weights[giver] > (parts[giver] - 1) * weights[who]
                && (parts[who] + 1) * weights[giver] > parts[giver] * weights[who]
            {
                break;
            }
            parts[giver] -= 1;
            parts[who] += 1;
        }
        parts
    }

    proptest! {
        #[test]
        fn agrees_with_taking_page_by_page(
            guests in prop::collection::vec((0..60u64, 1..6u64), 2..7), ask in 0..120u64, spare in 0..30u64
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
