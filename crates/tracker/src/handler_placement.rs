//! Places the thread that answers faults beside the virtual processor that traps.
//!
//! A thread that traps sleeps until the handler has answered. On the same processor of the host
//! that takes two context switches; on another it takes an interrupt in each direction, and two
//! wake-ups if the processors are idle. So at the start of each interval the handler is pinned to
//! the last processor of the hypervisor's busiest thread. If no thread is busiest by far (several
//! virtual processors work), the handler may run anywhere.
//!
//! Measured (`ballast bench track --handler`, 2026-11-22, two cores, load average 8): a trap took
//! 2.6 to 7.1 µs with the handler beside the program, 30 to 63 µs with the handler left to the
//! kernel, 180 to 350 µs with the handler on the other core.
//!
//! Done from outside, because a sandboxed hypervisor may not do it itself.
//!
//! Cost: a small file per thread of the hypervisor and interval.
//! Source: `/proc/PID/task/TID/stat` (proc_pid_stat(5)); the placement is our own idea.
//! Limits: no gain after a virtual processor migrates within an interval; processor time has a
//! resolution of 10 ms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::client::is_thread_of;

/// Most threads examined.
const THREADS_MAX: usize = 4096;
/// A thread is busiest by far if it has at least this share of the processor time.
const BUSIEST_SHARE_MIN: f64 = 0.75;
/// Prefix of the names of the tracker's own threads.
const OWN_PREFIX: &str = "ballast-";

/// Processor and processor time of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSample {
    /// Its name, which it gives itself.
    pub name: String,
    /// Its processor time in clock ticks, in user and kernel mode.
    pub ticks: u64,
    /// The processor on which it ran last: less than [`CpuSet::MAX_CPU`].
    pub cpu: usize,
}

/// Places one thread of a hypervisor.
#[derive(Debug)]
pub(crate) struct HandlerPlacement {
    pid: u32,
    /// `None`: there is none to place, or no longer.
    handler: Option<Pid>,
    /// Processors on which the handler may run.
    allowed: Option<CpuSet>,
    /// Ticks of each other thread at the last update.
    ticks: BTreeMap<u32, u64>,
    /// The processor to which the handler is pinned.
    cpu: Option<usize>,
}

impl HandlerPlacement {
    /// For the thread `handler` of process `pid`.
    pub(crate) fn new(pid: u32, handler: u32) -> HandlerPlacement {
        let handler = i32::try_from(handler).ok().and_then(Pid::from_raw);
        let allowed = handler.and_then(|tid| sched_getaffinity(Some(tid)).ok());
        HandlerPlacement { pid, handler, allowed, ticks: BTreeMap::new(), cpu: None }
    }

    /// Whether the handler is pinned to the processor of the busiest thread.
    pub(crate) fn is_on_same_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// Updates the placement. If the system refuses, nothing changes.
    pub(crate) fn update(&mut self) {
        if self.handler.is_none() {
            return;
        }
        let threads = threads(self.pid);
        // `None`: all threads were idle.
        if let Some(cpu) = self.busiest(&threads) {
            self.place(cpu);
        }
    }

    /// Pins the handler to the processor `wanted`; `None`: it may run anywhere.
    fn place(&mut self, wanted: Option<usize>) {
        let (Some(handler), Some(allowed)) = (self.handler, self.allowed) else { return };
        let wanted = wanted.filter(|&cpu| allowed.is_set(cpu));
        if wanted == self.cpu {
            return;
        }
        // The handler may have ended since it was last placed, and the kernel reuses its number.
        let tid = handler.as_raw_nonzero().get().unsigned_abs();
        if !is_thread_of(Path::new("/proc"), self.pid, tid) {
            (self.handler, self.cpu) = (None, None);
            return;
        }
        let set = wanted.map_or(allowed, |cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            one
        });
        let is_placed = sched_setaffinity(Some(handler), &set).is_ok();
        self.cpu = wanted.filter(|_| is_placed);
    }

    /// The processor of the thread that was busiest by far since the last call; `Some(None)`: no
    /// thread was; `None`: all threads were idle.
    fn busiest(&mut self, threads: &BTreeMap<u32, ThreadSample>) -> Option<Option<usize>> {
        let before = std::mem::take(&mut self.ticks);
        let (mut total, mut most, mut busiest) = (0_u64, 0_u64, None);
        for (&tid, thread) in threads.iter().filter(|(_, it)| !it.name.starts_with(OWN_PREFIX)) {
            // A new thread counts as idle until the next call.
            let since = thread.ticks.saturating_sub(*before.get(&tid).unwrap_or(&thread.ticks));
            total = total.saturating_add(since);
            if since > most {
                (most, busiest) = (since, Some(thread.cpu));
            }
            self.ticks.insert(tid, thread.ticks);
        }
        let is_by_far = most as f64 >= total as f64 * BUSIEST_SHARE_MIN;
        (total > 0).then(|| busiest.filter(|_| is_by_far))
    }
}

