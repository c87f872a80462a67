//! Counts the host memory of guests with shared memory that the host may page, and how much of a
//! guest's memory is in files.
//!
//! Idea: the kernel's resident size of a process counts its page table. For shared memory that can
//! be far too low: it misses pages that a tracker has revoked, and pages that were paged out but
//! are still in the swap cache. The memory's file has the true count. Counting takes too long for a
//! tick, so a thread counts one process after the other. Another thread counts what is in files:
//! that takes the mappings alone, but reading these waits for a lock of the process.
//!
//! A thread that hangs on one process (the process's locks may be held by a task that waits for a
//! dead disk, or by a hostile one) is left alone, and another thread goes on with the rest. A
//! thread that panics is replaced too. Both are logged as warnings.
//!
//! Cost: 4 ms per GiB of a counted guest, 0.3 ms where only the mappings are read, each at most a
//! tenth of a core.
//! Limits: those of [`GuestMemory::shared_in_memory`] and [`GuestMemory::in_files`]. With
//! [`HANGING_MAX`] hanging threads, counts are no longer renewed, which shows in their age.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ballast_host::PROC;
use ballast_model::{Bytes, ProcessId, Timestamp};
use ballast_reclaim::{GuestMemory, GuestRam, ReclaimError};

use super::clock;
use super::pager::RAM_MIN;
use super::warn_once::WarnOnce;
use super::worker::{Inbox, Letter, Worker, WorkerState, lock};

/// Shortest pause between two counts of all guests.
const APART_MIN: Duration = Duration::from_millis(250);
/// The pause is at least this many times as long as the last count took.
const APART_COSTS: u32 = 10;
/// A count of one process takes some seconds for a TiB; one that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(10);
/// Most threads that hang at once.
const HANGING_MAX: usize = 8;

/// A count of one process's guest memory.
#[derive(Clone, Debug)]
pub(super) struct Count {
    /// When it began.
    pub(super) at: Timestamp,
    /// How much of its shared guest memory is in host memory (`None`: it has no shared guest
    /// memory), or how much of its guest memory is in files.
    pub(super) found: Result<Option<Bytes>, ReclaimError>,
}

/// Counts one process.
pub(super) type Counting = fn(ProcessId) -> Count;

/// State shared by the threads and the daemon.
#[derive(Debug, Default)]
struct SharedOccupancy {
    counts: BTreeMap<ProcessId, Count>,
    /// Processes that a thread is counting now.
    in_hand: BTreeSet<ProcessId>,
    /// Processes at which a thread panicked; they are not tried again.
    failed: BTreeSet<ProcessId>,
}

/// Handle of the counting threads, which end when this is dropped.
#[derive(Debug)]
pub(super) struct Occupancy {
    /// Its name in the log, and its threads' name.
    subject: &'static str,
    counting: Counting,
    counted: Vec<ProcessId>,
    shared: Arc<Mutex<SharedOccupancy>>,
    /// The thread that counts, once there is something to count.
    worker: Option<Worker<Vec<ProcessId>>>,
    hanging: Vec<Worker<Vec<ProcessId>>>,
    warnings: WarnOnce,
}

impl Occupancy {
    /// Counts by `counting`, but no process yet. `subject` has at most 15 characters.
    pub(super) fn by(subject: &'static str, counting: Counting) -> Occupancy {
        Occupancy {
            subject,
            counting,
            counted: Vec::new(),
            shared: Arc::default(),
            worker: None,
            hanging: Vec::new(),
            warnings: WarnOnce::default(),
        }
    }

    /// Sets the processes to count, replacing the earlier set; checks the threads.
    pub(super) fn count(&mut self, processes: Vec<ProcessId>) {
        self.check_threads(HANGS_AFTER);
        if processes != self.counted {
            self.counted = processes;
            let mut shared = lock(&self.shared);
            shared.counts.retain(|process, _| self.counted.contains(process));
            shared.failed.retain(|process| self.counted.contains(process));
            drop(shared);
            self.order();
        }
    }

