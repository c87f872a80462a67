//! Signals that might detect a new phase of the working set.
//!
//! Idea: to find the best signal, all are recorded in the same intervals as the working set;
//! `ballast imt --events` replays each.
//!
//! Cost: two small files of `/proc` per vCPU and interval; 10 to 35 ms with the referenced bits.
//! Limits: tracking itself disturbs some signals: every trap is a page fault of the vCPU's thread.
//! Guest statistics arrive once per second; shorter intervals repeat them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ballast_host::PROC;
use ballast_model::GuestStats;
use ballast_tracker::{
    ActivityReader, DataTlbCounter, ThreadActivity, clear_referenced, referenced,
};
use ballast_tracker_proto::{Granule, GranuleSample, HashKind, WatchMode};

use super::row::Row;
use super::tiny::{self, TinySample};

/// Sizes of the tiny sample to compare.
const SIZES: [u64; 3] = [32, 64, 128];

/// The value of each signal in an interval; `None` if it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    samples: [Option<u64>; SIZES.len()],
    activity: Option<ThreadActivity>,
    data_tlb: Option<u64>,
    guest: Option<[u64; 3]>,
    referenced: Option<u64>,
}

impl Signals {
    /// The CSV column names.
    pub const HEADER: &str = "sample_32,sample_64,sample_128,thread_minor_faults,\
        thread_major_faults,thread_switches,data_tlb_misses,guest_minor_faults,guest_major_faults,\
        guest_swap_bytes,referenced_bytes";

    /// The values as CSV columns.
    pub fn columns(&self) -> String {
        let activity = self.activity.map(|activity| {
            [activity.minor_faults, activity.major_faults, activity.context_switches]
        });
        let three = |values: Option<[u64; 3]>| values.map_or([None; 3], |values| values.map(Some));
        let mut cells = self.samples.to_vec();
        cells.extend(three(activity));
        cells.push(self.data_tlb);
        cells.extend(three(self.guest));
        cells.push(self.referenced);
        let text = |cell: Option<u64>| cell.map_or(String::new(), |value| value.to_string());
        cells.into_iter().map(text).collect::<Vec<_>>().join(",")
    }
}

/// A guest's minor faults, major faults and swapped bytes in the last second, shared between the
/// task that requests statistics and the recorder.
#[derive(Debug, Default)]
pub struct GuestCounts {
    /// Whether two readings were taken.
    is_known: AtomicBool,
    rates: [AtomicU64; 3],
}

impl GuestCounts {
    /// The counters since boot; `None` unless the guest reports all of them.
    pub fn of(stats: &GuestStats) -> Option<[u64; 3]> {
        let swapped = stats.swap_in?.get().saturating_add(stats.swap_out?.get());
        Some([stats.minor_faults?, stats.major_faults?, swapped])
    }

    /// Takes two consecutive readings.
    pub fn set(&self, before: [u64; 3], now: [u64; 3]) {
        for ((rate, now), before) in self.rates.iter().zip(now).zip(before) {
            rate.store(now.saturating_sub(before), Ordering::Relaxed);
        }
        self.is_known.store(true, Ordering::Release);
    }

    fn get(&self) -> Option<[u64; 3]> {
        let is_known = self.is_known.load(Ordering::Acquire);
        is_known.then(|| self.rates.each_ref().map(|rate| rate.load(Ordering::Relaxed)))
    }
}

/// Reads all signals of a guest.
pub struct SignalReader {
    pid: u32,
    hash: HashKind,
    samples: [TinySample; SIZES.len()],
    activity: Option<ActivityReader>,
    before: Option<ThreadActivity>,
    data_tlb: Option<DataTlbCounter>,
    is_referenced_read: bool,
}

impl SignalReader {
    /// For the guest of process `pid`; `seed` picks the sampled pages.
    pub fn new(pid: u32, seed: u64, is_referenced_read: bool) -> SignalReader {
        SignalReader {
            pid,
            hash: HashKind::multiply_add(seed),
            samples: SIZES.map(TinySample::new),
            activity: ActivityReader::open(Path::new(PROC), pid),
            before: None,
            data_tlb: DataTlbCounter::open(Path::new(PROC), pid),
            is_referenced_read,
        }
    }

