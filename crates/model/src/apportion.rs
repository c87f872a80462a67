//! Whole pages from exact fractions, by largest remainder.
//!
//! Idea: each gets the whole part of what is due. The pages left over go one each to the largest
//! fractions; of equal ones, the first wins. So the parts add up to the total, to the page.
//! Cost: O(n). Source: Hamilton's method.
//! Limits: the parts due must add up to the total.

use std::cmp::Reverse;
use std::num::NonZeroU64;

use crate::Divisor;

/// `numerators[i] / denominator` pages each, rounded so that the sum is `total`.
///
/// Requires non-negative numerators, a positive denominator and
/// `Σ numerators = total × denominator`.
pub fn largest_remainder(
    numerators: impl IntoIterator<Item = i128>,
    denominator: i128,
    total: u64,
) -> Vec<u64> {
    debug_assert!(denominator > 0);
    let plainly = |n: i128| ((n / denominator) as u64, n % denominator);
    let narrow = u64::try_from(denominator).ok().and_then(NonZeroU64::new).map(Divisor::new);
    match narrow {
        // No part exceeds the total, so all quotients fit and the slow path is never taken.
        Some(divisor) => round(numerators, total, |n| {
            divisor.div_rem(n as u128).unwrap_or_else(|| {
                let (whole, remainder) = plainly(n);
                (whole, remainder as u64)
            })
        }),
        None => round(numerators, total, plainly),
    }
}

/// `total` pages in proportion to `weights`, rounded so that the sum is `total`; none where all
/// weights are zero. The product of the total and the sum of weights must fit 127 bits.
pub fn in_proportion(weights: impl Iterator<Item = u64> + Clone, total: u64) -> Vec<u64> {
    let sum: i128 = weights.clone().map(i128::from).sum();
    if sum == 0 {
        return vec![0; weights.count()];
    }
    largest_remainder(weights.map(|weight| i128::from(weight) * i128::from(total)), sum, total)
}

/// [`largest_remainder`] with a given division into whole part and remainder.
fn round<R: Ord>(
    numerators: impl IntoIterator<Item = i128>,
    total: u64,
    divide: impl Fn(i128) -> (u64, R),
) -> Vec<u64> {
    let numerators = numerators.into_iter();
    let mut parts = Vec::with_capacity(numerators.size_hint().0);
    // In sorted order, the largest remainder comes first, and of equal ones the first index.
    let mut remainders = Vec::with_capacity(numerators.size_hint().0);
    for (i, numerator) in numerators.enumerate() {
        debug_assert!(numerator >= 0, "{numerator}");
        let (whole, remainder) = divide(numerator);
        parts.push(whole);
        remainders.push((Reverse(remainder), i));
    }
    let given: u64 = parts.iter().sum();
    let left = usize::try_from(total.saturating_sub(given)).unwrap_or(usize::MAX);
    if left == 0 {
        return parts;
    }
    if left < remainders.len() {
        remainders.select_nth_unstable(left);
    }
    for &(_, i) in remainders.iter().take(left) {
        parts[i] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_remainder_gets_the_last_page() {
        assert_eq!(largest_remainder([10, 10, 10], 3, 10), [4, 3, 3]);
        assert_eq!(largest_remainder([13, 8, 9], 3, 10), [4, 3, 3]);
        assert_eq!(largest_remainder([], 3, 0), [0u64; 0]);
        assert_eq!(in_proportion([13, 8, 9].into_iter(), 10), [4, 3, 3]);
        assert_eq!(in_proportion([0, 0].into_iter(), 10), [0, 0]);
    }

    /// The textbook method: round all parts down, then give one page each by falling remainder.
    fn by_sorting(numerators: &[i128], denominator: i128, total: u64) -> Vec<u64> {
        let mut parts: Vec<u64> = numerators.iter().map(|n| (n / denominator) as u64).collect();
        let left = total - parts.iter().sum::<u64>();
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&i| Reverse(numerators[i] % denominator));
        order.iter().take(left as usize).for_each(|&i| parts[i] += 1);
        parts
    }

    proptest! {
        /// Denominators of up to 64 bits, and larger ones.
        #[test]
        fn agrees_with_sorting(
            weights in prop::collection::vec(1..1000i128, 1..30),
            total in 0..1_000_000u64,
            scale in 0..70u32,
        ) {
            let weights: Vec<i128> = weights.iter().map(|w| w << scale).collect();
            let denominator: i128 = weights.iter().sum();
            let due: Vec<i128> = weights.iter().map(|w| w * i128::from(total)).collect();
            let expected = by_sorting(&due, denominator, total);
            prop_assert_eq!(largest_remainder(due, denominator, total), expected);
        }

        #[test]
        fn adds_up_and_is_off_by_less_than_a_page(
            weights in prop::collection::vec(1..1000i128, 1..30),
            total in 0..1_000_000u64,
        ) {
            let denominator: i128 = weights.iter().sum();
            let due: Vec<i128> = weights.iter().map(|w| w * i128::from(total)).collect();
            let parts = largest_remainder(due.iter().copied(), denominator, total);
            prop_assert_eq!(parts.iter().sum::<u64>(), total);
            for (part, due) in parts.iter().zip(&due) {
                prop_assert!((i128::from(*part) * denominator - due).abs() < denominator);
            }
        }
    }
}