    /// The last count of a process. `None`: it is not counted; `Some(None)`: not counted yet.
    pub(super) fn latest(&self, process: ProcessId) -> Option<Option<Count>> {
        self.counted.contains(&process).then(|| lock(&self.shared).counts.get(&process).cloned())
    }

    /// Orders the thread to count, starting it if there is none.
    fn order(&mut self) {
        if self.worker.is_none() && !self.counted.is_empty() {
            let (counting, shared) = (self.counting, Arc::clone(&self.shared));
            let work = move |inbox: &Inbox<Vec<ProcessId>>| run(inbox, &shared, counting);
            match Worker::start(self.subject, work) {
                Ok(worker) => self.worker = Some(worker),
                Err(error) => self.warnings.warn(self.subject, &format!("no thread: {error}")),
            }
        }
        if let Some(worker) = &self.worker {
            worker.order(self.counted.clone());
        }
    }

    /// Replaces a thread that panicked, or has counted one process for `hangs_after`.
    fn check_threads(&mut self, hangs_after: Duration) {
        self.hanging.retain_mut(|worker| matches!(worker.state(), WorkerState::Lives(_)));
        let Some(mut worker) = self.worker.take() else { return };
        match worker.state() {
            WorkerState::Lives(time) if time >= hangs_after => {
                if self.hanging.len() >= HANGING_MAX {
                    self.warnings.warn(self.subject, "too many threads hang: nothing is counted");
                    self.worker = Some(worker);
                    return;
                }
                let pids: Vec<String> =
                    lock(&self.shared).in_hand.iter().map(|it| it.pid.to_string()).collect();
                let what = format!("counting the memory of process {} hangs", pids.join(", "));
                self.warnings.warn(self.subject, &what);
                worker.end();
                self.hanging.push(worker);
            }
            WorkerState::Lives(_) => {
                self.worker = Some(worker);
                return;
            }
            WorkerState::Ended => {}
            WorkerState::Panicked(how) => {
                self.warnings.warn(self.subject, &format!("a thread panicked: {how}"));
            }
        }
        self.order();
    }
}

/// Marks a process as being counted, until it is dropped.
struct InHand<'a> {
    process: ProcessId,
    shared: &'a Mutex<SharedOccupancy>,
}

