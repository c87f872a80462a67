//! Detects a guest that stands still although its workloads should run.
//!
//! Idea: a workload that runs touches pages, and one that waits for memory reads pages back. If a
//! guest goes on reporting and neither counter moves for [`STILL_MS`] of its own time and in
//! [`REPORTS_MIN`] reports, it does not wait for memory: a request to its disk is lost, or a
//! program is stuck. A guest that has not reported for [`SILENT_FOR`] is as bad. Both make the run
//! worthless, so the run fails, and the error shows the guest's state.
//!
//! Limits: pure. Workloads that touch less than one page a second do not count as running. A guest
//! that gets no processor time sends no reports, so it counts as silent, not as still.

use std::time::Duration;

use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_model::PAGE_SIZE;

use super::record::InsideSample;

/// How long nothing may move, on the guest's own clock, in milliseconds.
const STILL_MS: i64 = 30_000;
/// The least number of reports without movement, after the first one.
const REPORTS_MIN: u32 = 10;
/// How long a guest may send no report: one that thrashes under the emulator takes many seconds.
const SILENT_FOR: Duration = Duration::from_secs(120);

/// How a guest stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stillness {
    /// It reports, but nothing has moved for this time, in milliseconds.
    Still(i64),
    /// It has not reported for this time.
    Silent(Duration),
}

impl std::fmt::Display for Stillness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stillness::Still(ms) => write!(
                f,
                "hangs: for {} s its workloads, which should run, have touched and read back \
                 nothing, while it reports",
                ms / 1000
            ),
            Stillness::Silent(time) => write!(f, "hangs: no report for {} s", time.as_secs()),
        }
    }
}

/// Counters that move while a workload runs: those of every report, and those that may be unknown.
type GuestProgress = ([u64; 4], [Option<u64>; 3]);

/// Detects stillness of one guest.
#[derive(Clone, Debug, Default)]
pub(super) struct StillnessWatch {
    /// The counters at the last report in which any had moved, and that report's time in
    /// milliseconds.
    moved: Option<(GuestProgress, i64)>,
    reports_still: u32,
    still_ms: i64,
}

impl StillnessWatch {
    /// Takes a report. `should_run`: whether a workload is running that touches pages all the time.
    pub(super) fn report(&mut self, inside: &InsideSample, should_run: bool) {
        let now = (
            [inside.touches, inside.iterations, inside.size_bytes, inside.size_wanted_bytes],
            [inside.major_faults, inside.swap_in_bytes, inside.swap_out_bytes],
        );
        match self.moved {
            Some((before, at_ms)) if should_run && before == now => {
                self.reports_still += 1;
                self.still_ms = inside.at_ms - at_ms;
            }
            _ => {
                self.moved = Some((now, inside.at_ms));
                (self.reports_still, self.still_ms) = (0, 0);
            }
        }
    }

    /// Whether and how the guest stands still; `silence`: the time since its last report.
    pub(super) fn found(&self, silence: Duration) -> Option<Stillness> {
        if silence >= SILENT_FOR {
            return Some(Stillness::Silent(silence));
        }
        let is_still = self.reports_still >= REPORTS_MIN && self.still_ms >= STILL_MS;
        is_still.then_some(Stillness::Still(self.still_ms))
    }
}

