//! SHARDS with a fixed rate: each tag is sampled with the same probability.
//!
//! Idea: sampled references go through an exact stack. Their distances are counted unscaled and are
//! scaled only when the histogram is requested, because the factor is known best at the end.
//!
//! There are three ways of [`Scaling`]. The plain one divides by the rate. SHARDS-adj adds the
//! missing references to the first bucket (or removes the excess), because what is missing are hot
//! tags. But the number of sampled tags varies, too: if 1.05 R of a scan's tags are sampled, its
//! distances are 5 % too long, and no reference is missing. So our default measures the ratio:
//!
//! ```text
//! ratio    = sampled distinct / distinct              counted: see below
//! distance = 1 + (sampled distance − 1) (distinct − 1) / (sampled distinct − 1)
//! weight   = 1 / ratio, cold references as counted, the difference to all at the shortest distances
//! ```
//!
//! The nearest distance stays 1 and the farthest is the number of all tags, so a scan is exact.
//! Mean absolute errors over all sizes, R = 0.01, seeds 1–3 (`examples/sampling_error.rs`):
//!
//! | stream                     | plain               | adjusted            | measured            |
//! |----------------------------|---------------------|---------------------|---------------------|
//! | Zipf(0.9), 964 k of 1 M    | .0645  .0319  .0516 | .0013  .0022  .0023 | .0017  .0022  .0028 |
//! | scan, 300 k                | .0002  .0002  .0002 | .0002  .0002  .0002 | .0000  .0000  .0000 |
//! | phases, 1.35 M             | .0064  .0148  .0705 | .0010  .0017  .0013 | .0007  .0021  .0020 |
//!
//! Over twelve seeds adjusted and measured were about the same on Zipf, .0019 and .0020 (at most
//! .0045 and .0040), and on phases, .0008 and .0009 (at most .0017 and .0021); plain had .062 and
//! .017. On a run of tags all three are good because the hash spreads the run evenly. For tags in
//! random places that are scanned, the measured ratio is far better (`tests/it/sampling.rs`).
//!
//! A program with few tags has few samples, and chance decides its curve. So an engine made
//! [`with_samples_min`](Shards::with_samples_min) begins with every tag sampled, and halves its
//! rate only if that leaves enough samples, until it reaches the wanted rate. What was counted
//! before is scaled with the ratio of its time.
//!
//! Cost: 0.6 to 2.6 ns for each reference in the filter (`src/shards/filter.rs`), 0.2 ns on a scan,
//! where blocks of consecutive tags are not hashed (`src/shards/scan.rs`), and `R` times the
//! stack's cost. Memory: up to 80 bytes for each sampled tag, in the stack, its counts and the
//! table of tags' numbers; and while tags are dense a bit for each tag, at most 16 MiB or, if that
//! is more, 16 bits for each different tag; 64 KiB when they are not dense (`src/distinct.rs`).
//! Source: Waldspurger 2015 §3; measuring the ratio is ours. Limits: below some hundreds of sampled
//! tags chance decides; see [`Aet`](crate::Aet) for that case.

use crate::distinct::Distinct;
use crate::hash::TagHash;
use crate::index::TagIndex;
use crate::log_linear::LogLinear;
use crate::shards::scan::Walk;
use crate::shards::{Estimates, filter};
use crate::{COLD, Engine, EngineName, Exact, Full, Granularity, Histogram, Stack};

/// Tags that are filtered together: 8 KiB, which stay in the nearest cache.
const BLOCK: usize = 1024;
/// Sampled references that are collected before they go through the stack.
const SAMPLED_MAX: usize = 1024;

/// The share of tags that are sampled: above 0, at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct SampleRate(f64);

impl SampleRate {
    /// Every tag.
    pub const ALL: Self = Self(1.0);
    /// One tag in a hundred, the default: ten times the speed of `exact`, and errors of about 0.002
    /// with a million tags.
    pub const DEFAULT: Self = Self(0.01);

    /// The rate `rate`; `None` unless it is at least 2^-32 and at most 1.
    #[must_use]
    pub fn new(rate: f64) -> Option<Self> {
        (2_f64.powi(-32)..=1.0).contains(&rate).then_some(Self(rate))
    }

