//! Pages to everybody in proportion, within bounds.
//!
//! Idea: `A_i = base_i + t w_i` within bounds, with the t for which all add up to the total. In rounds,
//! as in [`divide`](crate::divide): where lower bounds lack more in all than upper bounds cut off,
//! those under theirs are settled there, else those over theirs; the rest is divided again.
//!
//! Cost: O(n) a round, at most n rounds, a few in practice. Limits: bases below 2^56 and weights below
//! 2^61 keep each product within 128 bits.

use ballast_model::largest_remainder;

/// One of those who get pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// What it has at t = 0.
    pub(super) base: u64,
    /// Not zero.
    pub(super) weight: u64,
    pub(super) lower: u64,
    /// At least `lower`.
    pub(super) upper: u64,
}

/// Pages of each; they add up to `total`, brought between the sums of bounds.
pub(super) fn divide(parts: &[Part], total: u64) -> Vec<u64> {
    let sum = |pages: fn(&Part) -> u64| parts.iter().map(pages).sum::<u64>();
    let mut left = i128::from(total.clamp(sum(|part| part.lower), sum(|part| part.upper)));
    let mut pages: Vec<u64> = parts.iter().map(|part| part.lower).collect();
    let mut open: Vec<usize> = (0..parts.len()).collect();
    while !open.is_empty() {
        let weights: i128 = open.iter().map(|&i| i128::from(parts[i].weight)).sum();
        let bases: i128 = open.iter().map(|&i| i128::from(parts[i].base)).sum();
        let due = |part: &Part| {
            i128::from(part.base) * weights + (left - bases) * i128::from(part.weight)
        };
        let lacks = |part: &Part| (i128::from(part.lower) * weights - due(part)).max(0);
        let exceeds = |part: &Part| (due(part) - i128::from(part.upper) * weights).max(0);
        // Saturating: which sum is the greater matters only where neither is absurd.
        let all = |of: &dyn Fn(&Part) -> i128| {
            open.iter().fold(0_i128, |sum, &i| sum.saturating_add(of(&parts[i])))
        };
        let (lacking, cut_off) = (all(&lacks), all(&exceeds));
        if lacking == 0 && cut_off == 0 {
            let dues = open.iter().map(|&i| due(&parts[i]));
            let shares = largest_remainder(dues, weights, left as u64);
            open.iter().zip(shares).for_each(|(&i, share)| pages[i] = share);
            break;
        }
        let settles = |part: &Part| match () {
            () if lacking >= cut_off && lacks(part) > 0 => Some(part.lower),
            () if lacking <= cut_off && exceeds(part) > 0 => Some(part.upper),
            () => None,
        };
        let settled: Vec<Option<u64>> = open.iter().map(|&i| settles(&parts[i])).collect();
        let mut settled = settled.into_iter();
        open.retain(|&i| {
            let Some(bound) = settled.next().flatten() else { return true };
            pages[i] = bound;
            left -= i128::from(bound);
            false
        });
    }
    pages
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(base: u64, weight: u64, lower: u64, upper: u64) -> Part {
        Part { base, weight, lower, upper }
    }

    #[test]
    fn examples_by_hand() {
        let free = [part(100, 100, 0, 1000), part(300, 300, 0, 1000)];
        // 40 more, one to three.
        assert_eq!(divide(&free, 440), [110, 330]);
        // The second is cut off at 320, the first gets the rest.
        assert_eq!(divide(&[free[0], part(300, 300, 0, 320)], 440), [120, 320]);
        // The first is raised to 150: 20 less than its base for the second.
        assert_eq!(divide(&[part(100, 100, 150, 1000), free[1]], 430), [150, 280]);
        // Bounds end what the total would allow.
        assert_eq!(divide(&[part(1, 1, 1, 5), part(1, 1, 2, 5)], 100), [5, 5]);
        assert_eq!(divide(&[part(1, 1, 1, 5), part(1, 1, 2, 5)], 0), [1, 2]);
        assert_eq!(divide(&[], 7), [0_u64; 0]);
    }

    proptest! {
        #[test]
        fn everything_is_given_out_and_bounds_hold(
            parts in prop::collection::vec((0..500_u64, 1..50_u64, 0..300_u64, 0..300_u64), 1..8),
            total in 0..4000_u64,
        ) {
            let parts: Vec<Part> =
                parts.iter().map(|&(base, weight, lower, room)| part(base, weight, lower, lower + room)).collect();
            let pages = divide(&parts, total);
            let (lower, upper) = (parts.iter().map(|p| p.lower).sum(), parts.iter().map(|p| p.upper).sum());
            prop_assert_eq!(pages.iter().sum::<u64>(), total.clamp(lower, upper));
            // One t explains all: whoever is below a bound's side has no less of it.
            let mut least = f64::MAX;
            for (&pages, part) in pages.iter().zip(&parts) {
                prop_assert!((part.lower..=part.upper).contains(&pages));
                let t = |pages: f64| (pages - part.base as f64) / part.weight as f64;
                if pages < part.upper { least = least.min(t(pages as f64 + 1.0)); }
            }
            for (&pages, part) in pages.iter().zip(&parts) {
                let t = (pages as f64 - 1.0 - part.base as f64) / part.weight as f64;
                if pages > part.lower { prop_assert!(t <= least + 1e-9, "{} {} {:?}", t, least, parts); }
            }
        }
    }
}
