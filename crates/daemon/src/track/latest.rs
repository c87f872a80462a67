//! What a guest's tracking thread found last.
//!
//! Idea: a report lasts while tracking rests. What is seen at rest renews it, or moves it.

use std::sync::Arc;
use std::time::Instant;

use ballast_model::{Bytes, TrackerReport, Tracking, TrackingState};
use ballast_reclaim::Coldness;

use super::tiny::WorkingSetShift;

/// The latest report of a guest, and how it is tracked.
#[derive(Debug)]
pub(super) struct Latest {
    pub(super) report: Option<(TrackerReport, Instant)>,
    pub(super) tracking: Tracking,
    pub(super) coldness: Option<Arc<Coldness>>,
}

impl Latest {
    /// Tracking rests and no new phase was detected: renews the age of the report.
    pub(super) fn confirm(&mut self) {
        if let Some((_, at)) = &mut self.report {
            *at = Instant::now();
        }
    }

    /// Tracking rests and the working set shifted: updates the report, up to `tracked` memory.
    pub(super) fn move_by(
        &mut self,
        WorkingSetShift { before, now }: WorkingSetShift,
        tracked: Bytes,
    ) {
        if let Some((report, at)) = &mut self.report {
            *report = report.moved(now, before, tracked);
            *at = Instant::now();
        }
    }

    /// Notes that tracking fails.
    pub(super) fn fail(&mut self, trouble: String) {
        let failing = Tracking::new(TrackingState::Failing);
        self.tracking = Tracking { trouble: Some(trouble), ..failing };
        self.coldness = None;
    }
}
