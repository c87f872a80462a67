//! Data TLB misses of a guest's virtual processors: the signal that the papers use.
//!
//! `perf_event_open` counts them per thread, in guest mode only, because misses of the hypervisor
//! and of the page tracker say nothing about the guest. If a counter shares the processor's few
//! registers with others, its count is scaled by the share of time in which it counted.
//! Cost: a system call per thread and interval, and a listing of the threads.
//! Source: perf_event_open(2); MEB §3.5, IMT §4.
//! Limits: guests under KVM only, on processors that have the counter, and not if a hypervisor
//! below hides it. The project's own machines have none.

use std::path::{Path, PathBuf};

use perf_event::events::{Cache, CacheOp, CacheResult, WhichCache};
use perf_event::{Builder, Counter};

use crate::kvm::is_under_kvm;
use crate::signals::threads::virtual_processors;

/// The event: loads that missed the data TLB.
const MISSES: Cache =
    Cache { which: WhichCache::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };

/// Counts the misses of one guest.
#[derive(Debug)]
pub struct DataTlbCounter {
    task: PathBuf,
    threads: Vec<ThreadCounter>,
}

/// The counter of one virtual processor.
#[derive(Debug)]
struct ThreadCounter {
    tid: u32,
    counter: Counter,
    before: MissReading,
}

/// One reading of a counter; times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MissReading {
    count: u64,
    /// How long its thread ran.
    enabled: u64,
    /// For how much of that time it counted.
    running: u64,
}

impl DataTlbCounter {
    /// For the virtual processors of process `pid` in `proc`; `None` if the event cannot be
    /// counted.
    pub fn open(proc: &Path, pid: u32) -> Option<DataTlbCounter> {
        if !is_under_kvm(proc, pid).ok()? {
            return None;
        }
        let task = proc.join(pid.to_string()).join("task");
        let mut counter = DataTlbCounter { task, threads: Vec::new() };
        counter.follow_threads()?;
        Some(counter).filter(|counter| !counter.threads.is_empty())
    }

    /// Misses since the last call, or since it was opened; `None` if they can no longer be counted.
    pub fn take(&mut self) -> Option<u64> {
        let mut misses: u64 = 0;
        for thread in &mut self.threads {
            let now = MissReading::of(&mut thread.counter)?;
            misses = misses.saturating_add(now.misses_since(thread.before)?);
            thread.before = now;
        }
        self.follow_threads()?;
        Some(misses)
    }

    /// Opens counters for new virtual processors and closes those of ended ones; `None` if one of
    /// them cannot be counted.
    fn follow_threads(&mut self) -> Option<()> {
        let tids = virtual_processors(&self.task);
        self.threads.retain(|thread| tids.binary_search(&thread.tid).is_ok());
        for tid in tids {
            if self.threads.iter().all(|thread| thread.tid != tid) {
                let counter = counter(tid)?;
                self.threads.push(ThreadCounter { tid, counter, before: MissReading::default() });
            }
        }
        Some(())
    }
}

impl MissReading {
    fn of(counter: &mut Counter) -> Option<MissReading> {
        let read = counter.read_count_and_time().ok()?;
        Some(MissReading {
            count: read.count,
            enabled: read.time_enabled,
            running: read.time_running,
        })
    }

    /// Misses since `before`, extrapolated to all the time in which its thread ran; `None` if it
    /// did not count at all, because others used the registers.
    fn misses_since(self, before: MissReading) -> Option<u64> {
        let enabled = self.enabled.saturating_sub(before.enabled);
        let running = self.running.saturating_sub(before.running);
        let count = self.count.saturating_sub(before.count);
        if enabled == 0 {
            return Some(count);
        }
        let all = (u128::from(count) * u128::from(enabled)).checked_div(u128::from(running))?;
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// Opens the counter of a thread.
fn counter(tid: u32) -> Option<Counter> {
    let tid = i32::try_from(tid).ok()?;
    let build = |excludes_kernel: bool| {
        let mut builder = Builder::new().kind(MISSES).observe_pid(tid).any_cpu();
        builder.exclude_host(true).exclude_kernel(excludes_kernel);
        let mut counter = builder.build()?;
        counter.enable().map(|()| counter)
    };
    // Without permission to observe the kernel, only user mode is counted.
    build(false).or_else(|_| build(true)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_to_the_time_a_thread_ran() {
        let reading = |count, enabled, running| MissReading { count, enabled, running };
        let since = |before: MissReading, now: MissReading| now.misses_since(before);
        assert_eq!(since(MissReading::default(), reading(1000, 300, 100)), Some(3000));
        assert_eq!(since(reading(1000, 300, 100), reading(1007, 305, 105)), Some(7));
        assert_eq!(since(reading(7, 5, 5), reading(7, 5, 5)), Some(0), "it did not run");
        assert_eq!(since(reading(7, 5, 5), reading(7, 9, 5)), None, "it ran, uncounted");
        let all = since(MissReading::default(), reading(u64::MAX, u64::MAX, 1));
        assert_eq!(all, Some(u64::MAX));
    }

    #[test]
    fn only_guests_under_kvm_have_a_counter() {
        assert!(DataTlbCounter::open(Path::new("/none"), 1).is_none());
        assert!(DataTlbCounter::open(Path::new("/proc"), std::process::id()).is_none());
    }

    /// On a machine without the event there is no counter, which is not an error.
    #[test]
    fn threads_that_come_and_go_are_followed() {
        let task = PathBuf::from(format!("/proc/{}/task", std::process::id()));
        let mut misses = DataTlbCounter { task, threads: Vec::new() };
        let is_there = misses.follow_threads().is_some();
        assert_eq!(is_there, counter(std::process::id()).is_some());
        if !is_there {
            return;
        }
        let before = misses.threads.len();
        std::thread::scope(|scope| {
            let (end, waits) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || waits.recv());
            assert!(misses.take().is_some());
            assert!(misses.threads.len() > before);
            drop(end);
        });
        assert!(misses.take().is_some());
    }
}