/// Whether a workload touches at least one page a second for as long as it runs.
pub(super) fn is_steady(spec: &WorkloadSpec) -> bool {
    match &spec.pattern {
        Pattern::Cold { size, share_per_s } => {
            size.get() as f64 / PAGE_SIZE as f64 * share_per_s >= 1.0
        }
        // A program may wait for its server to shut down or to load its data.
        Pattern::Program { .. } => false,
        _ => spec.touches_per_s.is_none_or(|rate| rate > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_model::Bytes;
    use proptest::prelude::*;

    fn inside(at_ms: i64, touches: u64, faults: u64) -> InsideSample {
        InsideSample { at_ms, touches, major_faults: Some(faults), ..InsideSample::default() }
    }

    fn watched(reports: impl IntoIterator<Item = (InsideSample, bool)>) -> Option<Stillness> {
        let mut watch = StillnessWatch::default();
        reports.into_iter().for_each(|(inside, should_run)| watch.report(&inside, should_run));
        watch.found(Duration::ZERO)
    }

    /// The run of 2026-11-26: touches and faults of one guest fell to 0 at 100 s.
    #[test]
    fn touches_and_faults_that_stop_are_found() {
        let run = |until: i64| {
            watched((0..=until).map(|second| {
                let worked = second.min(100) as u64;
                (inside(second * 1000, worked * 40_000, worked * 7), true)
            }))
        };
        assert_eq!(run(129), None);
        assert_eq!(run(130), Some(Stillness::Still(30_000)));
        assert_eq!(run(140), Some(Stillness::Still(40_000)));
    }

    #[test]
    fn a_guest_that_only_reads_back_is_not_still() {
        let thrashes = (0..200).map(|second| (inside(second * 1000, 5, second as u64), true));
        assert_eq!(watched(thrashes), None);
        let fills = (0..200).map(|second| {
            let filled =
                InsideSample { size_bytes: second as u64 * 4096, ..inside(second * 1000, 0, 0) };
            (filled, true)
        });
        assert_eq!(watched(fills), None);
    }

    #[test]
    fn a_guest_without_work_is_not_still() {
        assert_eq!(watched((0..200).map(|second| (inside(second * 1000, 5, 1), false))), None);
        // Idle for a long time, and then a workload begins.
        let begins = (0..110).map(|second| (inside(second * 1000, 5, 1), second >= 100));
        assert_eq!(watched(begins), None);
    }

    /// A guest without processor time for half a minute reports late; then it has moved or will
    /// move.
    #[test]
    fn few_reports_are_no_stillness() {
        let few = (0..5).map(|report| (inside(report * 20_000, 5, 1), true));
        assert_eq!(watched(few), None);
        let watch = StillnessWatch::default();
        assert_eq!(watch.found(Duration::from_secs(119)), None);
        let silent = Duration::from_secs(120);
        assert_eq!(watch.found(silent), Some(Stillness::Silent(silent)));
    }

    #[test]
    fn workloads_that_may_rest_do_not_count() {
        let cold = |share_per_s| Pattern::Cold { size: Bytes::mib(4), share_per_s };
        assert!(!is_steady(&cold(0.0).into()) && is_steady(&cold(0.5).into()));
        assert!(is_steady(&Pattern::Constant { size: Bytes::mib(1) }.into()));
        let slow = WorkloadSpec {
            touches_per_s: Some(0),
            ..Pattern::Constant { size: Bytes::mib(1) }.into()
        };
        assert!(!is_steady(&slow));
    }

    proptest! {
        /// The oracle looks back over all reports.
        #[test]
        fn it_finds_what_looking_back_finds(
            steps in prop::collection::vec((0i64..5_000, 0u64..2, any::<bool>()), 1..120)
        ) {
            let mut watch = StillnessWatch::default();
            let (mut at_ms, mut touches, mut all) = (0, 0, Vec::new());
            for (time, moved, should_run) in steps {
                at_ms += time;
                touches += moved * u64::from(all.len() % 7 == 0);
                all.push((at_ms, touches, should_run));
                watch.report(&inside(at_ms, touches, 0), should_run);
            }
            let last = all[all.len() - 1];
            let same = all.iter().rev().skip(1).zip(all.iter().rev());
            // As long as, of two neighbouring reports, the later one should run and has the touches
            // of the earlier one.
            let still = same.take_while(|(earlier, later)| later.2 && earlier.1 == later.1).count();
            let began = all[all.len() - 1 - still].0;
            let expected = still >= 10 && last.0 - began >= 30_000;
            prop_assert_eq!(watch.found(Duration::ZERO).is_some(), expected);
        }
    }
}
