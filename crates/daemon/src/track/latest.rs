//! The latest result of a guest's tracking thread.
//!
//! Idea: a report stays valid while tracking rests; the signal observed at rest confirms it or
//! scales its working set. Pages that watching has revoked are missing from the page table until
//! they are touched, even while tracking rests or after it has ended.

use std::sync::Arc;
use std::time::Instant;

use ballast_model::{Bytes, Share, TrackerReport, Tracking, TrackingState};
use ballast_reclaim::Coldness;

use super::tiny::WorkingSetShift;

/// The latest report of a guest, and how it is tracked.
#[derive(Debug)]
pub(super) struct Latest {
    pub(super) report: Option<(TrackerReport, Instant)>,
    pub(super) tracking: Tracking,
    pub(super) coldness: Option<Arc<Coldness>>,
    /// The part of the guest's memory that may be missing from the page table: the largest part
    /// that was watched since all of it was last found there.
    pub(super) hidden: Share,
    /// The part that was watched last; the next interval may revoke as much.
    watched_last: Share,
}

impl Latest {
    /// Nothing is known yet.
    pub(super) fn new(state: TrackingState) -> Latest {
        Latest {
            report: None,
            tracking: Tracking::new(state),
            coldness: None,
            hidden: Share::default(),
            watched_last: Share::default(),
        }
    }

    /// Records how the guest was tracked in an interval that ended.
    pub(super) fn track(&mut self, tracking: Tracking) {
        // Only the tracker revokes pages.
        if tracking.state == TrackingState::Watching {
            self.watched_last = tracking.watched.unwrap_or_default();
            self.hidden = self.hidden.max(self.watched_last);
        }
        self.tracking = tracking;
    }

    /// All of the guest's memory was found in the page table.
    pub(super) fn found_in_page_table(&mut self) {
        self.hidden = self.watched_last;
    }

    /// Tracking rests and no new phase was detected: renews the age of the report.
    pub(super) fn confirm(&mut self) {
        if let Some((_, at)) = &mut self.report {
            *at = Instant::now();
        }
    }

    /// Tracking rests and the working set shifted: updates the report, up to `tracked` memory.
    pub(super) fn scale_by(
        &mut self,
        WorkingSetShift { before, now }: WorkingSetShift,
        tracked: Bytes,
    ) {
        if let Some((report, at)) = &mut self.report {
            *report = report.moved(now, before, tracked);
            *at = Instant::now();
        }
    }

    /// Records why tracking fails; `state` is the resulting state.
    pub(super) fn fail(&mut self, state: TrackingState, trouble: String) {
        self.tracking = Tracking { trouble: Some(trouble), ..Tracking::new(state) };
        self.coldness = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_model::TrackingSource;

    use super::*;

    #[test]
    fn a_shifted_report_is_fresh_and_capped_by_guest_memory() {
        let seen = Instant::now() - Duration::from_secs(60);
        let report = TrackerReport {
            working_set: Bytes::mib(60),
            curve: None,
            source: TrackingSource::Library,
        };
        let mut latest =
            Latest { report: Some((report, seen)), ..Latest::new(TrackingState::Resting) };
        latest.scale_by(WorkingSetShift { before: 100, now: 150 }, Bytes::mib(512));
        let (shifted, at) = latest.report.clone().unwrap();
        assert!(shifted.working_set == Bytes::mib(90) && at > seen);
        latest.scale_by(WorkingSetShift { before: 1, now: 10 }, Bytes::mib(512));
        assert_eq!(latest.report.unwrap().0.working_set, Bytes::mib(512));
    }

    #[test]
    fn confirming_renews_a_report_but_invents_none() {
        let mut latest = Latest::new(TrackingState::Waiting);
        latest.confirm();
        assert!(latest.report.is_none());
        let seen = Instant::now() - Duration::from_secs(60);
        let report = TrackerReport {
            working_set: Bytes::mib(7),
            curve: None,
            source: TrackingSource::Library,
        };
        latest.report = Some((report.clone(), seen));
        latest.confirm();
        let (kept, at) = latest.report.unwrap();
        assert!(kept == report && at > seen);
    }
}
