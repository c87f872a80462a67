//! Chooses an engine by the number of tags, the memory, and the speed.
//!
//! Idea: rules in order; the first that fits applies.
//!
//! 1. `exact`, if no more speed is wanted than it has and its memory is within the budget.
//! 2. `shards` at the highest of the rates 0.1, 0.01 and 0.001 that is fast enough, is within the
//!    budget and samples at least [`SAMPLES_MIN`] tags.
//! 3. `shards-fixed-size` with as many samples as the budget has room for, if the number of tags is
//!    unknown or too large for 2; only for a speed-up of at most 3, and then with at most
//!    [`ShardsFixedSize::SAMPLES_DEFAULT`] samples.
//! 4. `aet` with few samples, if everything else is too large or too slow.
//!
//! How many times as fast as `exact` the engines are depends on the workload, because `exact`
//! handles five times as many references a second on a scan as on Zipf (`ballast bench mrc`,
//! 2026-11-22; rates of 0.1 and 0.001 and `aet`'s 512 samples were measured with a scratch program
//! on the same streams, best of five):
//!
//! | engine                  | Zipf(0.9), 1 M pages | phases, 1.5 M pages | scan of 300,000 |
//! |-------------------------|----------------------|---------------------|-----------------|
//! | `shards` at 0.1         | 3.8                  | 2.7                 | 1.9             |
//! | `shards` at 0.01        | 11                   | 11                  | 7               |
//! | `shards` at 0.001       | 14                   | 14                  | 12              |
//! | fixed size, 8,192       | 4                    | 4                   | 0.8             |
//! | fixed size, 65,536      | 1.1                  | 1.0                 | 0.15            |
//! | `aet`, 512              | 8                    | 5                   | 1.6             |
//!
//! The factors below are those of Zipf and phases, because programs with much memory are more like
//! these; on a scan only `shards` at 0.001 is as fast as promised. For a program with few pages
//! `shards` samples all or many of them, whatever the rate, and is as slow as `exact`.
//!
//! Limits: the expected number of tags is trusted; begin with a guess, and choose again with
//! [`Engine::distinct`] of the first interval. Tags are assumed to be dense
//! ([`Chosen::need_bytes`]).

use std::fmt;

use crate::{
    Aet, CountingEngine, Engine, EngineName, Exact, SampleRate, Shards, ShardsFixedSize, TAGS_MAX,
};

/// Memory of `exact` for each tag, in bytes, with its counts: 6 and 8, and half as much again while
/// it grows.
const EXACT_TAG_BYTES: u64 = 21;
/// Memory of `shards` for each sampled tag, in bytes: as above, and a table of tags.
const SHARDS_SAMPLE_BYTES: u64 = 80;
/// Memory of `shards` for blocks of references, in bytes.
const SHARDS_FIXED_BYTES: u64 = 384 << 10;
/// Memory of `shards-fixed-size` for each sample, in bytes.
const FIXED_SIZE_SAMPLE_BYTES: u64 = 160;
/// Memory of `shards-fixed-size` for distances and for counting different tags, in bytes.
const FIXED_SIZE_FIXED_BYTES: u64 = 320 << 10;
/// Memory of `aet` for each sample, in bytes.
const AET_SAMPLE_BYTES: u64 = 120;
/// Memory of `aet` for reuse times and for counting different tags, in bytes.
const AET_FIXED_BYTES: u64 = 160 << 10;

/// With fewer sampled tags than this, the curve depends too much on chance.
const SAMPLES_MIN: u64 = 1000;
/// More samples than this gain too little for their time.
const SAMPLES_MAX: u64 = 1 << 16;

/// Rates of `shards`, and about how many times as fast as `exact` it is with each, on Zipf and
/// phases.
const RATES: [(f64, u32); 3] = [(0.1, 3), (0.01, 10), (0.001, 12)];
/// About how many times as fast as `exact` `shards-fixed-size` is, on the same streams and with at
/// most [`ShardsFixedSize::SAMPLES_DEFAULT`] samples.
const FIXED_SIZE_SPEEDUP: u32 = 3;

