//! Converts a guest's reports to samples.
//!
//! Idea: reports have counters since boot and the workloads that run now; samples have counters
//! since the schedule began, including those of workloads that have ended.
//! Limits: pure. A lost report is counted, but its figures are not estimated.

use std::collections::BTreeMap;

use ballast_lab_guest::protocol::{FromGuest, LabReport, ProcessEnd, VmCounters, WorkloadTotals};
use ballast_model::{Bytes, PAGE_SIZE};

use super::record::InsideSample;

/// What one guest has reported since the schedule began.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    /// The guest's uptime when the schedule began, in milliseconds.
    began_ms: i64,
    /// The guest's counters at that time.
    base: VmCounters,
    /// What its workloads had done at that time.
    before: BTreeMap<String, WorkDone>,
    ended: BTreeMap<String, (ProcessEnd, WorkloadTotals)>,
    refusals: Vec<String>,
    last: VmCounters,
    last_seq: u64,
    lost: u64,
}

/// What a workload has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkDone {
    pub(super) touches: u64,
    pub(super) iterations: u64,
}

impl Collector {
    /// Starts from `report`, which came `age_ms` before the schedule began.
    pub(super) fn new(report: &LabReport, age_ms: u64) -> Self {
        let before = report
            .workloads
            .iter()
            .map(|it| (it.id.clone(), WorkDone { touches: it.touches, iterations: it.iterations }));
        Collector {
            began_ms: signed(report.uptime_ms) + signed(age_ms),
            base: report.vm,
            before: before.collect(),
            ended: BTreeMap::new(),
            refusals: Vec::new(),
            last: report.vm,
            last_seq: report.seq,
            lost: 0,
        }
    }

    /// Takes a message of the guest; a report yields a sample.
    pub(super) fn take(&mut self, message: FromGuest) -> Option<InsideSample> {
        match message {
            FromGuest::Report(report) => return Some(self.report(&report)),
            FromGuest::Done { id, end, totals } => {
                self.ended.insert(id, (end, totals));
            }
            FromGuest::Error { id, text } => {
                let about = id.map(|id| format!("{id}: ")).unwrap_or_default();
                self.refusals.push(format!("{about}{text}"));
            }
            FromGuest::Hello { .. } | FromGuest::Ready(_) | FromGuest::ExecDone { .. } => {}
        }
        None
    }

    fn report(&mut self, report: &LabReport) -> InsideSample {
        self.lost += report.seq.saturating_sub(self.last_seq + 1);
        self.last_seq = report.seq;
        self.last = report.vm;
        let memory = &report.memory;
        let running = || report.workloads.iter().filter(|load| !self.ended.contains_key(&load.id));
        let ended = || self.ended.values().map(|(_, totals)| totals);
        let before = || self.before.values();
        let pages = |now, base| since(now, base).map(|pages| pages * PAGE_SIZE);
        let used = |all: Option<Bytes>, free: Option<Bytes>| Some(all?.saturating_sub(free?).get());
        InsideSample {
            at_ms: signed(report.uptime_ms) - self.began_ms,
            used_bytes: used(memory.total, memory.available),
            available_bytes: memory.available.map(Bytes::get),
            swap_used_bytes: used(memory.swap_total, memory.swap_free),
            touches: running()
                .map(|load| load.touches)
                .chain(ended().map(|it| it.touches))
                .sum::<u64>()
                .saturating_sub(before().map(|it| it.touches).sum()),
            iterations: running()
                .map(|load| load.iterations)
                .chain(ended().map(|it| it.iterations))
                .sum::<u64>()
                .saturating_sub(before().map(|it| it.iterations).sum()),
            size_bytes: running().map(|load| load.size.get()).sum(),
            size_wanted_bytes: running().map(|load| load.size_wanted.get()).sum(),
            major_faults: since(report.vm.pgmajfault, self.base.pgmajfault),
            swap_in_bytes: pages(report.vm.pswpin, self.base.pswpin),
            swap_out_bytes: pages(report.vm.pswpout, self.base.pswpout),
        }
    }

    /// What a workload had done before the schedule began.
    pub(super) fn before(&self, id: &str) -> WorkDone {
        self.before.get(id).copied().unwrap_or_default()
    }

    /// How a workload ended, if it has.
    pub(super) fn end_of(&self, id: &str) -> Option<(ProcessEnd, WorkloadTotals)> {
        self.ended.get(id).copied()
    }

