//! Misses of the data TLB by a guest's virtual processors.
//!
//! Idea: `perf_event_open` counts them per thread, in the guest's mode too under KVM. What the papers go by.
//! A counter that shares the processor's few registers with others is scaled to the time it did not count.
//! Cost: a system call a thread and reading. Source: perf_event_open(2); MEB §3.5, IMT §4.
//! Limits: needs a processor, and a hypervisor below, that give counters out; without the permission to watch
//! the kernel, user mode alone is counted. The machines this was written on have none.

use std::path::Path;

use perf_event::events::{Cache, CacheOp, CacheResult, WhichCache};
use perf_event::{Builder, Counter};

use super::threads::virtual_processors;

/// Loads that missed.
const MISSES: Cache =
    Cache { which: WhichCache::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };

/// Counts them of one guest.
#[derive(Debug)]
pub struct DataTlb {
    counters: Vec<Counter>,
}

impl DataTlb {
    /// Of the process `pid`, as seen in `proc`, with the virtual processors that it has now; `None` where
    /// they cannot be counted.
    pub fn open(proc: &Path, pid: u32) -> Option<DataTlb> {
        let threads = virtual_processors(&proc.join(pid.to_string()).join("task"));
        let counters: Option<Vec<Counter>> = threads.into_iter().map(counter).collect();
        counters.filter(|counters| !counters.is_empty()).map(|counters| DataTlb { counters })
    }

    /// Misses until now; `None` where one cannot be read.
    pub fn read(&mut self) -> Option<u64> {
        self.counters.iter_mut().try_fold(0_u64, |sum, counter| {
            let read = counter.read_count_and_time().ok()?;
            let (enabled, running) = (read.time_enabled.into(), read.time_running.into());
            Some(sum.saturating_add(scaled(read.count, enabled, running)))
        })
    }
}

/// The counter of a thread.
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

/// What `count` would be, had it been counted all the time.
fn scaled(count: u64, enabled: u128, running: u128) -> u64 {
    let all = u128::from(count).saturating_mul(enabled).checked_div(running).unwrap_or(0);
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted for a third of the time: three times as many.
    #[test]
    fn an_example_by_hand() {
        assert_eq!(scaled(1000, 300, 100), 3000);
        assert_eq!((scaled(7, 5, 5), scaled(7, 5, 0)), (7, 0));
        assert_eq!(scaled(u64::MAX, u128::MAX, 1), u64::MAX);
    }

    /// Where the machine counts, a count never falls; elsewhere there is none, and no error.
    #[test]
    fn there_is_a_counter_that_grows_or_none() {
        assert!(DataTlb::open(Path::new("/none"), 1).is_none());
        let proc = Path::new("/proc");
        let Some(mut misses) = DataTlb::open(proc, std::process::id()) else { return };
        let before = misses.read().unwrap();
        assert!(misses.read().unwrap() >= before);
    }
}
