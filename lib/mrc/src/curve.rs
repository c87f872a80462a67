//! Miss ratios of every memory size.
//!
//! Idea: a reference at distance `d` misses in memory of fewer than `d` tags, so the miss curve is
//! the histogram summed from its far end: `misses(m) = Σ_{d > m/G} Hist[d]` (MEB §3.1). There are
//! two forms: *warm* leaves cold references out of numerator and denominator, *total* has them in
//! both. Cold references miss in every memory, so sizing uses the warm form.
//!
//! Within a log-linear bucket references are assumed to be evenly distributed over its distances.
//!
//! Cost: building is O(buckets), 24 bytes each; a query is one binary search.
//! Source: Mattson 1970; MEB §3.1, §3.4 (the inverse). The error between curves is that of
//! Waldspurger 2015 §4.2.
//! Limits: sizes are pages, and a tag is in memory as a whole or not at all.

use crate::{Bucket, Granularity, Histogram};

/// The references that a miss ratio counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// References to tags that were seen before.
    Warm,
    /// All references: a tag's first reference is a miss in every memory.
    Total,
}

/// A size at which the curve falls, and the miss ratios from there to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The size in pages.
    pub pages: u64,
    /// Misses among warm references, as a ratio of warm references.
    pub miss_ratio_warm: f64,
    /// Misses among all references, as a ratio of all references.
    pub miss_ratio_total: f64,
}

/// The references with distances from `first` to `last`, in tags.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fall {
    first: u64,
    last: u64,
    /// Warm misses with `last` tags of memory.
    misses: f64,
}

/// A miss-ratio curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    pages_per_tag: f64,
    falls: Vec<Fall>,
    warm: f64,
    cold: f64,
}

impl Curve {
    /// The curve of a histogram of tags of `granularity`.
    #[must_use]
    pub fn new(histogram: &Histogram, granularity: Granularity) -> Self {
        Self::with_pages_per_tag(histogram, granularity.pages() as f64)
    }

    /// The curve of a histogram of tags that occupy `pages_per_tag` pages on average.
    ///
    /// # Panics
    /// If `pages_per_tag` is below 1 or not finite.
    #[must_use]
    pub fn with_pages_per_tag(histogram: &Histogram, pages_per_tag: f64) -> Self {
        assert!(pages_per_tag >= 1.0 && pages_per_tag.is_finite(), "a tag has a page or more");
        Self::of(histogram.buckets(), histogram.cold(), pages_per_tag)
    }

    /// The curve of buckets in rising order.
    pub(crate) fn of(
        buckets: impl DoubleEndedIterator<Item = Bucket>,
        cold: f64,
        pages_per_tag: f64,
    ) -> Self {
        // From the far end, so that small sums are not lost in large ones and the last sum is 0.
        let mut misses = 0.0;
        let fall = |bucket: Bucket| {
            let after = misses;
            misses += bucket.weight;
            Fall { first: bucket.first, last: bucket.last, misses: after }
        };
        let mut falls: Vec<Fall> = buckets.rev().map(fall).collect();
        falls.reverse();
        Self { pages_per_tag, falls, warm: misses, cold }
    }

    /// The weight of warm references.
    #[must_use]
    pub fn warm(&self) -> f64 {
        self.warm
    }

    /// The weight of cold references, which miss at every size.
    #[must_use]
    pub fn cold(&self) -> f64 {
        self.cold
    }

    /// The least size at which every warm reference hits, in pages.
    #[must_use]
    pub fn pages_max(&self) -> u64 {
        self.falls.last().map_or(0, |fall| self.pages_of(fall.last))
    }

    /// The weight of warm references that miss in `pages` of memory.
    #[must_use]
    pub fn misses(&self, pages: u64) -> f64 {
        // The falls before `next` are entirely within `pages`.
        let next = self.falls.partition_point(|fall| self.pages_of(fall.last) <= pages);
        let before = next.checked_sub(1).map_or(self.warm, |index| self.falls[index].misses);
        let Some(fall) = self.falls.get(next) else {
            return before;
        };
        let tags = least(fall.first, fall.last, |tags| self.pages_of(tags) > pages);
        let part = (tags - fall.first) as f64 / (fall.last - fall.first + 1) as f64;
        before - (before - fall.misses) * part
    }

    /// [`Self::misses`] as a ratio of warm references; 0 if there are none.
    #[must_use]
    pub fn miss_ratio_warm(&self, pages: u64) -> f64 {
        ratio(self.misses(pages), self.warm)
    }