    /// The rate.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// The greatest hash that is sampled.
    fn limit(self) -> u64 {
        // If the product is 2^64, which is beyond u64, the conversion saturates.
        (self.0 * 2_f64.powi(64)) as u64
    }
}

impl std::fmt::Display for SampleRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// How sampled references are scaled to all references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// Counts are divided by the rate.
    Plain,
    /// In addition, missing references are added to the first bucket: SHARDS-adj.
    Adjusted,
    /// By the measured ratio of sampled to all different tags: the default.
    Measured,
}

/// SHARDS with a fixed rate, above the exact stack `S`.
#[derive(Clone, Debug)]
pub struct Shards<S = Exact> {
    rate: SampleRate,
    /// The rate falls to this one, while at least so many samples are left.
    rate_min: SampleRate,
    samples_min: u64,
    hash: TagHash,
    /// Walks along the samples of scans.
    walk: Option<Walk>,
    /// The numbers of sampled tags, so that the stack's tags are dense.
    index: TagIndex,
    stack: S,
    /// By distance among sampled tags; `counts[0]` is the number of cold references.
    counts: Vec<u64>,
    /// What was counted in this interval at higher rates, by estimated distance; and the weight of
    /// cold references.
    earlier: LogLinear<10>,
    earlier_cold: f64,
    references: u64,
    distinct: Distinct,
    distinct_at_start: f64,
    /// Whether the number of different tags before a regrouping is unknown.
    is_distinct_partial: bool,
    sampled: Vec<u64>,
}

impl Shards<Exact> {
    /// With this many samples the mean error of a curve is within 0.005 (`tests/it/sampling.rs`).
    pub const SAMPLES_MIN_DEFAULT: u64 = 2048;

    /// Samples tags at `rate`; `seed` selects them.
    #[must_use]
    pub fn new(rate: SampleRate, seed: u64) -> Self {
        Self::with_stack(Exact::new(), rate, seed)
    }
}

impl<S: Stack> Shards<S> {
    /// Samples tags at `rate`; `seed` selects them.
    ///
    /// # Panics
    /// If `stack` is not empty: its tags would be taken for numbers of sampled ones.
    #[must_use]
    pub fn with_stack(stack: S, rate: SampleRate, seed: u64) -> Self {
        assert!(stack.is_empty(), "the stack has {} tags, expected an empty one", stack.len());
        let hash = TagHash::new(seed);
        Self {
            rate,
            rate_min: rate,
            samples_min: 0,
            hash,
            walk: Walk::new(hash, rate.limit()),
            index: TagIndex::default(),
            stack,
            counts: vec![0],
            earlier: LogLinear::default(),
            earlier_cold: 0.0,
            references: 0,
            distinct: Distinct::new(seed),
            distinct_at_start: 0.0,
            is_distinct_partial: false,
            sampled: Vec::with_capacity(SAMPLED_MAX + BLOCK),
        }
    }

    /// Samples every tag at first, and lowers the rate only while at least `samples_min` samples
    /// are left.
    #[must_use]
    pub fn with_samples_min(mut self, samples_min: u64) -> Self {
        self.samples_min = samples_min;
        if samples_min > 0 {
            self.rate = SampleRate::ALL;
            self.walk = Walk::new(self.hash, self.rate.limit());
        }
        self
    }