/// The requirements on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// The expected number of different tags, which are assumed to be numbered from 0 with few
    /// gaps. `None` if unknown.
    pub tags: Option<u64>,
    /// Memory that it may occupy, in bytes.
    pub memory_bytes: u64,
    /// The wanted speed as a multiple of that of `exact`; 1 or less is the speed of `exact`.
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
        /// The greatest number of samples.
        samples_max: usize,
    },
    /// `aet`, sampled.
    Aet {
        /// Most samples.
        samples_max: usize,
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

    /// Builds the engine; `seed` is for engines that sample.
    #[must_use]
    pub fn build(self, seed: u64) -> Box<dyn Engine> {
        match self {
            Self::Exact => Box::new(CountingEngine::new(EngineName::Exact, Exact::new())),
            Self::Shards { rate } => {
                Box::new(Shards::new(rate, seed).with_samples_min(Shards::SAMPLES_MIN_DEFAULT))
            }
            Self::ShardsFixedSize { samples_max } => {
                Box::new(ShardsFixedSize::new(samples_max, seed))
            }
            Self::Aet { samples_max } => Box::new(Aet::sampled(samples_max, seed)),
        }
    }

    /// The most memory that it occupies with `tags` different tags, in bytes.
    fn need_bytes(self, tags: Option<u64>) -> u64 {
        let tags = tags.unwrap_or(u64::MAX);
        match self {
            Self::Exact => tags.saturating_mul(EXACT_TAG_BYTES),
            Self::Shards { rate } => {
                let samples = (tags as f64 * rate.get()) as u64;
                let samples = samples.max(tags.min(2 * Shards::SAMPLES_MIN_DEFAULT));
                // A bit for each tag, rounded up to a power of two of words.
                let bits = (tags / 4).max(64 << 10);
                bits.saturating_add(samples.saturating_mul(SHARDS_SAMPLE_BYTES))
                    .saturating_add(SHARDS_FIXED_BYTES)
            }
            Self::ShardsFixedSize { samples_max } => {
                FIXED_SIZE_FIXED_BYTES + samples_max as u64 * FIXED_SIZE_SAMPLE_BYTES
            }
            Self::Aet { samples_max } => AET_FIXED_BYTES + samples_max as u64 * AET_SAMPLE_BYTES,
        }
    }
}

/// Why an engine was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceReason {
    /// Exact fits, and is as fast as wanted.
    ExactFits,
    /// The highest rate that meets the requirements, with this number of sampled tags.
    RateFits {
        /// Expected number of sampled tags.
        samples: u64,
    },
    /// The number of tags is unknown.
    TagsUnknown,
    /// There are too many tags for the budget with any rate that is fast enough.
    TagsTooMany,
    /// No rate is as fast as wanted.
    TooFast,
    /// A rate that meets the requirements would sample too few tags.
    TooFewSamples {
        /// Expected number of sampled tags.
        samples: u64,
    },
    /// Nothing else is within the budget; this engine may not be either.
    BudgetTooSmall,
}

/// An engine, what it needs, and why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// The engine.
    pub choice: Choice,
    /// Why.
    pub reason: ChoiceReason,
    /// The most memory that it will occupy if tags are dense, in bytes, without up to 0.1 MiB with
    /// which `exact` begins. If tags are numbers far apart, `exact` and `shards` need up to
    /// [`SPREAD_BYTES`](Self::SPREAD_BYTES) more.
    pub need_bytes: u64,
    /// The requirements for which it was chosen.
    pub requirements: Requirements,
}

impl Chosen {
    /// The most memory that an engine may occupy beyond [`need_bytes`](Self::need_bytes), in bytes,
    /// if tags are far apart, even if they are few; or 64 bytes for each tag if that is more.
    ///
    /// `exact` may have an array as long as the greatest tag while that is below 2^24 (64 MiB, and
    /// as much again while it grows) or eight times the number of tags; otherwise it has a table.
    /// `shards` has up to 16 MiB of bits, or 16 bits for each tag. Other engines need no more than
    /// [`need_bytes`](Self::need_bytes).
    pub const SPREAD_BYTES: u64 = 128 << 20;
}

/// Chooses an engine.
#[must_use]
pub fn choose(requirements: Requirements) -> Chosen {
    let (choice, reason) = pick(requirements);
    Chosen { choice, reason, need_bytes: choice.need_bytes(requirements.tags), requirements }
}

