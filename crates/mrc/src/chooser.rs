//! Which engine for how many tags, in how much memory, how fast.
//!
//! Idea: rules in order, the first that fits.
//!
//! 1. `exact`, when no more speed is asked for than it has and its memory is in the budget.
//! 2. `shards` at the highest of the rates 0.1, 0.01 and 0.001 that is fast enough, is in the budget and
//!    samples at least [`SAMPLES_MIN`] tags.
//! 3. `shards-fixed-size` with as many samples as the budget has room for, when how many tags there
//!    will be is unknown, or too many for 2; for a speed-up of at most 3.
//! 4. `aet` with few watched tags, when there is too little of anything.
//!
//! What engines need and gain is of this crate's own measurements (`examples/sampling_error.rs`),
//! rounded to the safe side.
//!
//! Limits: the expected number of tags is believed; begin with a guess, and choose again with
//! [`Engine::distinct`] of the first interval.

use std::fmt;

use crate::{Aet, Avl, Counted, Engine, EngineName, SampleRate, Shards, ShardsFixedSize, TAGS_MAX};

/// `exact` occupies this much for each tag, with its counts: 6 bytes and 8, and half as much again
/// while it grows.
const EXACT_TAG_BYTES: u64 = 21;
/// `shards` for each sampled tag: as above, and a table for tags that are sparse.
const SHARDS_SAMPLE_BYTES: u64 = 80;
/// And for blocks of references.
const SHARDS_FIXED_BYTES: u64 = 64 << 10;
/// `shards-fixed-size` for each sample.
const FIXED_SIZE_SAMPLE_BYTES: u64 = 160;
/// And for distances and for counting different tags.
const FIXED_SIZE_FIXED_BYTES: u64 = 320 << 10;
/// `aet` for each watched tag.
const AET_WATCHED_BYTES: u64 = 120;
/// And for reuse times and for counting different tags.
const AET_FIXED_BYTES: u64 = 160 << 10;

/// Fewer sampled tags than this leave too much to chance.
const SAMPLES_MIN: u64 = 1000;
/// More samples than this gain nothing worth their time.
const SAMPLES_MAX: u64 = 1 << 16;

/// Rates of `shards`, and how many times as fast as `exact` it is with them at least.
const RATES: [(f64, u32); 3] = [(0.1, 4), (0.01, 10), (0.001, 12)];
/// How many times as fast as `exact` `shards-fixed-size` is at least.
const FIXED_SIZE_SPEEDUP: u32 = 3;

/// What is wanted of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How many different tags are expected; `None` when unknown.
    pub tags: Option<u64>,
    /// Memory it may occupy, in bytes.
    pub memory_bytes: u64,
    /// How many times the speed of `exact` is wanted; up to 1 is its own.
    pub speedup: u32,
}

/// An engine and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// `exact`.
    Exact,
    /// `shards`.
    Shards {
        /// The share of tags that are sampled.
        rate: SampleRate,
    },
    /// `shards-fixed-size`.
    ShardsFixedSize {
        /// Most samples.
        samples_max: usize,
    },
    /// `aet`, sampled.
    Aet {
        /// Most watched tags.
        watched_max: usize,
    },
}

impl Choice {
    /// The engine's name.
    #[must_use]
    pub fn name(self) -> EngineName {
        match self {
            Self::Exact => EngineName::Exact,
            Self::Shards { .. } => EngineName::Shards,
            Self::ShardsFixedSize { .. } => EngineName::ShardsFixedSize,
            Self::Aet { .. } => EngineName::Aet,
        }
    }

    /// The engine; `seed` is for those that sample.
    #[must_use]
    pub fn build(self, seed: u64) -> Box<dyn Engine> {
        match self {
            Self::Exact => Box::new(Counted::new(EngineName::Exact, Avl::new())),
            Self::Shards { rate } => Box::new(Shards::with_stack(Avl::new(), rate, seed)),
            Self::ShardsFixedSize { samples_max } => {
                Box::new(ShardsFixedSize::new(samples_max, seed))
            }
            Self::Aet { watched_max } => Box::new(Aet::sampled(watched_max, seed)),
        }
    }

    /// What it occupies with `tags` different tags, in bytes, at most.
    fn need_bytes(self, tags: Option<u64>) -> u64 {
        let tags = tags.unwrap_or(u64::MAX);
        match self {
            Self::Exact => tags.saturating_mul(EXACT_TAG_BYTES),
            Self::Shards { rate } => {
                let samples = (tags as f64 * rate.get()) as u64;
                // A bit for each tag, and as many again while they grow.
                let bits = (tags / 4).max(SHARDS_FIXED_BYTES);
                bits.saturating_add(samples.saturating_mul(SHARDS_SAMPLE_BYTES))
                    .saturating_add(SHARDS_FIXED_BYTES)
            }
            Self::ShardsFixedSize { samples_max } => {
                FIXED_SIZE_FIXED_BYTES + samples_max as u64 * FIXED_SIZE_SAMPLE_BYTES
            }
            Self::Aet { watched_max } => AET_FIXED_BYTES + watched_max as u64 * AET_WATCHED_BYTES,
        }
    }
}

