//! What guests with shared memory occupy, of those that the host may page.
//!
//! Idea: the kernel counts for a process what it has in its page table. Of memory that is shared this may be far less
//! than the host has for it: pages from which a tracker took permission are not in there, nor those that were paged
//! out and wait in memory for their place to be needed. The file that the memory is in knows. A thread counts, as
//! counting takes too long for a tick.
//!
//! Cost: 4 ms for each GiB of a guest that is counted, no more than a tenth of a core. Limits: as
//! [`Paging::shared_in_memory`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use ballast_host::PROC;
use ballast_model::{Bytes, Timestamp};
use ballast_reclaim::{GuestRam, Paging, Refusal};

use super::clock;
use super::pager::RAM_MIN;

/// Between two counts of all guests, at least.
const APART_MIN: Duration = Duration::from_millis(250);
/// And so many times what they took.
const APART_COSTS: u32 = 10;

/// A count of one process.
#[derive(Clone, Debug)]
pub(super) struct Count {
    pub(super) at: Timestamp,
    /// What is in memory of its shared guest memory; `None`: it has none.
    pub(super) shared: Result<Option<Bytes>, Refusal>,
}

/// By process.
type Counts = BTreeMap<u32, Count>;

/// The thread's handle; the thread ends with it.
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
    /// The system gives none.
    pub(super) fn start() -> anyhow::Result<Occupancy> {
        let (processes, told) = mpsc::channel();
        let latest = Arc::new(Mutex::new(Counts::new()));
        let theirs = Arc::clone(&latest);
        std::thread::Builder::new()
            .name("occupancy".to_owned())
            .spawn(move || run(&told, &theirs))
            .context("no thread to count what guests occupy")?;
        Ok(Occupancy { processes, counted: Vec::new(), latest })
    }

    /// From now on these processes are counted and no others.
    pub(super) fn count(&mut self, processes: Vec<u32>) {
        if processes != self.counted {
            self.counted.clone_from(&processes);
            // The thread lives as long as this does.
            let _ = self.processes.send(processes);
        }
    }

    /// Whether a process is counted, and the last count, if there was one.
    pub(super) fn latest(&self, pid: u32) -> Option<Option<Count>> {
        let latest = || self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.counted.contains(&pid).then(|| latest().get(&pid).cloned())
    }
}

fn run(told: &Receiver<Vec<u32>>, latest: &Mutex<Counts>) {
    let mut processes: Vec<u32> = Vec::new();
    let mut pause = Duration::ZERO;
    loop {
        let news = if processes.is_empty() {
            told.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            told.recv_timeout(pause)
        };
        match news {
            Ok(news) => processes = news,
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
    let process = Paging::open(Path::new(PROC), pid, None, GuestRam::AtLeast(RAM_MIN));
    Count { at, shared: process.and_then(|process| process.shared_in_memory()) }
}