/// The threads of a process; none if it is gone.
fn threads(pid: u32) -> BTreeMap<u32, ThreadSample> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let thread = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let tid = entry.file_name().to_str()?.parse().ok()?;
        Some((tid, parse_thread_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    };
    entries.take(THREADS_MAX).filter_map(thread).collect()
}

/// Parses the line of a thread's `stat`; `None` if it is malformed. The name is in parentheses and
/// may contain parentheses.
pub fn parse_thread_stat(line: &str) -> Option<ThreadSample> {
    let (name, rest) = line.split_once('(')?.1.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first of these fields is number 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ThreadSample {
        name: name.to_owned(),
        ticks: field(14)?.saturating_add(field(15)?),
        cpu: usize::try_from(field(39)?).ok().filter(|&cpu| cpu < CpuSet::MAX_CPU)?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    fn thread(name: &str, ticks: u64, cpu: usize) -> ThreadSample {
        ThreadSample { name: name.to_owned(), ticks, cpu }
    }

    #[test]
    fn stat_lines_are_parsed() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 20 3 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 \
            32 33 34 35 36 37 38 1 40 41";
        assert_eq!(parse_thread_stat(line), Some(thread("a) b (c", 23, 1)));
        for invalid in ["", "7 (a) S 1 2", "7 a S", &line.replace(" 1 40", " 99999 40")] {
            assert_eq!(parse_thread_stat(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_busiest_thread_has_three_quarters_of_the_time() {
        let mut place = HandlerPlacement::new(1, 0);
        let mut busiest = |first: u64, second: u64| {
            let threads = [
                (1, thread("CPU 0/KVM", first, 5)),
                (2, thread("CPU 1/KVM", second, 6)),
                (3, thread("ballast-track", first * 100, 7)),
            ];
            place.busiest(&threads.into_iter().collect())
        };
        assert_eq!(busiest(100, 100), None, "no earlier sample");
        assert_eq!(busiest(175, 125), Some(Some(5)), "three quarters");
        assert_eq!(busiest(249, 151), Some(None));
        assert_eq!(busiest(249, 151), None);
        assert_eq!(busiest(249, 200), Some(Some(6)));
    }

    #[test]
    fn a_thread_of_another_process_is_never_placed() {
        let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let own = rustix::thread::gettid();
        let before = sched_getaffinity(Some(own)).unwrap();
        let mut place =
            HandlerPlacement::new(other.id(), own.as_raw_nonzero().get().unsigned_abs());
        place.place((0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)));
        let after = sched_getaffinity(Some(own)).unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(after, before);
        assert!(!place.is_on_same_cpu() && place.handler.is_none(), "it is given up");
    }

    #[test]
    fn a_sleeping_thread_shares_the_busiest_threads_processor() {
        let (tid, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                tid.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::SeqCst);
                while !is_over.load(Ordering::SeqCst) {
                    std::thread::park_timeout(std::time::Duration::from_millis(20));
                }
            });
            while tid.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let sleeper_tid = tid.load(Ordering::SeqCst);
            let mut place = HandlerPlacement::new(std::process::id(), sleeper_tid);
            // Other tests of this process may be busy too, so there may be no busiest thread.
            // Either way the affinity must match.
            let mut sum = 0_u64;
            let end = std::time::Instant::now() + std::time::Duration::from_millis(200);
            for _ in 0..2 {
                place.update();
                while std::time::Instant::now() < end {
                    sum = std::hint::black_box(sum + 1);
                }
            }
            let pid = i32::try_from(sleeper_tid).ok().and_then(Pid::from_raw);
            let set = sched_getaffinity(pid).unwrap();
            match place.cpu {
                Some(cpu) => assert!(set.is_set(cpu) && set.count() == 1, "{cpu}"),
                None => assert_eq!(Some(set), place.allowed),
            }
            is_over.store(true, Ordering::SeqCst);
            sleeper.thread().unpark();
        });
    }
}
