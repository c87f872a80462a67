//! SHARDS with a fixed number of samples: constant memory for any footprint.
//!
//! Idea: begins with every tag sampled. When there are more samples than allowed, those with the
//! greatest hashes are removed, and the threshold falls below their hashes: the rate follows the
//! footprint. A reference counts with the rate of its time, at a distance scaled by the rate of its
//! time, so earlier counts do not change when the threshold falls. As in [`Shards`](super::Shards)
//! the rate is the measured ratio of sampled to all different tags; these are counted in constant
//! memory, with an error of 0.33 %.
//!
//! Cost: 5–10 cycles for each reference for filter and counting, O(log n) for sampled ones. Memory:
//! about 150 bytes for each sample, 64 KiB to count different tags, 8 KiB for each octave of
//! distances. Source: Waldspurger 2015 §3.2, where the histogram is rescaled whenever the threshold
//! falls; adding the weight of the time instead is ours. Limits: as long as all tags are sampled it
//! is exact, except that distances above 2,047 are rounded by less than 1/2,048 of themselves.

use crate::distinct::Distinct;
use crate::log_linear::LogLinear;
use crate::shards::Estimates;
use crate::shards::rank_window::RankWindow;
use crate::shards::threshold::Threshold;
use crate::{Engine, EngineName, Full, Granularity, Histogram};

/// Tags that are filtered together; few, because all of them use the number of different tags at
/// their end.
const BLOCK: usize = 256;

/// SHARDS with a fixed number of samples.
#[derive(Clone, Debug)]
pub struct ShardsFixedSize {
    threshold: Threshold,
    window: RankWindow,
    /// By estimated distance.
    weights: LogLinear<10>,
    cold: f64,
    references: u64,
    distinct: Distinct,
    distinct_at_start: f64,
    /// Whether the number of different tags before a regrouping is unknown.
    is_distinct_partial: bool,
    sampled: Vec<u64>,
}

impl ShardsFixedSize {
    /// The number of samples that the paper finds enough: a mean error of about 0.01.
    pub const SAMPLES_DEFAULT: usize = 8192;
    /// The greatest number of samples; where more would be needed, a fixed rate is better.
    pub const SAMPLES_MAX: usize = 1 << 24;

    /// At most `samples_max` samples, selected by `seed`. `samples_max` is from 1 to
    /// [`Self::SAMPLES_MAX`]; other values become the nearest of these.
    #[must_use]
    pub fn new(samples_max: usize, seed: u64) -> Self {
        let samples_max = samples_max.clamp(1, Self::SAMPLES_MAX);
        Self {
            threshold: Threshold::new(samples_max, seed),
            window: RankWindow::new(),
            weights: LogLinear::default(),
            cold: 0.0,
            references: 0,
            distinct: Distinct::constant(seed),
            distinct_at_start: 0.0,
            is_distinct_partial: false,
            sampled: Vec::with_capacity(BLOCK),
        }
    }

    /// The rate to which the threshold has fallen.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.threshold.rate()
    }

    /// The number of tags that are sampled now.
    #[must_use]
    pub fn sampled_distinct(&self) -> u64 {
        self.window.len() as u64
    }

    fn distinct_all(&self) -> f64 {
        let sampled = self.window.len() as f64;
        if self.threshold.is_all() {
            return sampled;
        }
        let counted = self.distinct.count().max(sampled);
        if self.is_distinct_partial { counted.max(sampled / self.rate()) } else { counted }
    }

    fn sample(&mut self, tag: u64) {
        if !self.threshold.has(tag) {
            return;
        }
        let position = self.window.reference(tag);
        let (distinct, sampled) = (self.distinct_all(), self.window.len() as f64);
        let weight = distinct / sampled;
        if let Some(position) = position {
            let stretch = if sampled > 1.0 { (distinct - 1.0) / (sampled - 1.0) } else { weight };
            let distance = 1.0 + f64::from(position - 1) * stretch;
            self.weights.add(distance.round() as u64, weight);
            return;
        }
        self.cold += weight;
        self.threshold.admit(tag, |gone| self.window.remove(gone));
    }
}

impl Engine for ShardsFixedSize {
    fn name(&self) -> EngineName {
        EngineName::ShardsFixedSize
    }

    fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        for block in tags.chunks(BLOCK) {
            let mut sampled = std::mem::take(&mut self.sampled);
            self.threshold.sift(block, &mut sampled);
            self.distinct.note(block);
            sampled.drain(..).for_each(|tag| self.sample(tag));
            self.sampled = sampled;
            self.references += block.len() as u64;
        }
        Ok(())
    }

    fn references(&self) -> u64 {
        self.references
    }

    fn distinct(&self) -> u64 {
        self.distinct_all().round() as u64
    }

    fn histogram(&self) -> Option<Histogram> {
        let references = self.references as f64;
        let cold = if self.threshold.is_all() || self.is_distinct_partial {
            self.cold
        } else {
            self.distinct_all() - self.distinct_at_start
        };
        let cold = cold.clamp(0.0, references);
        let mut estimates = Estimates::default();
        self.weights.middles().for_each(|(distance, weight)| estimates.push(distance, weight));
        estimates.correct(references - cold);
        Some(estimates.into_histogram(cold))
    }

    fn start_interval(&mut self) {
        self.weights.clear();
        self.cold = 0.0;
        self.references = 0;
        self.distinct_at_start = self.distinct_all();
    }

    /// As in [`Shards`](super::Shards): the sampled order continues with coarser tags; with finer
    /// ones everything starts over.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full> {
        let mut order = Vec::new();
        if to < from {
            self.threshold.finer((from.pages() / to.pages()).ilog2());
            self.distinct.clear();
            self.is_distinct_partial = false;
        } else {
            let bits = (to.pages() / from.pages()).ilog2();
            self.is_distinct_partial |= !self.distinct.coarser(bits);
            order = from.regroup(to, &self.window.order());
            self.threshold.coarser(bits, &mut order);
        }
        self.window = RankWindow::new();
        for tag in order.into_iter().rev() {
            self.window.reference(tag);
        }
        self.start_interval();
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let sampled = self.sampled.capacity() * size_of::<u64>();
        sampled as u64
            + self.threshold.memory_bytes()
            + self.window.memory_bytes()
            + self.weights.memory_bytes()
            + self.distinct.memory_bytes()
    }
}
