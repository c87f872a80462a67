//! The engine that the program chooses: exact as long as that fits the memory budget.
//!
//! Idea: the number of pages in a trace is known only at its end, and a stream cannot be read
//! twice. So a sampling engine (the reserve) counts alongside the exact one. When the exact engine
//! needs more memory than the budget it is dropped, and the reserve has seen every reference.
//! Cost: the reserve adds up to a third of the exact engine's time. A trace that is small enough to
//! fit in any case has no reserve.

use ballast_mrc::{Choice, Engine, Full, Requirements, choose};

use super::settings::Settings;
use super::words;
use ballast_report::format;

/// Memory budget of the reserve, in bytes: enough for the 8,192 samples of the paper. With eight
/// times as many, both together took nearly twice the time of the exact engine alone.
const RESERVE_BYTES: u64 = 1600 << 10;

/// Counts exactly as long as that fits the budget.
pub(super) struct AutoEngine {
    engine: Box<dyn Engine>,
    reserve: Option<Box<dyn Engine>>,
    /// The budget, in bytes.
    memory_bytes: u64,
    /// The greatest memory that both engines occupied together so far, in bytes.
    occupied_bytes: u64,
    dropped: Option<Dropped>,
}

/// When the exact engine was dropped.
#[derive(Clone, Copy)]
struct Dropped {
    /// Different tags at that time.
    tags: u64,
    why: DropReason,
}

#[derive(Clone, Copy)]
enum DropReason {
    /// This many tags may take more than the budget, however they are spread.
    TooMany,
    /// These tags take more than the budget because they lie far apart.
    TooFarApart,
}

impl AutoEngine {
    /// For a trace of at most `references_max` references, if that is known.
    pub(super) fn new(settings: &Settings, references_max: Option<u64>) -> Self {
        let memory_bytes = settings.memory_bytes;
        let seed = settings.tuning.seed;
        // Even a few page numbers may lie far apart.
        let dense_bytes = memory_bytes.checked_sub(ballast_mrc::Chosen::SPREAD_BYTES);
        let fits = |(most, bytes)| exact_fits(most, bytes);
        let is_safe = references_max.zip(dense_bytes).is_some_and(fits);
        let reserve = || reserve(memory_bytes).choice.build(seed);
        Self {
            engine: Choice::Exact.build(seed),
            reserve: (!is_safe).then(reserve),
            memory_bytes,
            occupied_bytes: 0,
            dropped: None,
        }
    }

    /// The engine whose counts are used now.
    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The greatest memory occupied so far, including the reserve, in bytes.
    pub(super) fn occupied_bytes(&self) -> u64 {
        self.occupied_bytes
    }

    /// Counts references to `tags`.
    pub(super) fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        if let Some(reserve) = &mut self.reserve {
            reserve.record(tags)?;
        }
        let result = self.engine.record(tags);
        let occupied = self.engine.memory_bytes();
        let of_reserve = self.reserve.as_ref().map_or(0, |reserve| reserve.memory_bytes());
        self.occupied_bytes = self.occupied_bytes.max(occupied + of_reserve);
        let tags = self.engine.distinct();
        let why = match result {
            Err(_) => Some(DropReason::TooMany),
            Ok(()) if !exact_fits(tags, self.memory_bytes) => Some(DropReason::TooMany),
            Ok(()) => (occupied > self.memory_bytes).then_some(DropReason::TooFarApart),
        };
        if let Some(why) = why
            && let Some(reserve) = self.reserve.take()
        {
            self.dropped = Some(Dropped { tags, why });
            self.engine = reserve;
            return Ok(());
        }
        result
    }

    /// Starts a new interval.
    pub(super) fn start_interval(&mut self) {
        self.engine.start_interval();
        if let Some(reserve) = &mut self.reserve {
            reserve.start_interval();
        }
    }

    /// The engine that was chosen, and why.
    pub(super) fn why(&self) -> String {
        let budget = format::size(self.memory_bytes);
        match self.dropped {
            None => {
                choose(requirements(Some(self.engine.distinct()), self.memory_bytes)).to_string()
            }
            Some(Dropped { tags, why }) => {
                // The text behind the colon is about the reserve's memory, which is not the reason
                // here.
                let text = reserve(self.memory_bytes).to_string();
                let name = text.split(": ").next().unwrap_or_default();
                let why = match why {
                    DropReason::TooMany => "too many",
                    DropReason::TooFarApart => "which lie too far apart",
                };
                format!("{name}: exact was dropped at {}, {why} for {budget}", words::tags(tags))
            }
        }
    }
}

/// The sampling engine that counts in reserve.
fn reserve(memory_bytes: u64) -> ballast_mrc::Chosen {
    choose(requirements(None, memory_bytes.min(RESERVE_BYTES)))
}

/// Whether the exact engine fits `memory_bytes` with `tags` different tags.
fn exact_fits(tags: u64, memory_bytes: u64) -> bool {
    choose(requirements(Some(tags), memory_bytes)).choice == Choice::Exact
}

fn requirements(tags: Option<u64>, memory_bytes: u64) -> Requirements {
    Requirements { tags, memory_bytes, speedup: 1 }
}