    /// What the guest refused or complained about, the oldest first, each once; forgotten after
    /// this call.
    pub(super) fn take_refusals(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refusals)
    }

    /// Remarks for the readers of the figures.
    pub(super) fn remarks(&self, guest: &str) -> Vec<String> {
        let killed = since(self.last.oom_kill, self.base.oom_kill).filter(|killed| *killed > 0);
        let killed = killed.map(|killed| {
            format!("guest {guest} ran out of memory: its kernel killed {killed} processes")
        });
        let lost =
            (self.lost > 0).then(|| format!("{} reports of guest {guest} were lost", self.lost));
        killed.into_iter().chain(lost).collect()
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

/// A counter's growth; `None` if either value is unknown.
fn since(now: Option<u64>, base: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(base?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_lab_guest::protocol::{MemoryInfo, WorkloadReport, WorkloadState};
    use ballast_lab_guest::workload::Kind;

    fn report(seq: u64, faults: Option<u64>, touches: &[(&str, u64)]) -> LabReport {
        let workload = |(id, touches): &(&str, u64)| WorkloadReport {
            id: (*id).to_owned(),
            kind: Kind::Mono,
            phase: WorkloadState::Touching,
            touches: *touches,
            touches_delta: 0,
            iterations: 1,
            size: Bytes::mib(10),
            size_wanted: Bytes::mib(20),
            major_faults: None,
            resident: None,
            swapped: None,
        };
        LabReport {
            seq,
            uptime_ms: 5000 + 1000 * seq,
            memory: MemoryInfo {
                total: Some(Bytes::mib(500)),
                available: Some(Bytes::mib(300)),
                swap_total: Some(Bytes::mib(64)),
                swap_free: Some(Bytes::mib(60)),
                ..MemoryInfo::default()
            },
            vm: VmCounters { pgmajfault: faults, pswpin: faults, ..VmCounters::default() },
            workloads: touches.iter().map(workload).collect(),
        }
    }

    fn done(id: &str, touches: u64) -> FromGuest {
        let totals = WorkloadTotals { touches, iterations: 3, elapsed_ms: 10, major_faults: None };
        FromGuest::Done { id: id.to_owned(), end: ProcessEnd::Stopped {}, totals }
    }

    fn take(collector: &mut Collector, report: LabReport) -> InsideSample {
        collector.take(FromGuest::Report(Box::new(report))).unwrap()
    }

    #[test]
    fn counters_and_time_count_from_the_beginning() {
        let mut collector = Collector::new(&report(0, Some(40), &[]), 250);
        let inside = take(&mut collector, report(1, Some(43), &[("w", 7)]));
        assert_eq!(inside.at_ms, 750);
        assert_eq!((inside.major_faults, inside.touches), (Some(3), 7));
        assert_eq!(inside.swap_in_bytes, Some(3 * PAGE_SIZE));
        assert_eq!(inside.used_bytes, Some(200 << 20));
        assert_eq!(inside.swap_used_bytes, Some(4 << 20));
        let unknown = take(&mut collector, report(2, None, &[]));
        assert_eq!((unknown.major_faults, unknown.swap_in_bytes), (None, None));
    }

    #[test]
    fn what_ended_workloads_did_is_kept_and_counted_once() {
        let mut collector = Collector::new(&report(0, None, &[]), 0);
        assert_eq!(take(&mut collector, report(1, None, &[("w", 7), ("v", 1)])).touches, 8);
        assert_eq!(collector.take(done("w", 9)), None);
        let inside = take(&mut collector, report(2, None, &[("w", 9), ("v", 2)]));
        assert_eq!((inside.touches, inside.iterations), (11, 4));
        assert_eq!(inside.size_wanted_bytes, 20 << 20);
        assert_eq!(collector.end_of("w").map(|(_, totals)| totals.touches), Some(9));
        assert_eq!(collector.end_of("v"), None);
    }

    #[test]
    fn what_was_done_before_the_schedule_does_not_count() {
        let mut collector = Collector::new(&report(0, None, &[("w", 1000)]), 0);
        assert_eq!(collector.before("w"), WorkDone { touches: 1000, iterations: 1 });
        assert_eq!(collector.before("v"), WorkDone::default());
        let inside = take(&mut collector, report(1, None, &[("w", 1007), ("v", 2)]));
        assert_eq!((inside.touches, inside.iterations), (9, 1));
        collector.take(done("w", 1010));
        assert_eq!(take(&mut collector, report(2, None, &[("v", 3)])).touches, 13);
    }

    #[test]
    fn lost_reports_and_refusals_are_reported() {
        let mut collector = Collector::new(&report(0, None, &[]), 0);
        take(&mut collector, report(4, None, &[]));
        assert_eq!(collector.remarks("a"), ["3 reports of guest a were lost"]);
        let refusal = FromGuest::Error { id: Some("w".to_owned()), text: "no room".to_owned() };
        collector.take(refusal);
        assert_eq!(collector.take_refusals(), ["w: no room"]);
        assert!(collector.take_refusals().is_empty());
    }
}
