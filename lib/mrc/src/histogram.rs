//! The number of references by stack distance.
//!
//! Idea: distances from 1, each with a weight; cold references (the first to a tag) are counted
//! separately. Weights are `f64`, which is exact for counts up to 2^53 and allows fractional
//! weights for samples and aged counts. There are two layouts: a weight for each distance, or 64
//! buckets per octave, which bound the memory. A log-linear bucket that begins at `d` ends before
//! `d + d/64`, so a distance is misplaced by less than 1/64 of itself; buckets below 128 have one
//! distance each.
//!
//! Cost: adding is O(1), everything else O(buckets); memory as in [`Layout`].
//! Limits: weights are finite and never negative; exact histograms end at [`TAGS_MAX`].

use crate::log_linear::LogLinear;
use crate::{Granularity, TAGS_MAX};

/// Log-linear buckets; the first one is for 0, which is not a distance.
type Octaves = LogLinear<6>;

/// Resolution of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A bucket for each distance: 8 bytes for each up to the greatest.
    Exact,
    /// 64 buckets per octave, exact below 128: at most 30 KiB for any distance.
    LogLinear,
}

impl Layout {
    /// The index of the bucket of `distance`, which is not 0.
    fn index(self, distance: u64) -> usize {
        match self {
            Self::Exact => (distance - 1) as usize,
            Self::LogLinear => Octaves::index(distance) - 1,
        }
    }

    /// The least and the greatest distance of the bucket at `index`.
    fn span(self, index: usize) -> (u64, u64) {
        match self {
            Self::Exact => (index as u64 + 1, index as u64 + 1),
            Self::LogLinear => {
                let (first, width) = Octaves::span(index + 1);
                (first, first + (width - 1))
            }
        }
    }
}

/// Distances that are counted together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The least distance, from 1.
    pub first: u64,
    /// The greatest distance.
    pub last: u64,
    /// The weight of the references at these distances, above 0.
    pub weight: f64,
}

