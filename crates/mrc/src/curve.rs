//! Miss ratios of every memory size.
//!
//! Idea: a reference at distance `d` misses in memory of fewer than `d` tags, so the miss curve is
//! the histogram summed from its far end: `misses(m) = Σ_{d > m/G} Hist[d]` (MEB §3.1). Two forms:
//! *warm* leaves cold references out of numerator and denominator, *total* has them in both. Cold
//! references miss in every memory, so sizing goes by the warm form.
//!
//! Within a log-linear bucket references are taken to lie evenly over its distances.
//!
//! Cost: building is O(buckets), 24 bytes each; a question is one binary search.
//! Source: Mattson 1970; MEB §3.1, §3.4 (the inverse). The error between curves is that of
//! Waldspurger 2015 §4.2.
//! Limits: sizes are pages, and a tag is in memory whole or not at all.

use crate::{Bucket, Granularity, Histogram};

/// Which references a miss ratio is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Those to tags seen before.
    Warm,
    /// All: a tag's first reference is a miss in every memory.
    Total,
}

/// A size at which the curve falls, and what holds from there to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The size in pages.
    pub pages: u64,
    /// Misses among warm references, as a ratio of these.
    pub miss_ratio_warm: f64,
    /// Misses among all references, as a ratio of these.
    pub miss_ratio_total: f64,
}

/// Distances between `first` and `last`, in tags.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fall {
    first: u64,
    last: u64,
    /// Warm misses from `last` tags on.
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
    /// When `pages_per_tag` is not positive and finite.
    #[must_use]
    pub fn with_pages_per_tag(histogram: &Histogram, pages_per_tag: f64) -> Self {
        assert!(pages_per_tag > 0.0 && pages_per_tag.is_finite(), "a tag has pages");
        Self::of(histogram.buckets(), histogram.cold(), pages_per_tag)
    }

    /// The curve of rising buckets.
    pub(crate) fn of(
        buckets: impl DoubleEndedIterator<Item = Bucket>,
        cold: f64,
        pages_per_tag: f64,
    ) -> Self {
        // From the far end, so that small sums are not lost in great ones and the last is 0.
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

    /// The weight of cold references, which are misses of every size.
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
        let tags = self.tags_of(pages);
        // The falls before `next` lie wholly within `tags`.
        let next = self.falls.partition_point(|fall| fall.last <= tags);
        let before = next.checked_sub(1).map_or(self.warm, |index| self.falls[index].misses);
        match self.falls.get(next) {
            Some(fall) if tags >= fall.first => {
                let part = (tags - fall.first + 1) as f64 / (fall.last - fall.first + 1) as f64;
                before - (before - fall.misses) * part
            }
            _ => before,
        }
    }

    /// [`Self::misses`] as a ratio of warm references; 0 when there are none.
    #[must_use]
    pub fn miss_ratio_warm(&self, pages: u64) -> f64 {
        ratio(self.misses(pages), self.warm)
    }

    /// Misses, cold ones included, as a ratio of all references; 0 when there are none.
    #[must_use]
    pub fn miss_ratio_total(&self, pages: u64) -> f64 {
        ratio(self.misses(pages) + self.cold, self.warm + self.cold)
    }

    /// The miss ratio of `pages` of memory, in either form.
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

    /// The least memory, in pages, whose miss ratio is at most `miss_ratio`: `MRC⁻¹` of MEB §3.4.
    /// `None` when no memory is enough, as cold references alone are more.
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
        let (mut least, mut most) = (fall.first, fall.last);
        while least < most {
            let middle = least + (most - least) / 2;
            if enough(middle) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        Some(self.pages_of(most))
    }

    /// The curve from 0 pages on, one [`Step`] for each size at which it falls; of a log-linear
    /// bucket, for its end.
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

    /// At most `points` of the [`steps`](Self::steps) (but at least the first and the last), for
    /// plots drawn as steps. Between two of them the curve falls by less than `2 / (points − 2)` of
    /// its height, or they are neighbours.
    #[must_use]
    pub fn resampled(&self, points: usize) -> Vec<Step> {
        let count = self.falls.len() + 1;
        if count <= points.max(2) {
            return self.steps().collect();
        }
        // Along the curve both ways across the plot count the same: width 1 and height 1.
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

    /// How many tags fit in `pages`: the greatest number whose [`Self::pages_of`] is not above.
    fn tags_of(&self, pages: u64) -> u64 {
        let mut tags = (pages as f64 / self.pages_per_tag) as u64;
        while tags > 0 && self.pages_of(tags) > pages {
            tags -= 1;
        }
        while self.pages_of(tags.saturating_add(1)) <= pages && tags < u64::MAX {
            tags += 1;
        }
        tags
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The mean of how far the miss ratios of `a` and `b` lie apart at `sizes`, in pages; 0 at none.
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
