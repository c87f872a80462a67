//! Divides pages in proportion to weights, within bounds.
//!
//! Idea: `A_i = base_i + t w_i` within bounds, with the t for which all add up to the total. It
//! works in rounds, as in [`divide`](crate::divide): if guests below their lower bounds lack more
//! in sum than others exceed their upper bounds, the former get their lower bounds, otherwise the
//! latter get their upper bounds; the next round divides the rest.
//!
//! Cost: O(n) a round, at most n rounds, a few in practice.
//! Limits: bases below 2^56 and weights below 2^61 keep each product within 128 bits.

use ballast_model::largest_remainder;

/// A guest that gets pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundedPart {
    /// Its pages at t = 0.
    pub(super) base: u64,
    /// Never zero.
    pub(super) weight: u64,
    pub(super) lower: u64,
    /// At least `lower`.
    pub(super) upper: u64,
}

/// The pages of each guest. They add up to `total`, clamped to the sums of the bounds.
pub(super) fn divide(parts: &[BoundedPart], total: u64) -> Vec<u64> {
    let sum = |pages: fn(&BoundedPart) -> u64| parts.iter().map(pages).sum::<u64>();
    let mut left = i128::from(total.clamp(sum(|part| part.lower), sum(|part| part.upper)));
    let mut pages: Vec<u64> = parts.iter().map(|part| part.lower).collect();
    let mut open: Vec<usize> = (0..parts.len()).collect();
    while !open.is_empty() {
        let weights: i128 = open.iter().map(|&i| i128::from(parts[i].weight)).sum();
        let bases: i128 = open.iter().map(|&i| i128::from(parts[i].base)).sum();
        let due = |part: &BoundedPart| {
            i128::from(part.base) * weights + (left - bases) * i128::from(part.weight)
        };
        let lacks = |part: &BoundedPart| (i128::from(part.lower) * weights - due(part)).max(0);
        let exceeds = |part: &BoundedPart| (due(part) - i128::from(part.upper) * weights).max(0);
        let (mut lacking, mut cut_off) = (0_i128, 0_i128);
        for &i in &open {
            lacking = lacking.saturating_add(lacks(&parts[i]));
            cut_off = cut_off.saturating_add(exceeds(&parts[i]));
        }
        if lacking == 0 && cut_off == 0 {
            let dues = open.iter().map(|&i| due(&parts[i]));
            let shares = largest_remainder(dues, weights, left as u64);
            open.iter().zip(shares).for_each(|(&i, share)| pages[i] = share);
            break;
        }
        let mut still_open = Vec::with_capacity(open.len());
        let mut settled = 0;
        for &i in &open {
            let part = &parts[i];
            if lacking >= cut_off && lacks(part) > 0 {
                pages[i] = part.lower;
            } else if lacking <= cut_off && exceeds(part) > 0 {
                pages[i] = part.upper;
            } else {
                still_open.push(i);
                continue;
            }
            settled += i128::from(pages[i]);
        }
        open = still_open;
        left -= settled;
    }
    pages
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(base: u64, weight: u64, lower: u64, upper: u64) -> BoundedPart {
        BoundedPart { base, weight, lower, upper }
    }

    #[test]
    fn divisions_match_hand_calculations() {
        let free = [part(100, 100, 0, 1000), part(300, 300, 0, 1000)];
        // 40 more, divided one to three.
        assert_eq!(divide(&free, 440), [110, 330]);
        // The second is limited to 320; the first gets the rest.
        assert_eq!(divide(&[free[0], part(300, 300, 0, 320)], 440), [120, 320]);
        // The first is raised to 150; the second gets 20 less than its base.
        assert_eq!(divide(&[part(100, 100, 150, 1000), free[1]], 430), [150, 280]);
        // Totals beyond the bounds are clamped.
        assert_eq!(divide(&[part(1, 1, 1, 5), part(1, 1, 2, 5)], 100), [5, 5]);
        assert_eq!(divide(&[part(1, 1, 1, 5), part(1, 1, 2, 5)], 0), [1, 2]);
        assert_eq!(divide(&[], 7), [0_u64; 0]);
    }

    proptest! {
        #[test]
        fn everything_is_divided_by_one_factor_within_bounds(
            parts in prop::collection::vec((0..500_u64, 1..50_u64, 0..300_u64, 0..300_u64), 1..8),
            total in 0..4000_u64,
        ) {
            let parts: Vec<BoundedPart> = parts
                .into_iter()
                .map(|(base, weight, lower, room)| part(base, weight, lower, lower + room))
                .collect();
            let pages = divide(&parts, total);
            let lower = parts.iter().map(|part| part.lower).sum();
            let upper = parts.iter().map(|part| part.upper).sum();
            prop_assert_eq!(pages.iter().sum::<u64>(), total.clamp(lower, upper));
            // Guests below their upper bounds have no smaller t than guests above their lower ones.
            let mut least = f64::MAX;
            for (&pages, part) in pages.iter().zip(&parts) {
                prop_assert!((part.lower..=part.upper).contains(&pages));
                let t = |pages: f64| (pages - part.base as f64) / part.weight as f64;
                if pages < part.upper { least = least.min(t(pages as f64 + 1.0)); }
            }
            for (&pages, part) in pages.iter().zip(&parts) {
                let t = (pages as f64 - 1.0 - part.base as f64) / part.weight as f64;
                if pages > part.lower {
                    prop_assert!(t <= least + 1e-9, "{} {} {:?}", t, least, parts);
                }
            }
        }
    }
}
