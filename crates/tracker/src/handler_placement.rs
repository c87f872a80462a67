//! Where the thread runs that answers faults: beside the virtual processor that makes them.
//!
//! Idea: whoever traps sleeps until that thread has answered. On the same processor of the host that is
//! two switches between threads; on another it is an interrupt there, and one back, and on idle processors
//! two awakenings. So at the beginning of each interval it is placed where the hypervisor's busiest thread
//! was last seen. Where no thread is by far the busiest, as with several virtual processors at work, it may
//! run anywhere: beside one of them it would be far from the others, and could be kept from its processor.
//!
//! Measured (`ballast bench track --handler`, 2026-11-22, two cores, load average 8): the program was
//! stopped for 2.6 to 7.1 µs a trap with that thread beside it, 30 to 63 µs with it wherever the kernel
//! liked, 180 to 350 µs with it on the other core.
//!
//! Done from outside, as a hypervisor in a sandbox may not do it itself.
//!
//! Cost: a small file for each thread of the hypervisor, once an interval.
//! Source: `/proc/PID/task/TID/stat` (proc_pid_stat(5)); ours.
//! Limits: a virtual processor that moves to another processor meanwhile traps as if nothing had been done;
//! processor time is counted in ticks of 10 ms.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Threads looked at: more no hypervisor has for long.
const THREADS_MAX: usize = 4096;
/// One thread is by far the busiest when this part of all processor time is its.
const BUSIEST: f64 = 0.75;
/// Names of the tracker's own threads begin so.
const OWN: &str = "ballast-";

/// Where a thread is, and how busy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    name: String,
    ticks: u64,
    cpu: usize,
}

/// Places one thread of a process.
#[derive(Debug)]
pub(crate) struct Place {
    pid: u32,
    handler: Option<Pid>,
    /// Where it may run at all.
    allowed: Option<CpuSet>,
    /// Ticks of each other thread so far.
    ticks: BTreeMap<u32, u64>,
    /// Where it was placed.
    cpu: Option<usize>,
}

impl Place {
    /// Of the thread `handler` of process `pid`.
    pub(crate) fn new(pid: u32, handler: u32) -> Place {
        let handler = i32::try_from(handler).ok().and_then(Pid::from_raw);
        let allowed = handler.and_then(|tid| sched_getaffinity(Some(tid)).ok());
        Place { pid, handler, allowed, ticks: BTreeMap::new(), cpu: None }
    }

    /// Whether it is beside the thread that is by far the busiest.
    pub(crate) fn is_beside(&self) -> bool {
        self.cpu.is_some()
    }

    /// Places it anew. Where the system refuses it stays where it may be.
    pub(crate) fn update(&mut self) {
        let (Some(handler), Some(allowed)) = (self.handler, self.allowed) else { return };
        let threads = threads(self.pid);
        let wanted = match self.busiest(&threads) {
            // Nobody did anything.
            None => return,
            Some(cpu) => cpu.filter(|&cpu| allowed.is_set(cpu)),
        };
        if wanted == self.cpu {
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

    /// The processor of the thread that was by far the busiest since the last call, if one was; `None` if
    /// none did anything.
    fn busiest(&mut self, threads: &BTreeMap<u32, Thread>) -> Option<Option<usize>> {
        let before = std::mem::take(&mut self.ticks);
        let (mut all, mut most) = (0_u64, (0_u64, None));
        for (&tid, thread) in threads.iter().filter(|(_, it)| !it.name.starts_with(OWN)) {
            // Of one that is new there is no knowing how busy it is.
            let since = thread.ticks.saturating_sub(*before.get(&tid).unwrap_or(&thread.ticks));
            all = all.saturating_add(since);
            if since > most.0 {
                most = (since, Some(thread.cpu));
            }
            self.ticks.insert(tid, thread.ticks);
        }
        (all > 0).then(|| most.1.filter(|_| most.0 as f64 >= all as f64 * BUSIEST))
    }
}

/// The threads of a process; none if it is gone.
fn threads(pid: u32) -> BTreeMap<u32, Thread> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let thread = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let tid = entry.file_name().to_str()?.parse().ok()?;
        Some((tid, parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    };
    entries.take(THREADS_MAX).filter_map(thread).collect()
}

/// A line of `stat`. The name is in brackets, and may have any in it itself.
fn parse(line: &str) -> Option<Thread> {
    let (name, rest) = line.split_once('(')?.1.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // `state` is the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Thread {
        name: name.to_owned(),
        ticks: field(14)?.saturating_add(field(15)?),
        cpu: usize::try_from(field(39)?).ok().filter(|&cpu| cpu < CpuSet::MAX_CPU)?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    fn thread(name: &str, ticks: u64, cpu: usize) -> Thread {
        Thread { name: name.to_owned(), ticks, cpu }
    }

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 20 3 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 \
            32 33 34 35 36 37 38 1 40 41";
        assert_eq!(parse(line), Some(thread("a) b (c", 23, 1)));
        for wrong in ["", "7 (a) S 1 2", "7 a S", &line.replace(" 1 40", " 99999 40")] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn one_thread_is_by_far_the_busiest_or_none_is() {
        let mut place = Place::new(1, 0);
        let mut look = |first: u64, second: u64| {
            let threads = [
                (1, thread("CPU 0/KVM", first, 5)),
                (2, thread("CPU 1/KVM", second, 6)),
                (3, thread("ballast-track", first * 100, 7)),
            ];
            place.busiest(&threads.into_iter().collect())
        };
        assert_eq!(look(100, 100), None, "nothing is known yet");
        assert_eq!(look(175, 125), Some(Some(5)), "three quarters");
        assert_eq!(look(249, 151), Some(None));
        assert_eq!(look(249, 151), None);
        assert_eq!(look(249, 200), Some(Some(6)));
    }

    /// The thread of this test that works is the busiest, and the one that sleeps comes beside it.
    #[test]
    fn a_thread_is_placed_beside_the_one_that_works() {
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
            let mut place = Place::new(std::process::id(), sleeper_tid);
            // Other tests of this process may be at work as well, so it may be beside none: what counts is
            // that it runs where it is said to.
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
