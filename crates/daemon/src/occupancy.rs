//! Counts the host memory of guests with shared memory that the host may page.
//!
//! Idea: the kernel's resident size of a process counts its page table. For shared memory that can
//! be far too low: it misses pages a tracker has revoked and pages that were paged out but still
//! sit in the swap cache. The memory's file has the true count. Counting takes too long for a tick,
//! so a thread does it.
//!
//! Cost: 4 ms per GiB of a counted guest, at most a tenth of a core.
//! Limits: those of [`GuestMemory::shared_in_memory`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use ballast_host::PROC;
use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::{GuestMemory, GuestRam, ReclaimError};

use super::clock;
use super::pager::RAM_MIN;

/// Shortest pause between two counts of all guests.
const APART_MIN: Duration = Duration::from_millis(250);
/// The pause is at least this many times as long as the last count took.
const APART_COSTS: u32 = 10;

/// The shared memory of one process.
#[derive(Clone, Debug)]
pub(super) struct Count {
    pub(super) at: Timestamp,
    /// How much of its shared guest memory is in host memory; `None`: it has no shared guest
    /// memory.
    pub(super) shared: Result<Option<Bytes>, ReclaimError>,
}

/// Counts by process id.
type Counts = BTreeMap<u32, Count>;

/// Handle of the counting thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Occupancy {
    processes: Sender<Vec<u32>>,
    counted: Vec<u32>,
    latest: Arc<Mutex<Counts>>,
}

impl Occupancy {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start() -> anyhow::Result<Occupancy> {
        let (processes, requests) = mpsc::channel();
        let latest = Arc::new(Mutex::new(Counts::new()));
        let theirs = Arc::clone(&latest);
        std::thread::Builder::new()
            .name("occupancy".to_owned())
            .spawn(move || run(&requests, &theirs))
            .context("cannot start the thread that counts guests' memory")?;
        Ok(Occupancy { processes, counted: Vec::new(), latest })
    }

    /// Sets the processes to count, replacing the earlier set.
    pub(super) fn count(&mut self, processes: Vec<u32>) {
        if processes != self.counted {
            self.counted.clone_from(&processes);
            // Sending cannot fail: the thread lives as long as this handle.
            let _ = self.processes.send(processes);
        }
    }

    /// The last count of a process. `None`: it is not counted; `Some(None)`: no count is done yet.
    pub(super) fn latest(&self, pid: u32) -> Option<Option<Count>> {
        let latest = || self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.counted.contains(&pid).then(|| latest().get(&pid).cloned())
    }
}

fn run(requests: &Receiver<Vec<u32>>, latest: &Mutex<Counts>) {
    let mut processes: Vec<u32> = Vec::new();
    let mut pause = Duration::ZERO;
    loop {
        let request = if processes.is_empty() {
            requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(pause)
        };
        match request {
            Ok(request) => processes = request,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let began = Instant::now();
        let counts = processes.iter().map(|&pid| (pid, count(pid))).collect();
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        pause = (began.elapsed() * APART_COSTS).max(APART_MIN);
    }
}

fn count(pid: u32) -> Count {
    let at = clock::now();
    let process = GuestMemory::open(Path::new(PROC), pid, None, GuestRam::AtLeast(RAM_MIN));
    Count { at, shared: process.and_then(|process| process.shared_in_memory()) }
}