/// Why an engine was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceReason {
    /// Exact fits, and is as fast as asked for.
    ExactFits,
    /// The highest rate that does what is asked for, with so many sampled tags.
    RateFits {
        /// Expected number of sampled tags.
        samples: u64,
    },
    /// How many tags there will be is unknown.
    TagsUnknown,
    /// Tags are too many for the budget with any rate.
    TagsTooMany,
    /// A rate that does what is asked for would sample too few tags.
    TooFewSamples {
        /// Expected number of sampled tags.
        samples: u64,
    },
    /// Nothing else is in the budget; this one may not be either.
    BudgetTooSmall,
}

/// An engine, what it needs, and why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// The engine.
    pub choice: Choice,
    /// Why.
    pub reason: ChoiceReason,
    /// What it will occupy, in bytes, at most.
    pub need_bytes: u64,
    /// What it was chosen for.
    pub wanted: Wanted,
}

/// Chooses an engine.
#[must_use]
pub fn choose(wanted: Wanted) -> Chosen {
    let (choice, reason) = pick(wanted);
    Chosen { choice, reason, need_bytes: choice.need_bytes(wanted.tags), wanted }
}

fn pick(wanted: Wanted) -> (Choice, ChoiceReason) {
    let fits = |choice: Choice| choice.need_bytes(wanted.tags) <= wanted.memory_bytes;
    let mut reason = ChoiceReason::TagsUnknown;
    if let Some(tags) = wanted.tags {
        if wanted.speedup <= 1 && tags <= TAGS_MAX && fits(Choice::Exact) {
            return (Choice::Exact, ChoiceReason::ExactFits);
        }
        reason = ChoiceReason::TagsTooMany;
        // From the highest rate, which is the first to have too few samples.
        for (rate, speedup) in RATES {
            let Some(rate) = SampleRate::new(rate) else { continue };
            let samples = (tags as f64 * rate.get()) as u64;
            if samples < SAMPLES_MIN {
                reason = ChoiceReason::TooFewSamples { samples };
                break;
            }
            if wanted.speedup <= speedup && samples <= TAGS_MAX && fits(Choice::Shards { rate }) {
                return (Choice::Shards { rate }, ChoiceReason::RateFits { samples });
            }
        }
    }
    let room = wanted.memory_bytes.saturating_sub(FIXED_SIZE_FIXED_BYTES) / FIXED_SIZE_SAMPLE_BYTES;
    if wanted.speedup <= FIXED_SIZE_SPEEDUP && room >= SAMPLES_MIN {
        let samples_max = room.min(SAMPLES_MAX) as usize;
        return (Choice::ShardsFixedSize { samples_max }, reason);
    }
    let aet = Choice::Aet { watched_max: Aet::WATCHED_DEFAULT };
    (aet, if fits(aet) { reason } else { ChoiceReason::BudgetTooSmall })
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.choice.name())?;
        match self.choice {
            Choice::Exact => {}
            Choice::Shards { rate } => write!(f, " at rate {rate}")?,
            Choice::ShardsFixedSize { samples_max } => {
                write!(f, " with {} samples", Grouped(samples_max as u64))?;
            }
            Choice::Aet { watched_max } => {
                write!(f, " with {} watched tags", Grouped(watched_max as u64))?;
            }
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (need, budget) = (mib(self.need_bytes), mib(self.wanted.memory_bytes));
        let tags = Grouped(self.wanted.tags.unwrap_or(0));
        match self.reason {
            ChoiceReason::ExactFits => write!(f, ": {tags} tags need")?,
            ChoiceReason::RateFits { samples } => {
                write!(f, ": {} of {tags} tags need", Grouped(samples))?;
            }
            ChoiceReason::TagsUnknown => write!(f, ": for any number of tags it needs")?,
            ChoiceReason::TagsTooMany => {
                write!(f, ": {tags} tags are too many to count; it needs")?
            }
            ChoiceReason::TooFewSamples { samples } => {
                write!(f, ": a rate would sample {} of {tags} tags; it needs", Grouped(samples))?;
            }
            ChoiceReason::BudgetTooSmall => write!(f, ": the least there is needs")?,
        }
        write!(f, " {need:.1} MiB of {budget:.1} MiB")
    }
}

/// A number in groups of three digits.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}
