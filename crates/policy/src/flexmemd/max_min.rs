//! Weighted max-min fair division.
//!
//! Idea: everybody's level, pages per weight, rises together; who has all it wants stops; what is
//! left raises the others, until nothing is left. Nobody could have more without somebody lower on
//! the scale having less.
//!
//! Algorithm: by turns everybody who wants no more than its part of what is left has it, and leaves the
//! rest to the others, whose parts can only grow by that; until all who remain want more.
//!
//! Cost: O(n) a round. In each round the weight that remains falls by a third, or the step by which
//! parts grow halves: no more rounds than there are bits in weights and wants, a few in practice.
//! Source: progressive filling (Bertsekas and Gallager, *Data Networks* §6.5.2),
//! in whole pages by largest remainder, ties to who comes first.

use ballast_model::largest_remainder;

/// Divides `total` pages among those who want up to `wants[i]` by `weights[i]` (at least 1 each).
///
/// The parts add up to `min(total, Σ wants)`.
pub(super) fn divide(wants: &[u64], weights: &[u64], total: u64) -> Vec<u64> {
    let wanted: u128 = wants.iter().map(|&want| u128::from(want)).sum();
    if wanted <= u128::from(total) {
        return wants.to_vec();
    }
    let mut parts = vec![0; wants.len()];
    let mut weight: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let mut left = total;
    // In the order of names, for ties.
    let mut cut: Vec<usize> = (0..wants.len()).collect();
    loop {
        let before = cut.len();
        cut.retain(|&i| {
            let part = u128::from(left) * u128::from(weights[i]);
            let is_cut = u128::from(wants[i]) * weight > part;
            if !is_cut {
                parts[i] = wants[i];
                left -= wants[i];
                weight -= u128::from(weights[i]);
            }
            is_cut
        });
        if cut.len() == before {
            break;
        }
    }
    if !cut.is_empty() {
        let due = cut.iter().map(|&i| i128::from(left) * i128::from(weights[i]));
        for (&i, part) in cut.iter().zip(largest_remainder(due, weight as i128, left)) {
            parts[i] = part;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_wants_little_has_it_and_the_others_share_the_rest() {
        // Weights 1, 1, 2 and 100 pages: 25, 25, 50; the first wants 5 only, so 95 by 1 and 2.
        assert_eq!(divide(&[5, 90, 90], &[1, 1, 2], 100), [5, 32, 63]);
        assert_eq!(divide(&[5, 90, 60], &[1, 1, 2], 100), [5, 35, 60]);
        assert_eq!(divide(&[5, 6], &[1, 1], 100), [5, 6]);
        assert_eq!(divide(&[9, 9, 9], &[1, 1, 1], 10), [4, 3, 3]);
        assert_eq!(divide(&[9], &[1], 0), [0]);
        assert!(divide(&[], &[], 10).is_empty());
    }

    /// By the order in which everybody has all it wants as the level rises.
    fn sorted(wants: &[u64], weights: &[u64], total: u64) -> Vec<u64> {
        let level = |i: usize, j: usize| u128::from(wants[i]) * u128::from(weights[j]);
        let mut order: Vec<usize> = (0..wants.len()).collect();
        order.sort_by(|&a, &b| level(a, b).cmp(&level(b, a)));
        let (mut parts, mut left) = (vec![0; wants.len()], total);
        let mut weight: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        let is_content = |&&i: &&usize| {
            let is = u128::from(wants[i]) * weight <= u128::from(left) * u128::from(weights[i]);
            if is {
                parts[i] = wants[i];
                left -= wants[i];
                weight -= u128::from(weights[i]);
            }
            is
        };
        let content = order.iter().take_while(is_content).count();
        let mut cut = order[content..].to_vec();
        cut.sort_unstable();
        if !cut.is_empty() {
            let due = cut.iter().map(|&i| i128::from(left) * i128::from(weights[i]));
            let rest = largest_remainder(due, weight as i128, left);
            cut.iter().zip(rest).for_each(|(&i, part)| parts[i] = part);
        }
        parts
    }

    /// Page by page to whoever is lowest on the scale and wants more.
    fn page_by_page(wants: &[u64], weights: &[u64], total: u64) -> Vec<u64> {
        let mut parts = vec![0; wants.len()];
        for _ in 0..total {
            let lowest = (0..wants.len()).filter(|&i| parts[i] < wants[i]).min_by(|&a, &b| {
                ((parts[a] + 1) * weights[b]).cmp(&((parts[b] + 1) * weights[a])).then(a.cmp(&b))
            });
            let Some(lowest) = lowest else { break };
            parts[lowest] += 1;
        }
        parts
    }

    proptest! {
        /// To the page, with wants and weights of very different sizes.
        #[test]
        fn agrees_with_sorting(
            guests in prop::collection::vec((0..1u64 << 40, 0..40u32, 1..1u64 << 60, 0..60u32), 0..60),
            total: u64, cut in 24..64u32,
        ) {
            let (wants, weights): (Vec<u64>, Vec<u64>) = guests
                .into_iter()
                .map(|(want, down, weight, light)| (want >> down, (weight >> light).max(1)))
                .unzip();
            let total = total >> cut;
            prop_assume!(wants.iter().sum::<u64>() > total);
            prop_assert_eq!(divide(&wants, &weights, total), sorted(&wants, &weights, total));
        }

        #[test]
        fn differs_from_filling_page_by_page_by_rounding_alone(
            guests in prop::collection::vec((0..60u64, 1..9u64), 0..8), total in 0..300u64
        ) {
            let (wants, weights): (Vec<u64>, Vec<u64>) = guests.into_iter().unzip();
            let parts = divide(&wants, &weights, total);
            prop_assert_eq!(parts.iter().sum::<u64>(), total.min(wants.iter().sum()));
            let oracle = page_by_page(&wants, &weights, total);
            for (i, (part, expected)) in parts.iter().zip(&oracle).enumerate() {
                prop_assert!(*part <= wants[i]);
                // Largest remainder and page by page round differently, by few pages per guest.
                prop_assert!(part.abs_diff(*expected) <= wants.len() as u64, "{:?} {:?}", parts, oracle);
            }
        }

        /// Max-min fairness: who was cut is, but for rounding, no lower than anybody.
        #[test]
        fn nobody_above_the_level_of_one_who_was_cut(
            guests in prop::collection::vec((0..1u64 << 40, 1..1u64 << 60), 1..40), total: u64
        ) {
            let (wants, weights): (Vec<u64>, Vec<u64>) = guests.into_iter().unzip();
            let parts = divide(&wants, &weights, total % (1 << 44));
            for i in (0..parts.len()).filter(|&i| parts[i] < wants[i]) {
                for j in 0..parts.len() {
                    // parts[j] / weights[j] <= (parts[i] + 1) / weights[i], rounded up a page.
                    prop_assert!(
                        u128::from(parts[j].saturating_sub(1)) * u128::from(weights[i])
                            <= u128::from(parts[i] + 1) * u128::from(weights[j])
                    );
                }
            }
        }
    }
}