    /// Starts an interval.
    pub fn begin(&mut self) {
        if self.is_referenced_read {
            // If the bits cannot be cleared, the signal has no value.
            self.is_referenced_read = clear_referenced(self.pid).is_ok();
        }
        self.before = self.activity.as_ref().and_then(ActivityReader::read);
        self.take_misses();
    }

    /// Ends the interval, in which `touches` were seen; `guest` has the guest's own counts.
    pub fn end(&mut self, row: &Row, touches: &[u64], guest: Option<&GuestCounts>) -> Signals {
        let now = self.activity.as_ref().and_then(ActivityReader::read);
        Signals {
            samples: self.samples(row, touches).unwrap_or_default(),
            activity: now.zip(self.before).map(|(now, before)| now.since(before)),
            data_tlb: self.take_misses(),
            guest: guest.and_then(GuestCounts::get),
            referenced: self.is_referenced_read.then(|| referenced(self.pid, &[]).ok()).flatten(),
        }
    }

    /// Data TLB misses since the last call.
    fn take_misses(&mut self) -> Option<u64> {
        let misses = self.data_tlb.as_mut()?.take();
        if misses.is_none() {
            self.data_tlb = None;
        }
        misses
    }

    fn samples(&mut self, row: &Row, touches: &[u64]) -> Option<[Option<u64>; SIZES.len()]> {
        let seen = row.seen.as_ref().filter(|seen| seen.lost == 0)?;
        let granule = Granule::new(u32::try_from(seen.granule_pages).ok()?).ok()?;
        let mode = WatchMode { granule, sample: GranuleSample::rate(self.hash, seen.share) };
        let granules = row.tracked.to_pages() / seen.granule_pages.max(1);
        let hash = self.hash;
        Some(self.samples.each_mut().map(|tiny| {
            let sample = tiny.sample(hash, granules, mode.sample);
            Some(tiny::events(touches, mode, sample))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use ballast_model::Bytes;

    use super::super::fixture::row;
    use super::*;

    #[test]
    fn missing_signals_are_empty_columns() {
        let columns = |text: &str| text.split(',').count();
        assert_eq!(Signals::default().columns(), ",".repeat(10));
        let activity = ThreadActivity { minor_faults: 4, major_faults: 5, context_switches: 6 };
        let all = Signals {
            samples: [Some(1), Some(2), Some(3)],
            activity: Some(activity),
            data_tlb: Some(7),
            guest: Some([8, 9, 10]),
            referenced: Some(11),
        };
        assert_eq!(all.columns(), "1,2,3,4,5,6,7,8,9,10,11");
        assert_eq!(columns(&all.columns()), columns(Signals::HEADER));
    }

    #[test]
    fn guest_counts_need_two_readings() {
        let stats = GuestStats {
            minor_faults: Some(700),
            major_faults: Some(3),
            swap_in: Some(Bytes::pages(2)),
            swap_out: Some(Bytes::pages(1)),
            ..GuestStats::default()
        };
        assert_eq!(GuestCounts::of(&stats), Some([700, 3, 12_288]));
        assert_eq!(GuestCounts::of(&GuestStats { swap_in: None, ..stats }), None);
        let counts = GuestCounts::default();
        assert_eq!(counts.get(), None);
        counts.set([600, 3, 0], [700, 3, 12_288]);
        assert_eq!(counts.get(), Some([100, 0, 12_288]));
    }

    /// Reads a child with one thread: this process's threads come and go with other tests, and an
    /// ended thread cannot be read.
    #[test]
    fn signals_of_any_process_can_be_read() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let mut reader = SignalReader::new(child.id(), 1, false);
        reader.begin();
        let signals = reader.end(&row(1, true), &[], None);
        assert_eq!((signals.samples, signals.referenced), ([Some(0); 3], None));
        assert!(signals.activity.is_some() && signals.guest.is_none());
        assert_eq!(reader.end(&row(1, false), &[], None).samples, [None; 3]);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(reader.end(&row(1, true), &[], None).activity, None);
    }
}