/// Weights of references by stack distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    layout: Layout,
    /// By bucket; bucket 0 is distance 1. There are no zeros at the end, so that equal histograms
    /// compare equal.
    weights: Vec<f64>,
    cold: f64,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, weights: Vec::new(), cold: 0.0 }
    }

    /// The exact histogram of `counts`, indexed by distance; `counts[0]` is the number of cold
    /// references.
    #[must_use]
    pub fn from_counts(counts: &[u64]) -> Self {
        let Some((&cold, warm)) = counts.split_first() else {
            return Self::new(Layout::Exact);
        };
        let len = warm.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let weights = warm[..len].iter().map(|&count| count as f64).collect();
        Self { layout: Layout::Exact, weights, cold: cold as f64 }
    }

    /// Its layout.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The weight of cold references.
    #[must_use]
    pub fn cold(&self) -> f64 {
        self.cold
    }

    /// The weight of warm references.
    #[must_use]
    pub fn warm(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// The weight of all references.
    #[must_use]
    pub fn references(&self) -> f64 {
        self.cold + self.warm()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty() && self.cold == 0.0
    }

    /// Counts a warm reference of `weight` at `distance`.
    ///
    /// # Panics
    /// If `distance` is 0, or above [`TAGS_MAX`] in an exact histogram; if `weight` is negative or
    /// not finite.
    pub fn add(&mut self, distance: u64, weight: f64) {
        assert!(distance > 0, "distances begin at 1");
        check_weight(weight);
        if weight == 0.0 {
            return;
        }
        if self.layout == Layout::Exact {
            assert!(distance <= TAGS_MAX, "distance {distance} is above {TAGS_MAX}");
        }
        let index = self.layout.index(distance);
        if index >= self.weights.len() {
            self.weights.resize(index + 1, 0.0);
        }
        self.weights[index] += weight;
    }

    /// Counts a cold reference of `weight`.
    ///
    /// # Panics
    /// If `weight` is negative or not finite.
    pub fn add_cold(&mut self, weight: f64) {
        check_weight(weight);
        self.cold += weight;
    }

    /// The weight of the bucket that holds `distance`.
    #[must_use]
    pub fn weight_at(&self, distance: u64) -> f64 {
        match distance {
            0 => 0.0,
            _ => self.weights.get(self.layout.index(distance)).copied().unwrap_or(0.0),
        }
    }

    /// The greatest distance that a counted reference may have; 0 if there are no warm references.
    #[must_use]
    pub fn distance_max(&self) -> u64 {
        self.weights.len().checked_sub(1).map_or(0, |index| self.layout.span(index).1)
    }

    /// The buckets with a weight above 0, in rising order.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        let layout = self.layout;
        let weighty = self.weights.iter().enumerate().filter(|&(_, &weight)| weight > 0.0);
        weighty.map(move |(index, &weight)| {
            let (first, last) = layout.span(index);
            Bucket { first, last, weight }
        })
    }

    /// Multiplies every weight by `factor`.
    ///
    /// # Panics
    /// If `factor` is negative or not finite, or a weight becomes infinite.
    pub fn scale(&mut self, factor: f64) {
        check_weight(factor);
        self.cold *= factor;
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
        check_weight(self.references());
        self.trim();
    }

    /// Adds the weights of `other`. Two histograms of the same layout merge as if everything had
    /// been counted in one of them. For different layouts the result is log-linear, as if both had
    /// been.
    pub fn merge(&mut self, other: &Self) {
        if self.layout == Layout::Exact && other.layout == Layout::LogLinear {
            *self = self.to_log_linear();
        }
        if self.layout == other.layout {
            if self.weights.len() < other.weights.len() {
                self.weights.resize(other.weights.len(), 0.0);
            }
            self.weights.iter_mut().zip(&other.weights).for_each(|(sum, weight)| *sum += weight);
        } else {
            other.buckets().for_each(|bucket| self.add(bucket.first, bucket.weight));
        }
        self.cold += other.cold;
    }

    /// The same histogram with 64 buckets per octave.
    #[must_use]
    pub fn to_log_linear(&self) -> Self {
        let mut coarse = Self::new(Layout::LogLinear);
        coarse.merge(self);
        coarse
    }

    /// Converts the distances to tags of another size, so that each remains the same amount of
    /// memory: distances in coarser tags are rounded up, and a finer distance is that of the whole
    /// coarse tag. A log-linear bucket that falls into several is spread evenly.
    ///
    /// Limits: this is only an approximation. The true distances would depend on which tags are
    /// neighbours; only the regrouped stack ([`Granularity::regroup`]) takes that into account from
    /// then on. An exact histogram becomes log-linear if distances would exceed [`TAGS_MAX`].
    #[must_use]
    pub fn regroup(&self, from: Granularity, to: Granularity) -> Self {
        if to <= from {
            let factor = from.pages() / to.pages();
            let fits = self.distance_max().saturating_mul(factor) <= TAGS_MAX;
            let layout = if fits { self.layout } else { Layout::LogLinear };
            return self.rebuilt(layout, |result, bucket| {
                let (first, last) =
                    (bucket.first.saturating_mul(factor), bucket.last.saturating_mul(factor));
                // All buckets have the same relative width, so this one stays whole unless it comes
                // from the range in which each bucket has a single distance.
                result.spread(first, last, bucket.weight, 1);
            });
        }
        let factor = to.pages() / from.pages();
        self.rebuilt(self.layout, |result, bucket| {
            result.spread(bucket.first, bucket.last, bucket.weight, factor);
        })
    }

    fn rebuilt(&self, layout: Layout, mut each: impl FnMut(&mut Self, Bucket)) -> Self {
        let mut result = Self::new(layout);
        result.cold = self.cold;
        self.buckets().for_each(|bucket| each(&mut result, bucket));
        result
    }

    /// Spreads `weight` evenly over the distances `first..=last`, each divided by `factor` and
    /// rounded up.
    fn spread(&mut self, first: u64, last: u64, weight: f64, factor: u64) {
        let width = (last - first) as f64 + 1.0;
        let mut next = first;
        loop {
            // All distances that fall into the same bucket are added together.
            let distance = next.div_ceil(factor);
            let end = self.layout.span(self.layout.index(distance)).1;
            let end = end.saturating_mul(factor).min(last);
            self.add(distance, weight * ((end - next) as f64 + 1.0) / width);
            if end == last {
                return;
            }
            next = end + 1;
        }
    }

    fn trim(&mut self) {
        let len = self.weights.iter().rposition(|&weight| weight > 0.0).map_or(0, |last| last + 1);
        self.weights.truncate(len);
    }
}

