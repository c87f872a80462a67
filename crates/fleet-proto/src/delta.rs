//! What of a host's record is to be written again.
//!
//! Idea: the fast part is written when a size has moved far, unless it was written in the tick
//! before, and after three ticks when one has moved beyond a margin; when a reservation comes or
//! goes, at once. The slow part is written when something changed that is not measured; curves and
//! rates, which are never twice the same, every thirty ticks. What was not confirmed counts as not
//! written.
//! Cost: one comparison of two parts a tick. However sizes move, one write in two ticks.
//! Limits: what others know of a host is right to the margins, or was a tick ago. Room is not given
//! away by it, as a host judges a reservation by its own figures.

use std::time::Duration;

use ballast_fleet::HostRecord;
use ballast_model::Timestamp;

use crate::record::{FastPart, SlowPart};

/// How far a size may have moved.
struct Margin {
    /// In MiB.
    mib: u64,
    /// And as a part of what it was: the larger one counts.
    divisor: u64,
}

/// A size that moved by less is not written again.
const NEAR: Margin = Margin { mib: 16, divisor: 64 };
/// One that moved by less waits with others.
const NOT_FAR: Margin = Margin { mib: 128, divisor: 8 };
/// Ticks between two writes of sizes that did not move far.
const SIZES_TICKS: u32 = 3;
/// Ticks between two writes of sizes that did.
const FAR_TICKS: u32 = 2;
/// Ticks between two writes of curves and rates alone.
const MEASURES_TICKS: u32 = 30;

/// What was written last of a host's record.
#[derive(Clone, Debug)]
pub struct WrittenParts {
    tick: Duration,
    last: Option<LastParts>,
}

#[derive(Clone, Debug)]
struct LastParts {
    slow: SlowPart,
    slow_at: Timestamp,
    fast: FastPart,
    fast_at: Timestamp,
}

/// What is to be written of a host's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueParts {
    /// The slow part, if it changed.
    pub slow: Option<SlowPart>,
    /// The fast part, if it changed or the slow one did.
    pub fast: Option<FastPart>,
}

impl WrittenParts {
    /// Nothing was written yet; there is a look at the host every `tick`.
    pub fn new(tick: Duration) -> WrittenParts {
        WrittenParts { tick, last: None }
    }

    /// What is to be written so that others know `record`, at `now`.
    pub fn due(&self, record: &HostRecord, now: Timestamp) -> DueParts {
        let both = |number| DueParts {
            slow: Some(SlowPart::of(record, number)),
            fast: Some(FastPart::of(record, number)),
        };
        let Some(LastParts { slow, slow_at, fast, fast_at }) = &self.last else { return both(1) };
        // A look is never exactly on time.
        let waits = |since: Timestamp, ticks: u32| {
            now.saturating_since(since) + self.tick / 2 < self.tick * ticks
        };
        let same = SlowPart::of(record, slow.number);
        let is_measured_only = || same.differs_in_measures_only(slow);
        if same != *slow && !(waits(*slow_at, MEASURES_TICKS) && is_measured_only()) {
            return both(slow.number + 1);
        }
        let next = FastPart::of(record, slow.number);
        let is_within = |margin: &Margin| {
            next.sizes()
                .zip(fast.sizes())
                .all(|(new, old)| new.abs_diff(old) < margin.mib.max(old / margin.divisor))
        };
        let has_time = is_within(&NEAR)
            || waits(*fast_at, SIZES_TICKS) && is_within(&NOT_FAR)
            || waits(*fast_at, FAR_TICKS);
        let is_due = !next.is_about_the_same(fast) || !has_time;
        DueParts { slow: None, fast: is_due.then_some(next) }
    }

    /// Takes note that `due` was written at `now`.
    pub fn confirm(&mut self, due: DueParts, now: Timestamp) {
        self.last = match (due, self.last.take()) {
            (DueParts { slow: Some(slow), fast: Some(fast) }, _) => {
                Some(LastParts { slow, slow_at: now, fast, fast_at: now })
            }
            (DueParts { fast: Some(fast), .. }, Some(last)) => {
                Some(LastParts { fast, fast_at: now, ..last })
            }
            (_, last) => last,
        };
    }
}

impl DueParts {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.slow.is_none() && self.fast.is_none()
    }
}