fn pick(requirements: Requirements) -> (Choice, ChoiceReason) {
    let fits = |choice: Choice| choice.need_bytes(requirements.tags) <= requirements.memory_bytes;
    let mut reason = ChoiceReason::TagsUnknown;
    if let Some(tags) = requirements.tags {
        if requirements.speedup <= 1 && tags <= TAGS_MAX && fits(Choice::Exact) {
            return (Choice::Exact, ChoiceReason::ExactFits);
        }
        reason = ChoiceReason::TooFast;
        // The highest rate comes first; it also has the most samples.
        for (rate, _) in RATES.into_iter().filter(|&(_, speedup)| requirements.speedup <= speedup) {
            let Some(rate) = SampleRate::new(rate) else { continue };
            let samples = (tags as f64 * rate.get()) as u64;
            if samples < SAMPLES_MIN {
                reason = ChoiceReason::TooFewSamples { samples };
                break;
            }
            if samples <= TAGS_MAX && fits(Choice::Shards { rate }) {
                return (Choice::Shards { rate }, ChoiceReason::RateFits { samples });
            }
            reason = ChoiceReason::TagsTooMany;
        }
    }
    let room =
        requirements.memory_bytes.saturating_sub(FIXED_SIZE_FIXED_BYTES) / FIXED_SIZE_SAMPLE_BYTES;
    if requirements.speedup <= FIXED_SIZE_SPEEDUP && room >= SAMPLES_MIN {
        let is_faster = requirements.speedup > 1;
        let most = if is_faster { ShardsFixedSize::SAMPLES_DEFAULT as u64 } else { SAMPLES_MAX };
        let samples_max = room.min(most) as usize;
        return (Choice::ShardsFixedSize { samples_max }, reason);
    }
    let aet = Choice::Aet { samples_max: Aet::SAMPLES_DEFAULT };
    (aet, if fits(aet) { reason } else { ChoiceReason::BudgetTooSmall })
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.choice.name())?;
        match self.choice {
            Choice::Exact => {}
            Choice::Shards { rate } => write!(f, " at rate {rate}")?,
            Choice::ShardsFixedSize { samples_max } | Choice::Aet { samples_max } => {
                write!(f, " with {} samples", Grouped(samples_max as u64))?;
            }
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (need, budget) = (mib(self.need_bytes), mib(self.requirements.memory_bytes));
        let tags = Grouped(self.requirements.tags.unwrap_or(0));
        match self.reason {
            ChoiceReason::ExactFits => write!(f, ": {tags} tags need")?,
            ChoiceReason::RateFits { samples } => {
                write!(f, ": {} of {tags} tags need", Grouped(samples))?;
            }
            ChoiceReason::TagsUnknown => write!(f, ": for any number of tags it needs")?,
            ChoiceReason::TagsTooMany => {
                write!(f, ": {tags} tags are too many to count; it needs")?
            }
            ChoiceReason::TooFast => write!(f, ": no rate is that fast; it needs")?,
            ChoiceReason::TooFewSamples { samples } => {
                write!(f, ": a rate would sample {} of {tags} tags; it needs", Grouped(samples))?;
            }
            ChoiceReason::BudgetTooSmall => write!(f, ": the least there is needs")?,
        }
        write!(f, " {need:.1} MiB of {budget:.1} MiB")
    }
}