    /// Misses including cold ones, as a ratio of all references; 0 if there are none.
    #[must_use]
    pub fn miss_ratio_total(&self, pages: u64) -> f64 {
        ratio(self.misses(pages) + self.cold, self.warm + self.cold)
    }

    /// The miss ratio with `pages` of memory, in either form.
    #[must_use]
    pub fn miss_ratio(&self, pages: u64, form: Form) -> f64 {
        match form {
            Form::Warm => self.miss_ratio_warm(pages),
            Form::Total => self.miss_ratio_total(pages),
        }
    }

    /// The working set, in pages: the least memory whose warm miss ratio is at most `epsilon`.
    #[must_use]
    pub fn working_set(&self, epsilon: f64) -> u64 {
        self.inverse(epsilon, Form::Warm).unwrap_or_else(|| self.pages_max())
    }

    /// The least memory, in pages, with a miss ratio of at most `miss_ratio`: `MRC⁻¹` of MEB §3.4.
    /// `None` if no memory is enough, because cold references alone exceed it.
    #[must_use]
    pub fn inverse(&self, miss_ratio: f64, form: Form) -> Option<u64> {
        if self.miss_ratio(self.pages_max(), form) > miss_ratio || miss_ratio.is_nan() {
            return None;
        }
        if self.miss_ratio(0, form) <= miss_ratio {
            return Some(0);
        }
        let enough = |tags: u64| self.miss_ratio(self.pages_of(tags), form) <= miss_ratio;
        let index = self.falls.partition_point(|fall| !enough(fall.last));
        let fall = self.falls.get(index)?;
        Some(self.pages_of(least(fall.first, fall.last, enough)))
    }

    /// The curve from 0 pages on, one [`Step`] for each size at which it falls; a log-linear bucket
    /// has one step, at its end.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let start = self.step(0, self.warm);
        let falls = self.falls.iter().map(|fall| self.step(self.pages_of(fall.last), fall.misses));
        std::iter::once(start).chain(falls)
    }

    fn step(&self, pages: u64, misses: f64) -> Step {
        Step {
            pages,
            miss_ratio_warm: ratio(misses, self.warm),
            miss_ratio_total: ratio(misses + self.cold, self.warm + self.cold),
        }
    }

    /// At most `points` of the [`steps`](Self::steps), but at least the first and the last, for
    /// plots drawn as steps. Two adjacent ones are either neighbours in `steps`, or the curve falls
    /// between them by less than `2 / (points − 2)` of its height.
    #[must_use]
    pub fn resampled(&self, points: usize) -> Vec<Step> {
        let count = self.falls.len() + 1;
        if count <= points.max(2) {
            return self.steps().collect();
        }
        // Along the curve, horizontal and vertical distances count the same: the plot has width 1
        // and height 1.
        let width = self.pages_max() as f64;
        let stride = 2.0 / points.saturating_sub(2).max(1) as f64;
        let mut kept: Vec<Step> = Vec::with_capacity(points);
        for (index, step) in self.steps().enumerate() {
            let far = kept.last().is_none_or(|last| {
                let right = (step.pages - last.pages) as f64 / width;
                right + last.miss_ratio_warm - step.miss_ratio_warm >= stride
            });
            if (far && kept.len() + 1 < points.max(2)) || index + 1 == count {
                kept.push(step);
            }
        }
        kept
    }

    /// The memory that `tags` tags occupy, rounded up.
    fn pages_of(&self, tags: u64) -> u64 {
        (tags as f64 * self.pages_per_tag).ceil() as u64
    }
}

