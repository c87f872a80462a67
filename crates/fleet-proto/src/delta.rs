//! What of a host's record is to be written again.
//!
//! Idea: the fast part is written when a size has moved beyond a margin, the slow part when
//! something other than a miss curve changed; curves, which are never twice the same, every few
//! minutes. What was not confirmed counts as not written.
//! Cost: one comparison of two parts a tick.
//! Limits: what others know of a host is right to the margin. Room is not given away by it, as a
//! host judges a reservation by its own figures.

use std::time::Duration;

use ballast_fleet::HostRecord;
use ballast_model::Timestamp;

use crate::record::{FastPart, SlowPart};

/// A size that moved by less is not written again, in MiB.
const MARGIN_MIB: u64 = 16;
/// Neither is one that moved by less than this part of it.
const MARGIN_DIVISOR: u64 = 64;
/// Curves alone are written again after this long.
const CURVES_EVERY: Duration = Duration::from_secs(300);

/// What was written last of a host's record.
#[derive(Clone, Debug, Default)]
pub struct WrittenParts {
    last: Option<(SlowPart, FastPart, Timestamp)>,
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
    /// What is to be written so that others know `record`, at `now`.
    pub fn due(&self, record: &HostRecord, now: Timestamp) -> DueParts {
        let Some((slow, fast, slow_at)) = &self.last else {
            return DueParts {
                slow: Some(SlowPart::of(record, 1)),
                fast: Some(FastPart::of(record, 1)),
            };
        };
        let same = SlowPart::of(record, slow.number);
        let waits = now.saturating_since(*slow_at) < CURVES_EVERY;
        if same != *slow && !(waits && same.differs_in_curves_only(slow)) {
            let number = slow.number + 1;
            return DueParts {
                slow: Some(SlowPart::of(record, number)),
                fast: Some(FastPart::of(record, number)),
            };
        }
        let next = FastPart::of(record, slow.number);
        let is_near = next.is_about_the_same(fast)
            && next
                .sizes()
                .zip(fast.sizes())
                .all(|(new, old)| new.abs_diff(old) < MARGIN_MIB.max(old / MARGIN_DIVISOR));
        DueParts { slow: None, fast: (!is_near).then_some(next) }
    }

    /// Takes note that `due` was written at `now`.
    pub fn confirm(&mut self, due: DueParts, now: Timestamp) {
        self.last = match (due, self.last.take()) {
            (DueParts { slow: Some(slow), fast: Some(fast) }, _) => Some((slow, fast, now)),
            (DueParts { fast: Some(fast), .. }, Some((slow, _, at))) => Some((slow, fast, at)),
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
