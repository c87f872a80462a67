//! AET: stack distances from reuse times, without keeping any order of tags.
//!
//! Idea: for each reference, the number of references since its tag was last used is counted (its
//! reuse time `t`). Let `P(x)` be the share of references whose reuse time is above `x`. A tag that
//! was used `x` references ago has not been used since then with probability `P(x)`, so in `t`
//! references
//!
//! ```text
//! d(t) = Σ P(x) over 0 ≤ x < t
//! ```
//!
//! different tags are used on average, and that is the expected stack distance. In the paper's
//! words: an average eviction time of `t` belongs to a cache of `d(t)`.
//!
//! Tags can be sampled by their hash, a fixed number of them as in
//! [`ShardsFixedSize`](crate::ShardsFixedSize), with the same weights and correction. But their
//! reuse times are counted in all references, so sampling affects only how many references have
//! each reuse time. It needs no distances among the few sampled tags, which are the coarser the
//! fewer there are. So it is better than SHARDS at sizes that hold few samples, and no better at
//! larger ones.
//!
//! Cost: a table look-up for each reference; if sampled, 5–10 cycles. Memory: 20 to 60 bytes for
//! each tag, or 100 for each sampled one, and 64 KiB to count different tags. Source: Hu, Wang, Li,
//! Zhou, Luo, Ding, Jiang, Wang: Kinetic Modeling of Data Eviction in Cache, ATC 2016. The paper
//! samples references; with the same number picked by the hash of their tags, and corrected, the
//! error was a third. Limits: assumes that references do not depend on their place in time, so
//! phases blur: the error on a mix of phases is 0.025 without any sampling
//! (`examples/sampling_error.rs`). Reuse times are kept in 64 buckets per octave, so distances are
//! off by up to 1/128 of themselves.

use hashbrown::HashMap;

use crate::distinct::Distinct;
use crate::index::TagIndex;
use crate::log_linear::LogLinear;
use crate::shards::Estimates;
use crate::shards::threshold::Threshold;
use crate::{Engine, EngineName, Full, Granularity, Histogram, TAGS_MAX};

/// Reuse times.
type ReuseTimes = LogLinear<6>;

/// Tags that are filtered together.
const BLOCK: usize = 256;

/// Average eviction time.
#[derive(Clone, Debug)]
pub struct Aet {
    /// References since the first one.
    now: u64,
    references: u64,
    cold: f64,
    reused: ReuseTimes,
    tracked: Tracked,
}

#[derive(Clone, Debug)]
enum Tracked {
    All { index: TagIndex, last: Vec<u64> },
    Some(Box<Sample>),
}

impl Default for Aet {
    fn default() -> Self {
        Self::new()
    }
}

impl Aet {
    /// The number of samples for which [`sampled`](Self::sampled) is good.
    pub const SAMPLES_DEFAULT: usize = 512;
    /// The greatest number of samples.
    pub const SAMPLES_MAX: usize = 1 << 20;

    /// Counts the reuse times of all tags.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Tracked::All { index: TagIndex::default(), last: Vec::new() })
    }

    /// Counts the reuse times of at most `samples_max` tags, picked by `seed`. `samples_max` is
    /// from 1 to [`Self::SAMPLES_MAX`]; other values become the nearest of these.
    #[must_use]
    pub fn sampled(samples_max: usize, seed: u64) -> Self {
        let samples_max = samples_max.clamp(1, Self::SAMPLES_MAX);
        Self::with(Tracked::Some(Box::new(Sample::new(samples_max, seed))))
    }

    fn with(tracked: Tracked) -> Self {
        Self { now: 0, references: 0, cold: 0.0, reused: ReuseTimes::default(), tracked }
    }

    /// The weight of cold references since the interval started.
    fn cold(&self) -> f64 {
        match &self.tracked {
            Tracked::All { .. } => self.cold,
            Tracked::Some(sample) if sample.threshold.is_all() => self.cold,
            Tracked::Some(sample) => {
                let new = sample.distinct_all() - sample.distinct_at_start;
                new.clamp(0.0, self.references as f64)
            }
        }
    }

    /// The weight of each reuse time, in buckets, scaled to the sum of all warm references. As in
    /// [`Estimates::correct`], what is missing or too much belongs to hot tags.
    fn corrected(&self, warm: f64) -> Vec<f64> {
        let mut weights = self.reused.weights().to_vec();
        let mut too_much = weights.iter().sum::<f64>() - warm;
        if too_much < 0.0 {
            weights.resize(weights.len().max(2), 0.0);
            weights[1] -= too_much;
        }
        for weight in &mut weights {
            let taken = too_much.clamp(0.0, *weight);
            *weight -= taken;
            too_much -= taken;
        }
        weights
    }
}

impl Engine for Aet {
    fn name(&self) -> EngineName {
        EngineName::Aet
    }

    fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        match &mut self.tracked {
            Tracked::All { index, last } => {
                for &tag in tags {
                    let (number, is_new) = index.number(tag)?;
                    if is_new {
                        last.push(self.now);
                        self.cold += 1.0;
                    } else {
                        let before = std::mem::replace(&mut last[number as usize], self.now);
                        self.reused.add(self.now - before, 1.0);
                    }
                    self.now += 1;
                    self.references += 1;
                }
            }
            Tracked::Some(sample) => {
                for block in tags.chunks(BLOCK) {
                    self.cold += sample.record(block, self.now, &mut self.reused);
                    self.now += block.len() as u64;
                    self.references += block.len() as u64;
                }
            }
        }
        Ok(())
    }

    fn references(&self) -> u64 {
        self.references
    }

    fn distinct(&self) -> u64 {
        match &self.tracked {
            Tracked::All { index, .. } => index.len(),
            Tracked::Some(sample) => sample.distinct_all().round() as u64,
        }
    }

    fn histogram(&self) -> Option<Histogram> {
        let (all, cold) = (self.references as f64, self.cold());
        let (weights, distinct) = (self.corrected(all - cold), (self.distinct() as f64).max(1.0));
        // `P` at the start of the bucket, and `d`.
        let (mut share, mut distance) = (1.0, 0.0);
        let mut estimates = Estimates::default();
        for (index, &weight) in weights.iter().enumerate() {
            let width = ReuseTimes::span(index).1 as f64;
            let (fall, half) = (weight / all, (width - 1.0) / 2.0);
            let middle = distance + half * share - fall * half * (half + 1.0) / (2.0 * width);
            estimates.push(middle.clamp(1.0, distinct), weight);
            distance += width * share - fall * (width + 1.0) / 2.0;
            share = (share - fall).max(0.0);
        }
        Some(estimates.into_histogram(cold))
    }

    fn start_interval(&mut self) {
        self.reused.clear();
        self.references = 0;
        self.cold = 0.0;
        if let Tracked::Some(sample) = &mut self.tracked {
            sample.distinct_at_start = sample.distinct_all();
        }
    }

    /// A coarser tag was last used when the last of its members was. Finer tags were all used when
    /// the coarse one was. Sampled tags start over in both cases.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full> {
        match &mut self.tracked {
            Tracked::All { index, last } => {
                // Checked before they are made: each coarse tag may become 2^20 finer ones.
                let parts = (from.pages() / to.pages()).max(1);
                if index.len().saturating_mul(parts) > TAGS_MAX {
                    return Err(Full);
                }
                let mut order: Vec<u32> = (0..last.len() as u32).collect();
                order.sort_unstable_by_key(|&number| std::cmp::Reverse(last[number as usize]));
                let (mut index_new, mut last_new) = (TagIndex::default(), Vec::new());
                for number in order {
                    for tag in from.regroup(to, &[index.tag(number)]) {
                        if index_new.number(tag)?.1 {
                            last_new.push(last[number as usize]);
                        }
                    }
                }
                (*index, *last) = (index_new, last_new);
            }
            Tracked::Some(sample) => sample.begin(),
        }
        self.start_interval();
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.reused.memory_bytes()
            + match &self.tracked {
                Tracked::All { index, last } => {
                    index.memory_bytes() + (last.capacity() * size_of::<u64>()) as u64
                }
                Tracked::Some(sample) => sample.memory_bytes(),
            }
    }
}

/// Tags sampled by their hash, and when each was last used.
#[derive(Clone, Debug)]
struct Sample {
    threshold: Threshold,
    last: HashMap<u64, u64>,
    distinct: Distinct,
    distinct_at_start: f64,
    sampled: Vec<u64>,
}

impl Sample {
    fn new(samples_max: usize, seed: u64) -> Self {
        Self {
            threshold: Threshold::new(samples_max, seed),
            last: HashMap::new(),
            distinct: Distinct::constant(seed),
            distinct_at_start: 0.0,
            sampled: Vec::with_capacity(BLOCK),
        }
    }

    /// Forgets all tags.
    fn begin(&mut self) {
        self.threshold.begin();
        self.last.clear();
        self.distinct.clear();
    }

    fn distinct_all(&self) -> f64 {
        let sampled = self.last.len() as f64;
        if self.threshold.is_all() { sampled } else { self.distinct.count().max(sampled) }
    }

    /// Counts a block whose first reference is at `now`; returns the weight of cold references.
    fn record(&mut self, block: &[u64], now: u64, reused: &mut ReuseTimes) -> f64 {
        let mut sampled = std::mem::take(&mut self.sampled);
        self.threshold.sift(block, &mut sampled);
        self.distinct.note(block);
        let (mut at, mut cold) = (0, 0.0);
        for tag in sampled.drain(..) {
            // All references to a sampled tag are sampled, so the tag's next occurrence is this
            // one.
            at += block[at..].iter().position(|&other| other == tag).unwrap_or(0);
            cold += self.sample(tag, now + at as u64, reused);
            at += 1;
        }
        self.sampled = sampled;
        cold
    }

    fn sample(&mut self, tag: u64, now: u64, reused: &mut ReuseTimes) -> f64 {
        if !self.threshold.has(tag) {
            return 0.0;
        }
        let before = self.last.insert(tag, now);
        let weight = self.distinct_all() / self.last.len() as f64;
        if let Some(before) = before {
            reused.add(now - before, weight);
            return 0.0;
        }
        self.threshold.admit(tag, |gone| {
            self.last.remove(&gone);
        });
        weight
    }

    fn memory_bytes(&self) -> u64 {
        let sampled = self.sampled.capacity() * size_of::<u64>();
        (sampled + self.last.allocation_size()) as u64
            + self.threshold.memory_bytes()
            + self.distinct.memory_bytes()
    }
}