fn check_weight(weight: f64) {
    assert!(
        weight >= 0.0 && weight.is_finite(),
        "a weight is not negative and finite, not {weight}"
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn of(layout: Layout, distances: &[(u64, f64)]) -> Histogram {
        let mut histogram = Histogram::new(layout);
        distances.iter().for_each(|&(distance, weight)| histogram.add(distance, weight));
        histogram
    }

    fn buckets(histogram: &Histogram) -> Vec<(u64, u64, f64)> {
        histogram.buckets().map(|bucket| (bucket.first, bucket.last, bucket.weight)).collect()
    }

    fn granularity(pages: u64) -> Granularity {
        Granularity::new(pages).unwrap()
    }

    #[test]
    fn log_linear_buckets_by_name() {
        let cases = [
            (1, 1, 1),
            (127, 127, 127),
            (128, 128, 129),
            (129, 128, 129),
            (255, 254, 255),
            (256, 256, 259),
            (1000, 1000, 1007),
            (65_535, 65_024, 65_535),
            (1 << 40, 1 << 40, (1 << 40) + (1 << 34) - 1),
            (u64::MAX, u64::MAX - (1 << 57) + 1, u64::MAX),
        ];
        for (distance, first, last) in cases {
            let histogram = of(Layout::LogLinear, &[(distance, 2.0)]);
            assert_eq!(buckets(&histogram), [(first, last, 2.0)], "{distance}");
            assert_eq!(histogram.weight_at(first), 2.0);
            assert_eq!(histogram.weight_at(last), 2.0);
            assert_eq!(histogram.distance_max(), last);
            assert!(histogram.weights.len() * size_of::<f64>() <= 30 << 10);
        }
    }

    #[test]
    fn log_linear_buckets_follow_each_other() {
        let layout = Layout::LogLinear;
        let mut expected = 1;
        for index in 0.. {
            let (first, last) = layout.span(index);
            assert_eq!(first, expected);
            assert_eq!((layout.index(first), layout.index(last)), (index, index));
            assert!(u128::from(last - first) * 64 < u128::from(first), "{first}..={last}");
            if last == u64::MAX {
                return;
            }
            expected = last + 1;
        }
    }

    #[test]
    fn counts_make_a_histogram() {
        assert!(Histogram::from_counts(&[]).is_empty());
        assert!(Histogram::from_counts(&[0, 0]).is_empty());
        assert!(!Histogram::from_counts(&[1]).is_empty());
        let histogram = Histogram::from_counts(&[3, 0, 2, 0]);
        assert_eq!(buckets(&histogram), [(2, 2, 2.0)]);
        assert_eq!((histogram.cold(), histogram.warm(), histogram.references()), (3.0, 2.0, 5.0));
        let mut added = of(Layout::Exact, &[(2, 2.0)]);
        added.add_cold(3.0);
        assert_eq!(histogram, added);
        assert_eq!(
            [0, 1, 2, 3].map(|distance| histogram.weight_at(distance)),
            [0.0, 0.0, 2.0, 0.0]
        );
    }

    #[test]
    fn equal_means_equal_whatever_was_there_before() {
        let mut histogram = of(Layout::Exact, &[(7, 1.0)]);
        histogram.add(9, 0.0);
        assert_eq!(histogram, of(Layout::Exact, &[(7, 1.0)]));
        histogram.scale(0.0);
        assert_eq!(histogram, Histogram::new(Layout::Exact));
        assert_ne!(histogram, Histogram::new(Layout::LogLinear));
    }

    #[test]
    fn a_regrouped_distance_is_the_same_memory() {
        let cases = [
            // Distances before, G before, G after, distances after.
            (vec![1, 32, 33], 1, 32, vec![(1, 2.0), (2, 1.0)]),
            (vec![1, 3], 32, 1, vec![(32, 1.0), (96, 1.0)]),
            (vec![5, 6, 16, 17], 32, 512, vec![(1, 3.0), (2, 1.0)]),
            (vec![5], 8, 8, vec![(5, 1.0)]),
        ];
        for (before, from, to, after) in cases {
            let before: Vec<_> = before.into_iter().map(|distance| (distance, 1.0)).collect();
            let mut histogram = of(Layout::Exact, &before);
            histogram.add_cold(4.0);
            let mut expected = of(Layout::Exact, &after);
            expected.add_cold(4.0);
            assert_eq!(histogram.regroup(granularity(from), granularity(to)), expected);
        }
    }

    #[test]
    fn a_bucket_that_falls_into_several_is_spread() {
        let histogram = of(Layout::LogLinear, &[(1024, 16.0)]);
        let coarser = histogram.regroup(granularity(1), granularity(16));
        // 1024 becomes 64, 1025 to 1039 become 65.
        assert_eq!(buckets(&coarser), [(64, 64, 1.0), (65, 65, 15.0)]);
    }

    #[test]
    fn distances_beyond_an_exact_histogram_become_log_linear() {
        let histogram = of(Layout::Exact, &[(1 << 12, 1.0)]);
        let finer = histogram.regroup(granularity(1 << 20), granularity(1));
        assert_eq!(finer, of(Layout::LogLinear, &[(1 << 32, 1.0)]));
    }

    #[test]
    #[should_panic(expected = "distances begin at 1")]
    fn distance_0_is_refused() {
        Histogram::new(Layout::LogLinear).add(0, 1.0);
    }

    #[test]
    #[should_panic(expected = "not negative")]
    fn a_negative_weight_is_refused() {
        Histogram::new(Layout::LogLinear).add(1, -1.0);
    }

    fn distances() -> impl Strategy<Value = Vec<(u64, f64)>> {
        let distance = prop_oneof![1..300_u64, 1..100_000_u64];
        prop::collection::vec((distance, (0..9_u8).prop_map(f64::from)), 0..60)
    }

    fn layout() -> impl Strategy<Value = Layout> {
        prop_oneof![Just(Layout::Exact), Just(Layout::LogLinear)]
    }

    proptest! {
        #[test]
        fn an_exact_histogram_is_a_map(distances in distances()) {
            let mut map = BTreeMap::new();
            distances.iter().for_each(|&(distance, weight)| {
                *map.entry(distance).or_insert(0.0) += weight;
            });
            let expected: Vec<_> =
                map.iter().filter(|&(_, &weight)| weight > 0.0).map(|(&d, &w)| (d, d, w)).collect();
            let histogram = of(Layout::Exact, &distances);
            prop_assert_eq!(buckets(&histogram), expected);
            prop_assert_eq!(histogram.warm(), map.values().sum::<f64>());

            let mut counts = vec![0; 100_001];
            map.iter().for_each(|(&distance, &weight)| counts[distance as usize] = weight as u64);
            prop_assert_eq!(Histogram::from_counts(&counts), histogram);
        }

        #[test]
        fn a_log_linear_histogram_misplaces_by_less_than_a_64th(distance in 1..=u64::MAX) {
            let bucket = of(Layout::LogLinear, &[(distance, 1.0)]).buckets().next().unwrap();
            prop_assert!(bucket.first <= distance && distance <= bucket.last);
            prop_assert!((bucket.last - bucket.first) as u128 * 64 < u128::from(distance));
        }

        #[test]
        fn merged_is_counted_together(
            one in distances(), other in distances(), layouts in (layout(), layout()),
        ) {
            let mut merged = of(layouts.0, &one);
            merged.merge(&of(layouts.1, &other));
            let is_exact = layouts == (Layout::Exact, Layout::Exact);
            let layout = if is_exact { Layout::Exact } else { Layout::LogLinear };
            prop_assert_eq!(merged, of(layout, &[one, other].concat()));
        }

        #[test]
        fn log_linear_afterwards_is_log_linear_at_once(distances in distances()) {
            let exact = of(Layout::Exact, &distances);
            prop_assert_eq!(exact.to_log_linear(), of(Layout::LogLinear, &distances));
        }

        #[test]
        fn regrouping_keeps_weights_and_memory(
            distances in distances(), layout in layout(), shifts in (0..10_u32, 0..10_u32),
        ) {
            let (from, to) = (granularity(1 << shifts.0), granularity(1 << shifts.1));
            let distances: Vec<_> =
                distances.iter().map(|&(distance, weight)| (distance % 2000 + 1, weight)).collect();
            let histogram = of(layout, &distances);
            let regrouped = histogram.regroup(from, to);
            prop_assert!((regrouped.warm() - histogram.warm()).abs() < 1e-6);
            if layout == Layout::Exact {
                let expected: Vec<_> = distances.iter().map(|&(distance, weight)| {
                    ((distance * from.pages()).div_ceil(to.pages()), weight)
                }).collect();
                prop_assert_eq!(&regrouped, &of(layout, &expected));
                // Finer and back again changes nothing.
                if to <= from {
                    prop_assert_eq!(regrouped.regroup(to, from), histogram);
                }
            } else {
                // Cumulated weights are never off by more than the width of a bucket.
                let tolerance = |pages: u64| pages / 32 + 2 * to.pages();
                for &(distance, _) in &distances {
                    let pages = distance * from.pages();
                    let truth = |pages: u64| -> f64 {
                        distances.iter().filter(|d| d.0 * from.pages() <= pages).map(|d| d.1).sum()
                    };
                    let up_to: f64 = regrouped.buckets()
                        .filter(|bucket| bucket.last * to.pages() <= pages)
                        .map(|bucket| bucket.weight).sum();
                    prop_assert!(up_to <= truth(pages + tolerance(pages)) + 1e-6);
                    prop_assert!(up_to >= truth(pages.saturating_sub(tolerance(pages))) - 1e-6);
                }
            }
        }
    }
}