/// A number with its digits grouped in threes.
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

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn choices_by_footprint_budget_and_speed() {
        for (tags, memory_bytes, speedup, expected) in [
            (Some(1_000_000), 256 * MIB, 1, "exact: 1,000,000 tags need 20.0 MiB of 256.0 MiB"),
            (Some(0), 0, 0, "exact: 0 tags need 0.0 MiB of 0.0 MiB"),
            (
                Some(1_000_000),
                256 * MIB,
                3,
                "shards at rate 0.1: 100,000 of 1,000,000 tags need 8.2 MiB of 256.0 MiB",
            ),
            (
                Some(1_000_000),
                256 * MIB,
                10,
                "shards at rate 0.01: 10,000 of 1,000,000 tags need 1.4 MiB of 256.0 MiB",
            ),
            (
                Some(1_000_000),
                9 * MIB,
                1,
                "shards at rate 0.1: 100,000 of 1,000,000 tags need 8.2 MiB of 9.0 MiB",
            ),
            (
                Some(1 << 36),
                64 * MIB,
                1,
                "shards-fixed-size with 65,536 samples: 68,719,476,736 tags are too many to count; \
                 it needs 10.3 MiB of 64.0 MiB",
            ),
            (
                Some(1 << 36),
                64 * MIB,
                2,
                "shards-fixed-size with 8,192 samples: 68,719,476,736 tags are too many to count; it \
                 needs 1.6 MiB of 64.0 MiB",
            ),
            (
                Some(5000),
                MIB,
                10,
                "aet with 512 samples: a rate would sample 50 of 5,000 tags; it needs 0.2 MiB of 1.0 MiB",
            ),
            (
                Some(1_000_000),
                256 * MIB,
                13,
                "aet with 512 samples: no rate is that fast; it needs 0.2 MiB of 256.0 MiB",
            ),
            (
                None,
                2 * MIB,
                1,
                "shards-fixed-size with 11,059 samples: for any number of tags it needs 2.0 MiB of \
                 2.0 MiB",
            ),
            (
                Some(20_000),
                MIB,
                10,
                "aet with 512 samples: a rate would sample 200 of 20,000 tags; it needs 0.2 MiB of \
                 1.0 MiB",
            ),
            (
                Some(1_000_000),
                256 * KIB,
                1,
                "aet with 512 samples: 1,000,000 tags are too many to count; it needs 0.2 MiB of \
                 0.2 MiB",
            ),
            (None, 1, 1, "aet with 512 samples: the least there is needs 0.2 MiB of 0.0 MiB"),
        ] {
            let chosen = choose(Requirements { tags, memory_bytes, speedup });
            assert_eq!(chosen.to_string(), expected);
        }
        let many = Requirements { tags: Some(u64::MAX), memory_bytes: u64::MAX, speedup: 100 };
        assert_eq!(choose(many).choice.name(), EngineName::Aet);
        let terabytes = Requirements { tags: Some(1 << 32), memory_bytes: 64 * GIB, speedup: 1 };
        assert_eq!(choose(terabytes).choice.name(), EngineName::Shards);
    }

    #[test]
    fn engines_need_no_more_than_estimated() {
        let dense: Vec<u64> = (0..300_000).chain(0..300_000).collect();
        for (memory_bytes, speedup) in [(GIB, 1), (GIB, 2), (GIB, 10), (3 * MIB, 1), (0, 1)] {
            let chosen = choose(Requirements { tags: Some(300_000), memory_bytes, speedup });
            for shift in [0, 5, 8, 30] {
                let mut engine = chosen.choice.build(1);
                assert_eq!(engine.name(), chosen.choice.name());
                let tags: Vec<u64> = dense.iter().map(|tag| tag << shift).collect();
                let is_bound_by_need =
                    !matches!(chosen.choice, Choice::Exact | Choice::Shards { .. }) || shift == 0;
                let spread_bytes = if is_bound_by_need { 0 } else { Chosen::SPREAD_BYTES };
                for part in tags.chunks(10_000) {
                    engine.record(part).unwrap();
                    let bytes = engine.memory_bytes();
                    let bound = chosen.need_bytes + spread_bytes;
                    assert!(bytes <= bound, "{chosen}: {bytes} for tags << {shift}");
                }
            }
        }
    }

    #[test]
    fn few_tags_need_little_more() {
        for tags in [0, 1, 100, 1000, 4000] {
            let chosen = choose(Requirements { tags: Some(tags), memory_bytes: GIB, speedup: 1 });
            let mut engine = chosen.choice.build(1);
            (0..3).for_each(|_| engine.record(&(0..tags).collect::<Vec<u64>>()).unwrap());
            let bytes = engine.memory_bytes();
            assert!(bytes <= chosen.need_bytes + MIB / 10, "{chosen}: {bytes}");
        }
    }

    #[test]
    fn many_tags_far_apart_need_64_bytes_more_each() {
        let count = (1 << 21) + 1000;
        let chosen = choose(Requirements { tags: Some(count), memory_bytes: GIB, speedup: 1 });
        for shift in [3, 30] {
            let mut engine = chosen.choice.build(1);
            let tags: Vec<u64> = (0..count).map(|tag| tag << shift).collect();
            engine.record(&tags).unwrap();
            let spread_bytes = Chosen::SPREAD_BYTES.max(64 * count);
            assert!(engine.memory_bytes() <= chosen.need_bytes + spread_bytes, "{shift}");
        }
    }
}
