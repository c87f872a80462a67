//! Waiting for a guest to carry out a request, and pauses after it did not.

use std::time::Duration;

use ballast_model::{Bytes, GuestSample, Timestamp};

/// A guest without statistics may still be booting, so the wait is this many times as long.
const SILENT_PATIENCE: u32 = 6;

/// Progress of a guest's plugging.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    mark: Bytes,
    progress_at: Timestamp,
    /// Whether its kernel was heard of since.
    alive: bool,
}

impl Wait {
    /// `alive`: its kernel is known to run.
    pub(super) fn new(plugged: Bytes, alive: bool, now: Timestamp) -> Wait {
        Wait { mark: plugged, progress_at: now, alive }
    }

    /// Takes in the plugged size. Progress is a change of at least `block` in either direction.
    pub(super) fn observe(
        &mut self,
        plugged: Bytes,
        block: Bytes,
        sample: &GuestSample,
        now: Timestamp,
    ) {
        let has_reported =
            sample.stats.is_some_and(|stats| now.saturating_sub(stats.age) > self.progress_at);
        if plugged.abs_diff(self.mark) >= block {
            *self = Wait { mark: plugged, progress_at: now, alive: self.alive };
        } else if has_reported && !self.alive {
            // Time in which it booted does not count.
            self.progress_at = now;
            self.alive = true;
        }
    }

    /// Time without progress, if it is long enough to count as a refusal.
    pub(super) fn stalled(&self, now: Timestamp, after: Duration) -> Option<Duration> {
        let idle = now.saturating_since(self.progress_at);
        let patience = if self.alive { after } else { after * SILENT_PATIENCE };
        (idle >= patience).then_some(idle)
    }
}

/// A pause that doubles each time it is needed again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    until: Option<Timestamp>,
    length: Option<Duration>,
}

impl Pause {
    pub(super) fn begin(&mut self, first: Duration, most: Duration, now: Timestamp) {
        let length = self.length.map_or(first, |length| (length * 2).min(most));
        *self = Pause { until: Some(now + length), length: Some(length) };
    }

    /// The guest carried out the request.
    pub(super) fn forget(&mut self) {
        *self = Pause::default();
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}