impl<'a> InHand<'a> {
    /// `None`: another thread hangs or has panicked at this process.
    fn take(process: ProcessId, shared: &'a Mutex<SharedOccupancy>) -> Option<InHand<'a>> {
        let mut state = lock(shared);
        if state.failed.contains(&process) || !state.in_hand.insert(process) {
            return None;
        }
        Some(InHand { process, shared })
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut state = lock(self.shared);
        state.in_hand.remove(&self.process);
        if std::thread::panicking() {
            state.failed.insert(self.process);
        }
    }
}

/// Counts all processes, pauses, and counts again.
fn run(inbox: &Inbox<Vec<ProcessId>>, shared: &Mutex<SharedOccupancy>, counting: Counting) {
    let mut processes: Vec<ProcessId> = Vec::new();
    // Processes still to count in this round, and the cost of the round so far.
    let (mut left, mut cost) = (Vec::new(), Duration::ZERO);
    let mut pause = None;
    loop {
        // Called between two processes too: that shows the daemon that the thread does not hang.
        match inbox.wait(pause) {
            Letter::Order(order) => {
                processes = order;
                // `pop` takes from the end, so that the first is counted first.
                processes.reverse();
                (left, cost) = (processes.clone(), Duration::ZERO);
            }
            Letter::None if left.is_empty() => (left, cost) = (processes.clone(), Duration::ZERO),
            Letter::None => {}
            Letter::End => return,
        }
        if let Some(process) = left.pop()
            && let Some(in_hand) = InHand::take(process, shared)
        {
            let began = Instant::now();
            let count = counting(process);
            cost += began.elapsed();
            drop(in_hand);
            lock(shared).counts.insert(process, count);
        }
        pause = match (left.is_empty(), processes.is_empty()) {
            (_, true) => None,
            (true, false) => Some((cost * APART_COSTS).max(APART_MIN)),
            (false, false) => Some(Duration::ZERO),
        };
    }
}

/// Counts shared guest memory in host memory.
pub(super) fn shared_in_memory(process: ProcessId) -> Count {
    count(process, GuestMemory::shared_in_memory)
}

/// Counts guest memory in files.
pub(super) fn in_files(process: ProcessId) -> Count {
    count(process, |memory| memory.in_files().map(Some))
}

fn count(
    process: ProcessId,
    counting: impl FnOnce(&GuestMemory) -> Result<Option<Bytes>, ReclaimError>,
) -> Count {
    let (at, start_time) = (clock::now(), Some(process.start_ticks));
    let ram = GuestRam::AtLeast(RAM_MIN);
    let memory = GuestMemory::open(Path::new(PROC), process.pid, start_time, ram);
    Count { at, found: memory.and_then(|memory| counting(&memory)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const HANGS: u32 = 1;
    const PANICS: u32 = 2;

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 5 }
    }

    fn processes(pids: &[u32]) -> Vec<ProcessId> {
        pids.iter().map(|pid| process(*pid)).collect()
    }

    /// Stands in for a count: it never returns for one process, and panics for another.
    fn misbehave(process: ProcessId) -> Count {
        match process.pid {
            HANGS => loop {
                std::thread::park();
            },
            PANICS => panic!("a fault"),
            pid => Count { at: Timestamp::ZERO, found: Ok(Some(Bytes::mib(u64::from(pid)))) },
        }
    }

    /// Checks the threads, as ticks do, until these processes are counted.
    fn until_counted(occupancy: &mut Occupancy, hangs_after: Duration, pids: &[u32]) {
        let begun = Instant::now();
        while !pids.iter().all(|&pid| matches!(occupancy.latest(process(pid)), Some(Some(_)))) {
            assert!(begun.elapsed() < PATIENCE, "{occupancy:?}");
            std::thread::sleep(Duration::from_millis(1));
            occupancy.check_threads(hangs_after);
        }
    }

    #[test]
    fn one_process_that_hangs_does_not_stop_the_count() {
        let mut occupancy = Occupancy::by("occupancy", misbehave);
        let soon = Duration::from_millis(20);
        occupancy.count(processes(&[HANGS, 7, 8]));
        until_counted(&mut occupancy, soon, &[7, 8]);
        assert_eq!(occupancy.hanging.len(), 1);
        // The thread that hangs keeps its process, so no other thread hangs.
        occupancy.count(processes(&[HANGS, 7, 8, 9]));
        until_counted(&mut occupancy, soon, &[7, 8, 9]);
        assert_eq!(occupancy.hanging.len(), 1);
        assert!(matches!(occupancy.latest(process(HANGS)), Some(None)));
        assert!(occupancy.latest(process(10)).is_none());
    }

    #[test]
    fn a_process_that_has_a_reused_pid_is_not_counted() {
        let ended = ProcessId { pid: std::process::id(), start_ticks: 0 };
        for counting in [shared_in_memory, in_files] {
            assert!(matches!(counting(ended).found, Err(ReclaimError::Reused { .. })));
        }
    }

    #[test]
    fn after_a_panic_another_thread_counts() {
        let mut occupancy = Occupancy::by("occupancy", misbehave);
        occupancy.count(processes(&[7, PANICS, 8]));
        until_counted(&mut occupancy, HANGS_AFTER, &[7, 8]);
        assert!(occupancy.warnings.clear("occupancy"), "the panic was warned about");
        assert!(matches!(occupancy.latest(process(PANICS)), Some(None)));
        occupancy.count(processes(&[9]));
        until_counted(&mut occupancy, HANGS_AFTER, &[9]);
        assert!(occupancy.latest(process(7)).is_none());
    }
}
