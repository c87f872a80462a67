//! The chooser's engine: exact while that fits its budget.
//!
//! Idea: how many pages a trace has is known only at its end, and a stream cannot be read twice. So
//! the exact engine counts, and one that samples counts beside it in reserve; when the exact one
//! needs more memory than it may have it is dropped, and the reserve has seen everything.
//! Cost: the reserve takes up to a third of the exact engine's time again; a trace whose size says
//! that it cannot need it has none.

use ballast_mrc::{Choice, Engine, Full, Wanted, choose};

use super::settings::Settings;
use super::words;
use ballast_report::format;

/// What the reserve may occupy: enough for the 8,192 samples of the paper. With eight times as many
/// the two took nearly twice the time of the exact engine alone.
const RESERVE_BYTES: u64 = 1600 << 10;

/// Counts exactly as long as it may.
pub(super) struct Chosen {
    engine: Box<dyn Engine>,
    reserve: Option<Box<dyn Engine>>,
    /// The budget.
    memory_bytes: u64,
    /// The most that both occupied so far.
    occupied_bytes: u64,
    dropped: Option<Dropped>,
}

/// When the exact engine was dropped.
#[derive(Clone, Copy)]
struct Dropped {
    /// Different tags by then.
    tags: u64,
    why: DropReason,
}

#[derive(Clone, Copy)]
enum DropReason {
    /// So many tags may take more than the budget, wherever they lie.
    TooMany,
    /// They take more because they lie far apart.
    TooFarApart,
}

impl Chosen {
    /// For a trace of at most `references_max`, if that is known.
    pub(super) fn new(settings: &Settings, references_max: Option<u64>) -> Self {
        let memory_bytes = settings.memory_bytes;
        let seed = settings.tuning.seed;
        // Page numbers may lie far apart, however few they are.
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

    /// The engine that counts for now.
    pub(super) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The most that it occupied so far, the engine in reserve included, in bytes.
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

    /// Starts an interval.
    pub(super) fn start_interval(&mut self) {
        self.engine.start_interval();
        if let Some(reserve) = &mut self.reserve {
            reserve.start_interval();
        }
    }

    /// What was chosen, and why.
    pub(super) fn why(&self) -> String {
        let budget = format::size(self.memory_bytes);
        match self.dropped {
            None => choose(wanted(Some(self.engine.distinct()), self.memory_bytes)).to_string(),
            Some(Dropped { tags, why }) => {
                // Its needs are not why.
                let told = reserve(self.memory_bytes).to_string();
                let name = told.split(": ").next().unwrap_or_default();
                let why = match why {
                    DropReason::TooMany => "too many",
                    DropReason::TooFarApart => "which lie too far apart",
                };
                format!("{name}: exact was dropped at {}, {why} for {budget}", words::tags(tags))
            }
        }
    }
}

/// What counts in reserve.
fn reserve(memory_bytes: u64) -> ballast_mrc::Chosen {
    choose(wanted(None, memory_bytes.min(RESERVE_BYTES)))
}

/// Whether the exact engine may go on with so many different tags.
fn exact_fits(tags: u64, memory_bytes: u64) -> bool {
    choose(wanted(Some(tags), memory_bytes)).choice == Choice::Exact
}

fn wanted(tags: Option<u64>, memory_bytes: u64) -> Wanted {
    Wanted { tags, memory_bytes, speedup: 1 }
}
