//! Data TLB misses of a guest's virtual processors: the signal of the papers.
//!
//! `perf_event_open` counts them per thread, under KVM in guest mode too. A counter that shares the
//! processor's few registers with others is scaled by the share of time it was counting.
//! Cost: a system call per thread and read. Source: perf_event_open(2); MEB §3.5, IMT §4.
//! Limits: needs a processor and a hypervisor below that provide the counter; without permission to
//! observe the kernel, only user mode is counted. Our machines have no such counter.

use std::path::Path;

use perf_event::events::{Cache, CacheOp, CacheResult, WhichCache};
use perf_event::{Builder, Counter};

use crate::signals::threads::virtual_processors;

/// The event: loads that missed the data TLB.
const MISSES: Cache =
    Cache { which: WhichCache::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };

/// Counts the misses of one guest.
#[derive(Debug)]
pub struct DataTlbCounter {
    counters: Vec<Counter>,
}

impl DataTlbCounter {
    /// For the current virtual processors of process `pid` in `proc`; `None` if the event cannot be
    /// counted.
    pub fn open(proc: &Path, pid: u32) -> Option<DataTlbCounter> {
        let threads = virtual_processors(&proc.join(pid.to_string()).join("task"));
        let counters: Option<Vec<Counter>> = threads.into_iter().map(counter).collect();
        counters.filter(|counters| !counters.is_empty()).map(|counters| DataTlbCounter { counters })
    }

    /// Misses until now; `None` if a counter cannot be read.
    pub fn read(&mut self) -> Option<u64> {
        self.counters.iter_mut().try_fold(0_u64, |sum, counter| {
            let read = counter.read_count_and_time().ok()?;
            let (enabled, running) = (read.time_enabled.into(), read.time_running.into());
            Some(sum.saturating_add(scaled(read.count, enabled, running)))
        })
    }
}

/// Opens the counter of a thread.
fn counter(tid: u32) -> Option<Counter> {
    let tid = i32::try_from(tid).ok()?;
    let build = |excludes_kernel: bool| {
        let mut builder = Builder::new().kind(MISSES).observe_pid(tid).any_cpu();
        builder.exclude_kernel(excludes_kernel);
        let mut counter = builder.build()?;
        counter.enable().map(|()| counter)
    };
    build(false).or_else(|_| build(true)).ok()
}

/// Extrapolates `count` to the whole enabled time.
fn scaled(count: u64, enabled: u128, running: u128) -> u64 {
    let all = u128::from(count).saturating_mul(enabled).checked_div(running).unwrap_or(0);
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_to_the_enabled_time() {
        assert_eq!(scaled(1000, 300, 100), 3000);
        assert_eq!((scaled(7, 5, 5), scaled(7, 5, 0)), (7, 0));
        assert_eq!(scaled(u64::MAX, u128::MAX, 1), u64::MAX);
    }

    /// On a machine without the event there is no counter, and that is not an error.
    #[test]
    fn counts_never_decrease() {
        assert!(DataTlbCounter::open(Path::new("/none"), 1).is_none());
        let proc = Path::new("/proc");
        let Some(mut misses) = DataTlbCounter::open(proc, std::process::id()) else { return };
        let before = misses.read().unwrap();
        assert!(misses.read().unwrap() >= before);
    }
}