    /// The current rate.
    #[must_use]
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// The histogram as in [`Engine::histogram`], with a given way of scaling.
    #[must_use]
    pub fn histogram_by(&self, scaling: Scaling) -> Histogram {
        let by_rate = 1.0 / self.rate.get();
        let (stretch, weight) = match scaling {
            Scaling::Measured => self.measured(),
            Scaling::Plain | Scaling::Adjusted => (by_rate, by_rate),
        };
        let mut points: Vec<(f64, f64)> = self.earlier.middles().collect();
        for (distance, &count) in self.counts.iter().enumerate().skip(1) {
            let distance = match scaling {
                Scaling::Measured => 1.0 + (distance - 1) as f64 * stretch,
                Scaling::Plain | Scaling::Adjusted => distance as f64 * stretch,
            };
            points.push((distance, count as f64 * weight));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut estimates = Estimates::default();
        for (distance, weight) in points {
            estimates.push(distance, weight);
        }
        let references = self.references as f64;
        let cold = match scaling {
            Scaling::Measured if !self.is_distinct_partial => {
                self.distinct.count() - self.distinct_at_start
            }
            _ => self.earlier_cold + self.counts[COLD as usize] as f64 * weight,
        };
        if scaling == Scaling::Plain {
            return estimates.into_histogram(cold);
        }
        let cold = cold.clamp(0.0, references);
        if self.stack.is_empty() {
            // It is only known that they need no more than all tags.
            estimates.push(self.distinct_all(), references - cold);
        } else {
            estimates.correct(references - cold);
        }
        estimates.into_histogram(cold)
    }

    /// The number of different tags.
    fn distinct_all(&self) -> f64 {
        let counted = self.distinct.count();
        match self.is_distinct_partial {
            true => counted.max(self.stack.len() as f64 / self.rate.get()),
            false => counted,
        }
    }

    /// The factors for distances, and for counts.
    fn measured(&self) -> (f64, f64) {
        let by_rate = 1.0 / self.rate.get();
        let (distinct, sampled) = (self.distinct_all(), self.stack.len() as f64);
        let ratio = |all: f64, part: f64| if part > 0.0 { (all / part).max(1.0) } else { by_rate };
        (ratio(distinct - 1.0, sampled - 1.0), ratio(distinct, sampled))
    }

    /// Passes the collected references through the stack, up to the first one without room.
    fn flush(&mut self) -> Result<(), Full> {
        let (mut numbered, mut result) = (0, Ok(()));
        for tag in &mut self.sampled {
            match self.index.number(*tag) {
                Ok((number, _)) => *tag = u64::from(number),
                Err(full) => {
                    result = Err(full);
                    break;
                }
            }
            numbered += 1;
        }
        let (_, counted) = self.stack.count(&self.sampled[..numbered], &mut self.counts);
        self.sampled.clear();
        counted.and(result)
    }

    /// Halves the rate while there are enough samples.
    fn lower_rate(&mut self) -> Result<(), Full> {
        while self.rate > self.rate_min && self.stack.len() / 2 >= self.samples_min {
            self.keep_counts();
            self.rate = SampleRate((self.rate.get() / 2.0).max(self.rate_min.get()));
            let numbers = self.stack.order();
            let order = numbers.into_iter().map(|number| self.index.tag(number as u32)).collect();
            self.sample_from(order)?;
        }
        Ok(())
    }

    /// Scales what was counted with the present ratio, before the ratio changes.
    fn keep_counts(&mut self) {
        let (stretch, weight) = self.measured();
        for (distance, &count) in self.counts.iter().enumerate().skip(1) {
            let distance = 1.0 + (distance - 1) as f64 * stretch;
            self.earlier.add(distance.round() as u64, count as f64 * weight);
        }
        self.earlier_cold += self.counts[COLD as usize] as f64 * weight;
    }

    /// Continues with those of `order` (the latest first) that are sampled at the present rate, and
    /// with empty counts.
    fn sample_from(&mut self, mut order: Vec<u64>) -> Result<(), Full> {
        let limit = self.rate.limit();
        self.walk = Walk::new(self.hash, limit);
        order.retain(|&tag| self.hash.of(tag) <= limit);
        self.index = TagIndex::default();
        for &tag in &order {
            self.index.number(tag)?;
        }
        let numbers: Vec<u64> = (0..order.len() as u64).collect();
        self.stack.restore(&numbers)?;
        self.counts = vec![0; order.len() + 1];
        Ok(())
    }
}

impl<S: Stack> Engine for Shards<S> {
    fn name(&self) -> EngineName {
        EngineName::Shards
    }

    /// When the stack is full, distances are counted up to the sampled reference without room.
    /// References and different tags are counted to the end of the block in which that becomes
    /// known, at most about `2,048 / R` references later, and the histogram scales the samples to
    /// them, too.
    fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        for block in tags.chunks(BLOCK) {
            let limit = self.rate.limit();
            match &mut self.walk {
                Some(walk) if filter::is_scan(block) => {
                    walk.sift(block, &mut self.sampled);
                    self.distinct.note_scan(block);
                }
                _ => {
                    filter::sift(block, self.hash, limit, &mut self.sampled);
                    self.distinct.note(block);
                }
            }
            self.references += block.len() as u64;
            if self.sampled.len() >= SAMPLED_MAX {
                self.flush()?;
                self.lower_rate()?;
            }
        }
        self.flush()?;
        self.lower_rate()
    }