/// The least number in `first..=last` for which `holds` is true. `holds` must be true for all
/// greater numbers, too, and for `last`.
fn least(mut first: u64, mut last: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while first < last {
        let middle = first + (last - first) / 2;
        if holds(middle) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    last
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The mean difference of the miss ratios of `a` and `b` over `sizes`, in pages; 0 if there are no
/// sizes.
pub fn mean_absolute_error(
    a: &Curve,
    b: &Curve,
    sizes: impl IntoIterator<Item = u64>,
    form: Form,
) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for pages in sizes {
        sum += (a.miss_ratio(pages, form) - b.miss_ratio(pages, form)).abs();
        count += 1.0;
    }
    ratio(sum, count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Layout;

    fn exact(cold: f64, distances: &[(u64, f64)]) -> Histogram {
        let mut histogram = Histogram::new(Layout::Exact);
        histogram.add_cold(cold);
        distances.iter().for_each(|&(distance, weight)| histogram.add(distance, weight));
        histogram
    }

    fn curve(cold: f64, distances: &[(u64, f64)], pages: u64) -> Curve {
        Curve::new(&exact(cold, distances), Granularity::new(pages).unwrap())
    }

    #[test]
    fn sizes_by_name() {
        // 10 cold references; 4 at distance 1, 5 at 3, 1 at 8; 32 pages per tag.
        let curve = curve(10.0, &[(1, 4.0), (3, 5.0), (8, 1.0)], 32);
        let cases = [
            (0, 10.0, 1.0, 1.0),
            (31, 10.0, 1.0, 1.0),
            (32, 6.0, 0.6, 0.8),
            (95, 6.0, 0.6, 0.8),
            (96, 1.0, 0.1, 0.55),
            (255, 1.0, 0.1, 0.55),
            (256, 0.0, 0.0, 0.5),
            (u64::MAX, 0.0, 0.0, 0.5),
        ];
        for (pages, misses, warm, total) in cases {
            assert_eq!(curve.misses(pages), misses, "{pages}");
            assert_eq!(curve.miss_ratio_warm(pages), warm, "{pages}");
            assert_eq!(curve.miss_ratio_total(pages), total, "{pages}");
        }
        assert_eq!(curve.pages_max(), 256);
        let warm =
            [(1.0, 0), (0.99, 32), (0.6, 32), (0.59, 96), (0.1, 96), (0.01, 256), (0.0, 256)];
        for (ratio, pages) in warm {
            assert_eq!(curve.inverse(ratio, Form::Warm), Some(pages), "{ratio}");
            assert_eq!(curve.working_set(ratio), pages, "{ratio}");
        }
        let total = [(0.8, Some(32)), (0.5, Some(256)), (0.49, None), (f64::NAN, None)];
        for (ratio, pages) in total {
            assert_eq!(curve.inverse(ratio, Form::Total), pages, "{ratio}");
        }
        let steps: Vec<_> = curve.steps().map(|step| (step.pages, step.miss_ratio_warm)).collect();
        assert_eq!(steps, [(0, 1.0), (32, 0.6), (96, 0.1), (256, 0.0)]);
    }

    #[test]
    fn nothing_misses_nothing() {
        let curve = curve(0.0, &[], 1);
        assert_eq!((curve.miss_ratio_warm(0), curve.miss_ratio_total(0)), (0.0, 0.0));
        assert_eq!((curve.working_set(0.01), curve.pages_max()), (0, 0));
        assert_eq!(curve.inverse(0.5, Form::Total), Some(0));
        assert_eq!(curve.resampled(100).len(), 1);
    }

    #[test]
    fn cold_references_alone_leave_the_warm_form_empty() {
        let curve = curve(5.0, &[], 1);
        assert_eq!((curve.miss_ratio_warm(0), curve.miss_ratio_total(9)), (0.0, 1.0));
        assert_eq!((curve.working_set(0.0), curve.inverse(0.9, Form::Total)), (0, None));
    }

    #[test]
    fn a_log_linear_bucket_falls_evenly() {
        // 1000..=1007
        let histogram = exact(0.0, &[(1000, 8.0)]).to_log_linear();
        let curve = Curve::new(&histogram, Granularity::PAGE);
        for (pages, misses) in [(999, 8.0), (1000, 7.0), (1003, 4.0), (1007, 0.0)] {
            assert_eq!(curve.misses(pages), misses, "{pages}");
        }
        assert_eq!(curve.working_set(0.5), 1003);
        assert_eq!(curve.pages_max(), 1007);
    }

    #[test]
    fn tags_may_have_a_fraction_of_pages() {
        let curve = Curve::with_pages_per_tag(&exact(0.0, &[(1, 1.0), (3, 1.0)]), 1.5);
        for (pages, misses) in [(1, 2.0), (2, 1.0), (4, 1.0), (5, 0.0)] {
            assert_eq!(curve.misses(pages), misses, "{pages}");
        }
        assert_eq!((curve.working_set(0.5), curve.working_set(0.0)), (2, 5));
    }

    #[test]
    fn the_error_is_the_mean_difference() {
        let (a, b) = (curve(0.0, &[(2, 1.0)], 1), curve(1.0, &[(4, 1.0)], 1));
        assert_eq!(mean_absolute_error(&a, &b, 1..=4, Form::Warm), 0.5);
        assert_eq!(mean_absolute_error(&a, &b, 1..=4, Form::Total), 0.625);
        assert_eq!(mean_absolute_error(&a, &b, [], Form::Warm), 0.0);
    }

    #[test]
    fn resampling_keeps_a_cliff() {
        let mut distances: Vec<_> = (1..=100_000).map(|distance| (distance, 0.001)).collect();
        distances[60_000].1 = 1000.0;
        let curve = curve(0.0, &distances, 1);
        let kept = curve.resampled(200);
        assert!(kept.len() <= 200);
        assert!(kept.iter().any(|step| step.pages == 60_001));
        assert_eq!((kept[0].pages, kept[kept.len() - 1].pages), (0, 100_000));
    }

    fn distances() -> impl Strategy<Value = Vec<(u64, f64)>> {
        let distance = prop_oneof![1..40_u64, 1..3000_u64];
        prop::collection::vec((distance, (0..9_u8).prop_map(f64::from)), 0..80)
    }

    proptest! {
        #[test]
        fn it_is_what_counting_says(
            distances in distances(), cold in 0..20_u8, per_tag in prop_oneof![
                Just(1.0), Just(32.0), 1.0..50.0,
            ], sizes in prop::collection::vec(0..100_000_u64, 20), ratio in 0.0..1.0,
        ) {
            let histogram = exact(f64::from(cold), &distances);
            let curve = Curve::with_pages_per_tag(&histogram, per_tag);
            let pages_of = |tags: u64| (tags as f64 * per_tag).ceil() as u64;
            let misses = |pages: u64| -> f64 {
                distances.iter().filter(|d| pages_of(d.0) > pages).map(|d| d.1).sum()
            };
            // Also at and just below each step.
            let around = distances.iter().flat_map(|d| [pages_of(d.0), pages_of(d.0) - 1]);
            for pages in sizes.into_iter().chain(around) {
                prop_assert_eq!(curve.misses(pages), misses(pages));
            }

            let warm = curve.warm();
            let least = std::iter::once(0).chain(distances.iter().map(|d| pages_of(d.0)))
                .filter(|&pages| misses(pages) <= ratio * warm).min();
            prop_assert_eq!(Some(curve.working_set(ratio)), least);
            let all = warm + f64::from(cold);
            let least = std::iter::once(0).chain(distances.iter().map(|d| pages_of(d.0)))
                .filter(|&pages| misses(pages) + f64::from(cold) <= ratio * all).min();
            prop_assert_eq!(curve.inverse(ratio, Form::Total), least);

            for step in curve.steps() {
                prop_assert_eq!(step.miss_ratio_warm, curve.miss_ratio_warm(step.pages));
                prop_assert_eq!(step.miss_ratio_total, curve.miss_ratio_total(step.pages));
            }
        }

        #[test]
        fn log_linear_answers_lie_within_a_64th(
            distances in distances(), pages in 0..4000_u64, ratio in 0.0..1.0,
        ) {
            let histogram = exact(0.0, &distances);
            let truth = Curve::new(&histogram, Granularity::PAGE);
            let coarse = Curve::new(&histogram.to_log_linear(), Granularity::PAGE);
            let slack = pages / 64 + 1;
            prop_assert!(coarse.misses(pages) <= truth.misses(pages.saturating_sub(slack)) + 1e-9);
            prop_assert!(coarse.misses(pages) >= truth.misses(pages + slack) - 1e-9);
            let (set, expected) = (coarse.working_set(ratio), truth.working_set(ratio));
            prop_assert!(set.abs_diff(expected) <= expected / 64 + 1, "{} {}", set, expected);
        }

        #[test]
        fn resampled_stays_near(distances in distances(), points in 0..60_usize) {
            let curve = curve(3.0, &distances, 4);
            let kept = curve.resampled(points);
            prop_assert!(kept.len() <= points.max(2));
            let mut all = curve.steps();
            prop_assert!(kept.iter().all(|step| all.any(|one| one == *step)), "in order, and real");
            if points > 2 {
                for step in curve.steps() {
                    let at = kept.iter().rfind(|kept| kept.pages <= step.pages).unwrap();
                    let off = at.miss_ratio_warm - step.miss_ratio_warm;
                    prop_assert!((0.0..=2.0 / (points - 2) as f64 + 1e-9).contains(&off), "{}", off);
                }
            }
        }
    }
}
