//! A histogram over several intervals, in which older ones weigh less.
//!
//! Idea: at the end of each interval the sum is multiplied by λ and the interval's histogram is
//! added. λ = 1 is MEB's: it never forgets, so it answers slowly when the working set falls (MEB
//! §5.2.1). λ = 0 has only the last interval, and loses what is used in every other one. A rise
//! shows at once with any λ, because its distances are new.
//!
//! Measured (`cargo run --release -p ballast-mrc --example aging`). *fall* and *rise* are the
//! intervals until WSS(1 %) is within 10 % of the new working set, when 4,000 pages that were used
//! for 20 intervals become 1,000 or 8,000; pages are equally likely or follow Zipf(0.9). *pulse* is
//! the part that is never forgotten of 4,000 pages used only in each fourth interval (1,000 in the
//! others). *noise* is the difference between the estimates of two intervals of only 500
//! references.
//!
//! | λ       | fall | rise | fall, Zipf | rise, Zipf | pulse | noise |
//! |---------|------|------|------------|------------|-------|-------|
//! | 1       | > 40 | 4    | > 40       | 15         | 97 %  | 0.6 % |
//! | 0.9     | 40   | 2    | 32         | 8          | 97 %  | 0.6 % |
//! | 0.8     | 20   | 2    | 16         | 6          | 96 %  | 0.7 % |
//! | 0.7     | 13   | 2    | 10         | 5          | 94 %  | 0.9 % |
//! | 0.6     | 9    | 2    | 7          | 5          | 91 %  | 0.9 % |
//! | **0.5** | 7    | 2    | 6          | 4          | 87 %  | 1.2 % |
//! | 0.4     | 5    | 1    | 4          | 4          | 78 %  | 1.4 % |
//! | 0.3     | 4    | 1    | 3          | 4          | 56 %  | 1.6 % |
//! | 0.2     | 3    | 1    | 3          | 4          | 25 %  | 2.0 % |
//! | 0       | 2    | 1    | 2          | 4          | 25 %  | 2.7 % |
//!
//! The default is 0.5: with intervals of 5 s that fall is followed in 35 s (a balancer that takes
//! back 10 % in an interval needs 70 s for it), and memory that is used every 20 s is kept. A
//! working set is forgotten after `log ε / log λ` intervals: 7 at ε = 1 %.
//!
//! Cost: O(buckets) for each interval.
//! Limits: λ applies once per interval, however many references the interval had; of two intervals,
//! the one with more references weighs more.

use crate::{Granularity, Histogram, Layout};

/// The sum of interval histograms, in which older ones weigh less.
#[derive(Clone, Debug, PartialEq)]
pub struct Aging {
    factor: f64,
    sum: Histogram,
}

impl Default for Aging {
    /// [`FACTOR`](Aging::FACTOR), in exact layout.
    fn default() -> Self {
        Self { factor: Self::FACTOR, sum: Histogram::new(Layout::Exact) }
    }
}

impl Aging {
    /// The default factor λ; the table above argues it.
    pub const FACTOR: f64 = 0.5;

    /// An empty sum; `factor` is λ, from 0 (only the last interval counts) to 1 (all count the
    /// same). `None` if it is outside that range.
    #[must_use]
    pub fn new(factor: f64, layout: Layout) -> Option<Self> {
        (0.0..=1.0).contains(&factor).then(|| Self { factor, sum: Histogram::new(layout) })
    }

    /// Ends an interval: the sum ages, and `interval`'s counts are added.
    pub fn end_interval(&mut self, interval: &Histogram) {
        self.sum.scale(self.factor);
        self.sum.merge(interval);
    }

    /// The aged sum.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.sum
    }

    /// Converts the sum to tags of another size ([`Histogram::regroup`]).
    pub fn regroup(&mut self, from: Granularity, to: Granularity) {
        self.sum = self.sum.regroup(from, to);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Curve;

    fn aged(factor: f64, intervals: &[Vec<u64>]) -> Histogram {
        let mut aging = Aging::new(factor, Layout::Exact).unwrap();
        for counts in intervals {
            aging.end_interval(&Histogram::from_counts(counts));
        }
        aging.histogram().clone()
    }

    #[test]
    fn factors_by_name() {
        for factor in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Aging::new(factor, Layout::Exact), None, "{factor}");
        }
        let intervals = [vec![8, 4, 0, 2], vec![0, 1], vec![2, 0, 4]];
        let cases = [
            (0.0, vec![2.0, 0.0, 4.0, 0.0]),
            (0.5, vec![4.0, 1.5, 4.0, 0.5]),
            (1.0, vec![10.0, 5.0, 4.0, 2.0]),
        ];
        for (factor, expected) in cases {
            let histogram = aged(factor, &intervals);
            let weights = [1, 2, 3].map(|distance| histogram.weight_at(distance));
            assert_eq!((histogram.cold(), &weights[..]), (expected[0], &expected[1..]), "{factor}");
        }
    }

    #[test]
    fn a_decline_is_followed_within_the_aging_time() {
        let (wide, narrow) = (Histogram::from_counts(&[0, 0, 0, 0, 100]), [0, 100]);
        for (factor, expected) in [(0.0, 1), (0.25, 4), (0.5, 7), (0.75, 17)] {
            let mut aging = Aging::new(factor, Layout::Exact).unwrap();
            (0..40).for_each(|_| aging.end_interval(&wide));
            let mut intervals = 0;
            while Curve::new(aging.histogram(), Granularity::PAGE).working_set(0.01) > 1 {
                aging.end_interval(&Histogram::from_counts(&narrow));
                intervals += 1;
            }
            assert_eq!(intervals, expected, "{factor}");
        }
    }

    #[test]
    fn other_tags_keep_the_memory() {
        let mut aging = Aging::new(1.0, Layout::LogLinear).unwrap();
        aging.end_interval(&Histogram::from_counts(&[1, 0, 4]));
        aging.regroup(Granularity::new(32).unwrap(), Granularity::new(1).unwrap());
        assert_eq!(aging.histogram().weight_at(64), 4.0);
        assert_eq!(aging.histogram().cold(), 1.0);
    }

    proptest! {
        #[test]
        fn each_interval_weighs_by_its_age(
            intervals in prop::collection::vec(prop::collection::vec(0..99_u64, 0..9), 0..12),
            factor in 0.0..=1.0,
        ) {
            let histogram = aged(factor, &intervals);
            for distance in 0..9 {
                let weight = |(age, counts): (i32, &Vec<u64>)| {
                    factor.powi(age) * counts.get(distance).map_or(0.0, |&count| count as f64)
                };
                let expected: f64 = (0..).zip(intervals.iter().rev()).map(weight).sum();
                let found = match distance {
                    0 => histogram.cold(),
                    _ => histogram.weight_at(distance as u64),
                };
                prop_assert!((found - expected).abs() < 1e-9);
            }
        }

        #[test]
        fn without_aging_it_is_one_long_interval(
            intervals in prop::collection::vec(prop::collection::vec(0..99_u64, 9), 1..12),
        ) {
            let sums: Vec<u64> =
                (0..9).map(|at| intervals.iter().map(|counts| counts[at]).sum()).collect();
            prop_assert_eq!(aged(1.0, &intervals), Histogram::from_counts(&sums));
        }
    }
}