    fn references(&self) -> u64 {
        self.references
    }

    fn distinct(&self) -> u64 {
        self.distinct_all().round() as u64
    }

    fn histogram(&self) -> Option<Histogram> {
        Some(self.histogram_by(Scaling::Measured))
    }

    fn start_interval(&mut self) {
        self.counts.fill(0);
        self.earlier.clear();
        self.earlier_cold = 0.0;
        self.references = 0;
        self.distinct_at_start = self.distinct.count();
    }

    /// Coarser tags are sampled if their first member was, so the sampled order continues; coarse
    /// tags whose first member was never referenced come in as new. With finer tags everything
    /// starts over: the order of few coarse tags says too little about them.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full> {
        let mut order = Vec::new();
        if to < from {
            self.hash.finer((from.pages() / to.pages()).ilog2());
            if self.samples_min > 0 {
                self.rate = SampleRate::ALL;
            }
            self.distinct.clear();
            self.is_distinct_partial = false;
        } else {
            let bits = (to.pages() / from.pages()).ilog2();
            self.hash.coarser(bits);
            self.is_distinct_partial |= !self.distinct.coarser(bits);
            let tags = self.stack.order().into_iter().map(|number| self.index.tag(number as u32));
            order = from.regroup(to, &tags.collect::<Vec<_>>());
        }
        self.sample_from(order)?;
        self.start_interval();
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let words = self.counts.capacity() + self.sampled.capacity();
        (words * size_of::<u64>()) as u64
            + self.index.memory_bytes()
            + self.stack.memory_bytes()
            + self.earlier.memory_bytes()
            + self.distinct.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::List;
    use crate::stack::testing::BoundedList;

    #[test]
    fn what_came_before_it_was_full_is_counted() {
        let mut shards = Shards::with_stack(BoundedList(List::new(), 1500), SampleRate::ALL, 1);
        let tags: Vec<u64> = [7, 7].into_iter().chain(0..5000).collect();
        assert_eq!(shards.record(&tags), Err(Full));
        // The second 7, and the tag in its place: by then 0 to 6 are nearer.
        let histogram = shards.histogram_by(Scaling::Plain);
        assert_eq!((histogram.cold(), histogram.warm()), (1500.0, 2.0));
        assert_eq!((histogram.weight_at(1), histogram.weight_at(8)), (1.0, 1.0));
        // That became known only after the second block.
        assert_eq!((shards.references(), shards.stack.len()), (2048, 1500));
        assert_eq!(shards.histogram().map(|histogram| histogram.references()), Some(2048.0));
    }

    #[test]
    fn scans_are_sampled_as_tag_by_tag() {
        let rate = SampleRate::new(0.02).unwrap();
        let (mut in_blocks, mut one_by_one) = (Shards::new(rate, 3), Shards::new(rate, 3));
        let tags: Vec<u64> =
            (0..9000).chain(100..3300).chain((0..4000).rev()).chain(50..9050).collect();
        for (from, to) in [(1, 1), (1, 8), (8, 2)] {
            let (from, to) = (Granularity::new(from).unwrap(), Granularity::new(to).unwrap());
            in_blocks.regroup(from, to).unwrap();
            one_by_one.regroup(from, to).unwrap();
            in_blocks.record(&tags).unwrap();
            tags.iter().for_each(|tag| one_by_one.record(&[*tag]).unwrap());
            assert!(in_blocks.stack.len() > 100);
            assert_eq!(in_blocks.counts, one_by_one.counts);
            assert_eq!(in_blocks.distinct(), one_by_one.distinct());
            assert_eq!(in_blocks.histogram(), one_by_one.histogram());
        }
    }

    #[test]
    #[should_panic(expected = "the stack has 1 tags, expected an empty one")]
    fn a_stack_with_tags_is_refused() {
        let mut stack = List::new();
        stack.reference(&[3], &mut [0]).unwrap();
        let _ = Shards::with_stack(stack, SampleRate::ALL, 1);
    }
}
