//! Which parts of a host's record have to be written again.
//!
//! Idea: the fast part is written at once when a reservation comes or goes; when a size has moved
//! far, unless the part was written in the tick before; and when a size has moved beyond a small
//! margin, three ticks after the last write. The slow part is written when something has changed
//! that is not a measured figure; curves and rates, which always vary, every thirty ticks. A write
//! that was not confirmed counts as not made.
//! Cost: one comparison of two parts a tick. However sizes move, there is one write in two ticks.
//! Limits: what others read of a host is right within the margins, or was a tick ago. That gives no
//! room away, as a host judges each reservation by its own figures.

use std::time::Duration;

use ballast_fleet::HostRecord;
use ballast_model::Timestamp;

use crate::record::{FastPart, SlowPart};

/// How far a size may move.
struct Margin {
    /// In MiB.
    mib: u64,
    /// And as a part of the old size, 1/`divisor`; the larger of both counts.
    divisor: u64,
}

/// Sizes that moved by less are not written again.
const SMALL_MARGIN: Margin = Margin { mib: 16, divisor: 64 };
/// Sizes that moved by less wait for `SMALL_CHANGE_TICKS`.
const LARGE_MARGIN: Margin = Margin { mib: 128, divisor: 8 };
/// Least ticks between two writes of sizes that did not move far.
const SMALL_CHANGE_TICKS: u32 = 3;
/// Least ticks between two writes of sizes that moved far.
const LARGE_CHANGE_TICKS: u32 = 2;
/// Least ticks between two writes of curves and rates alone.
const MEASURES_TICKS: u32 = 30;

/// What was last written of a host's record.
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

/// The parts of a host's record that have to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueParts {
    /// The slow part, if it changed.
    pub slow: Option<SlowPart>,
    /// The fast part, if it changed or belongs to a new slow part.
    pub fast: Option<FastPart>,
}

impl WrittenParts {
    /// Nothing was written yet; the host is looked at every `tick`.
    pub fn new(tick: Duration) -> WrittenParts {
        WrittenParts { tick, last: None }
    }

    /// What has to be written at `now` so that others know `record`.
    pub fn due(&self, record: &HostRecord, now: Timestamp) -> DueParts {
        let both = |number| DueParts {
            slow: Some(SlowPart::of(record, number)),
            fast: Some(FastPart::of(record, number)),
        };
        let Some(LastParts { slow, slow_at, fast, fast_at }) = &self.last else { return both(1) };
        // Ticks are never exactly on time, so half of one is allowed.
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
        let can_wait = is_within(&SMALL_MARGIN)
            || waits(*fast_at, SMALL_CHANGE_TICKS) && is_within(&LARGE_MARGIN)
            || waits(*fast_at, LARGE_CHANGE_TICKS);
        let is_due = !next.has_same_guests(fast) || !can_wait;
        DueParts { slow: None, fast: is_due.then_some(next) }
    }

    /// Notes that `due` was written at `now`.
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
