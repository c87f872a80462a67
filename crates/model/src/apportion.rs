//! Whole pages from exact fractions, by largest remainder.
//!
//! Idea: everybody gets the whole part of what is due; the pages left over go one each to the
//! largest fractions, ties to who comes first. What was divided adds up again, to the page.
//! Cost: O(n). Source: Hamilton's method.
//! Limits: the parts due must add up to the total.

/// `numerators[i] / denominator` pages each, rounded so that the sum is `total`.
///
/// Requires non-negative numerators, a positive denominator and
/// `Σ numerators = total × denominator`.
pub fn largest_remainder(numerators: &[i128], denominator: i128, total: u64) -> Vec<u64> {
    debug_assert!(denominator > 0 && numerators.iter().all(|&n| n >= 0));
    let divided = numerators.iter().map(|n| {
        let whole = n / denominator;
        (whole as u64, n - whole * denominator)
    });
    let (mut parts, remainders): (Vec<u64>, Vec<i128>) = divided.unzip();
    let given: u64 = parts.iter().sum();
    let left = usize::try_from(total.saturating_sub(given)).unwrap_or(usize::MAX);
    if left == 0 {
        return parts;
    }
    let mut order: Vec<usize> = (0..numerators.len()).collect();
    if left < order.len() {
        let by_remainder =
            |a: &usize, b: &usize| remainders[*b].cmp(&remainders[*a]).then(a.cmp(b));
        order.select_nth_unstable_by(left, by_remainder);
    }
    for &i in order.iter().take(left) {
        parts[i] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thirds_of_ten() {
        assert_eq!(largest_remainder(&[10, 10, 10], 3, 10), [4, 3, 3]);
        assert_eq!(largest_remainder(&[13, 8, 9], 3, 10), [4, 3, 3]);
        assert_eq!(largest_remainder(&[], 3, 0), [0u64; 0]);
    }

    proptest! {
        #[test]
        fn adds_up_and_is_off_by_less_than_a_page(
            weights in prop::collection::vec(1..1000i128, 1..30),
            total in 0..1_000_000u64,
        ) {
            let denominator: i128 = weights.iter().sum();
            let due: Vec<i128> = weights.iter().map(|w| w * i128::from(total)).collect();
            let parts = largest_remainder(&due, denominator, total);
            prop_assert_eq!(parts.iter().sum::<u64>(), total);
            for (part, due) in parts.iter().zip(&due) {
                prop_assert!((i128::from(*part) * denominator - due).abs() < denominator);
            }
        }
    }
}
