//! Weighted max-min fair division.
//!
//! Idea: the level of all guests, pages per weight, rises together. A guest stops at its want; the
//! rest raises the others until nothing is left. So no guest could have more without one at a lower
//! level having less.
//!
//! Algorithm: in each round the guests that want no more than their part of what is left get it.
//! The parts of the others can only grow. When all remaining guests want more, they get their
//! parts.
//!
//! Cost: O(n) a round. In each round the remaining weight falls by a third, or the step by which
//! parts grow halves: no more rounds than bits in weights and wants, a few in practice.
//! Source: progressive filling (Bertsekas and Gallager, *Data Networks* §6.5.2), in whole pages by
//! largest remainder, ties to the first.

use ballast_model::in_proportion;

/// Divides `total` pages among guests that want `wants[i]`, by `weights[i]` (at least 1 each).
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
    // Guests that get less than they want, in the order of names because of ties.
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
    let rest = in_proportion(cut.iter().map(|&i| weights[i]), left);
    for (i, part) in cut.into_iter().zip(rest) {
        parts[i] = part;
    }
    parts
}

#[cfg(test)]
mod tests {
    use ballast_model::largest_remainder;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_wants_are_met_and_the_rest_is_divided() {
        // 100 pages with weights 1, 1, 2: 25, 25, 50. The first wants only 5, so 95 are divided by
        // 1 and 2.
        assert_eq!(divide(&[5, 90, 90], &[1, 1, 2], 100), [5, 32, 63]);
        assert_eq!(divide(&[5, 90, 60], &[1, 1, 2], 100), [5, 35, 60]);
        assert_eq!(divide(&[5, 6], &[1, 1], 100), [5, 6]);
        assert_eq!(divide(&[9, 9, 9], &[1, 1, 1], 10), [4, 3, 3]);
        assert_eq!(divide(&[9], &[1], 0), [0]);
        assert!(divide(&[], &[], 10).is_empty());
    }

    /// Meets the wants in the order in which the rising level reaches them.
    fn sorted(wants: &[u64], weights: &[u64], total: u64) -> Vec<u64> {
        let level = |i: usize, j: usize| u128::from(wants[i]) * u128::from(weights[j]);
        let mut order: Vec<usize> = (0..wants.len()).collect();
        order.sort_by(|&a, &b| level(a, b).cmp(&level(b, a)));
        let (mut parts, mut left) = (vec![0; wants.len()], total);
        let mut weight: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
        let mut cut = Vec::new();
        for i in order {
            let part = u128::from(left) * u128::from(weights[i]);
            if !cut.is_empty() || u128::from(wants[i]) * weight > part {
                cut.push(i);
                continue;
            }
            parts[i] = wants[i];
            left -= wants[i];
            weight -= u128::from(weights[i]);
        }
        cut.sort_unstable();
        if !cut.is_empty() {
            let due = cut.iter().map(|&i| i128::from(left) * i128::from(weights[i]));
            let rest = largest_remainder(due, weight as i128, left);
            cut.iter().zip(rest).for_each(|(&i, part)| parts[i] = part);
        }
        parts
    }

    /// Gives page by page to the guest that is at the lowest level and wants more.
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
        /// With wants and weights of very different magnitudes.
        #[test]
        fn agrees_exactly_with_a_sorted_division(
            guests in prop::collection::vec(
                (0..1u64 << 40, 0..40u32, 1..1u64 << 60, 0..60u32), 0..60
            ),
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
        fn differs_from_page_by_page_division_only_by_rounding(
            guests in prop::collection::vec((0..60u64, 1..9u64), 0..8), total in 0..300u64
        ) {
            let (wants, weights): (Vec<u64>, Vec<u64>) = guests.into_iter().unzip();
            let parts = divide(&wants, &weights, total);
            prop_assert_eq!(parts.iter().sum::<u64>(), total.min(wants.iter().sum()));
            let oracle = page_by_page(&wants, &weights, total);
            for (i, (part, expected)) in parts.iter().zip(&oracle).enumerate() {
                prop_assert!(*part <= wants[i]);
                let off = part.abs_diff(*expected);
                prop_assert!(off <= wants.len() as u64, "{:?} {:?}", parts, oracle);
            }
        }

        /// Max-min fairness, except for rounding.
        #[test]
        fn no_guest_is_above_one_that_got_less_than_wanted(
            guests in prop::collection::vec((0..1u64 << 40, 1..1u64 << 60), 1..40), total: u64
        ) {
            let (wants, weights): (Vec<u64>, Vec<u64>) = guests.into_iter().unzip();
            let parts = divide(&wants, &weights, total % (1 << 44));
            for i in (0..parts.len()).filter(|&i| parts[i] < wants[i]) {
                for j in 0..parts.len() {
                    // (parts[j] − 1) / weights[j] <= (parts[i] + 1) / weights[i]
                    prop_assert!(
                        u128::from(parts[j].saturating_sub(1)) * u128::from(weights[i])
                            <= u128::from(parts[i] + 1) * u128::from(weights[j])
                    );
                }
            }
        }
    }
}
