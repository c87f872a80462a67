//! Keeps fences around guests, as ordered.
//!
//! Idea: setting a limit takes as long as the kernel reclaims, which is too long for a tick. Each
//! fenced guest has a thread that owns its [`Fence`] and gets an order at each tick. If one guest's
//! swap device hangs, the tick and the other guests go on. A thread lifts its fence when it ends,
//! by order or by a panic.
//!
//! A daemon that was killed left its fences standing. So each process that should not be fenced is
//! checked once, when it is first seen, by a thread that lifts what was left around it.
//!
//! Cost: a thread for each fenced guest, which takes some hundred microseconds a tick.
//! Limits: [`GUESTS_MAX`] guests, including those whose threads hang; others are refused, which
//! their state says. A thread that hangs when the daemon stops may leave its fence standing; this
//! is logged, and the next daemon lifts the fence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ballast_actuation::fence::{FenceOrder, Fences};
use ballast_model::{Fence as FenceState, GuestId, ProcessId};
use ballast_reclaim::{Fence, ReclaimError, SwapBounds};
use tracing::{debug, info, warn};

use super::gathered::gathered;
use super::warn_once::WarnOnce;
use super::worker::{
    END_WAIT_MAX, Inbox, Letter, Worker, WorkerDeadline, lock, panic_text, start_thread,
    wait_for_end,
};

/// Most guests with a fence at the same time.
const GUESTS_MAX: usize = 256;
/// An order takes some milliseconds, or a second where much page cache is dropped; one that takes
/// this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(10);

/// An order, and how much of the host's swap may be used for it.
#[derive(Clone, Debug)]
struct Assignment {
    order: FenceOrder,
    swap: SwapBounds,
}

/// A guest's thread, and the state that it found last.
#[derive(Debug)]
struct Fenced {
    process: ProcessId,
    worker: Worker<Assignment>,
    found: Arc<Mutex<FenceState>>,
}

/// The thread that checks for fences of an earlier daemon, and the processes that it checks.
#[derive(Debug)]
struct FenceCheck {
    thread: JoinHandle<()>,
    processes: Vec<ProcessId>,
}

/// The fences of all guests. Dropping it lifts them, waiting for that for a bounded time.
#[derive(Debug)]
pub(crate) struct Fencer {
    root: PathBuf,
    swap: SwapBounds,
    fenced: BTreeMap<GuestId, Fenced>,
    /// Guests that should have a fence but have no thread, and why.
    refused: BTreeMap<GuestId, String>,
    /// Processes that were checked: no fence of an earlier daemon stands around them.
    checked: BTreeSet<(u32, u64)>,
    check: Option<FenceCheck>,
    warnings: WarnOnce,
}

impl Fencer {
    /// Without fences yet.
    pub(crate) fn new(swap: SwapBounds) -> Fencer {
        Fencer::below(PathBuf::from("/"), swap)
    }

    /// All files are below `root`.
    fn below(root: PathBuf, swap: SwapBounds) -> Fencer {
        Fencer {
            root,
            swap,
            fenced: BTreeMap::new(),
            refused: BTreeMap::new(),
            checked: BTreeSet::new(),
            check: None,
            warnings: WarnOnce::default(),
        }
    }

    /// Changes how much of the host's swap may be used, from the next order on.
    pub(crate) fn set(&mut self, swap: SwapBounds) {
        self.swap = swap;
    }

    /// Replaces all fences. `present`: the guests there are, and their processes. Never waits.
    pub(crate) fn obey<'a>(
        &mut self,
        fences: Fences,
        present: impl Iterator<Item = (&'a GuestId, ProcessId)>,
    ) {
        self.check_threads();
        let Fences::Set(orders) = fences else { return };
        let ordered: BTreeMap<&GuestId, ProcessId> =
            gathered(orders.iter().map(|order| (&order.guest, order.process)));
        for (guest, fenced) in &self.fenced {
            if ordered.get(guest) != Some(&fenced.process) {
                fenced.worker.end();
            }
        }
        self.lift_leftovers(present, |guest| ordered.contains_key(guest));
        self.refused.clear();
        for order in orders {
            self.assign(order);
        }
        self.warn();
    }

    /// The fence of a guest; `None`: none is configured.
    pub(crate) fn state(&self, guest: &GuestId) -> Option<FenceState> {
        if let Some(why) = self.refused.get(guest) {
            return Some(FenceState { limit: None, trouble: Some(why.clone()) });
        }
        self.fenced.get(guest).map(|fenced| lock(&fenced.found).clone())
    }

    /// Passes an order to the guest's thread, and starts that if there is none.
    fn assign(&mut self, order: FenceOrder) {
        let guest = order.guest.clone();
        // The thread that checks must be done with the process first.
        if self.check.as_ref().is_some_and(|check| check.processes.contains(&order.process)) {
            return;
        }
        if !self.fenced.contains_key(&guest) {
            match self.start(order.process) {
                Ok(fenced) => drop(self.fenced.insert(guest.clone(), fenced)),
                Err(why) => {
                    self.refused.insert(guest, why);
                    return;
                }
            }
        }
        // A thread that is ending takes no order; a later tick starts a new one.
        if let Some(fenced) = self.fenced.get(&guest) {
            fenced.worker.order(Assignment { order, swap: self.swap });
        }
    }

    fn start(&self, process: ProcessId) -> Result<Fenced, String> {
        if self.fenced.len() >= GUESTS_MAX {
            return Err(format!("{GUESTS_MAX} guests have a fence already"));
        }
        let (root, found) = (self.root.clone(), Arc::<Mutex<FenceState>>::default());
        let theirs = Arc::clone(&found);
        let worker = Worker::start("fence", move |inbox| keep(&root, inbox, &theirs))
            .map_err(|error| format!("no thread for its fence: {error}"))?;
        Ok(Fenced { process, worker, found })
    }

    /// Lifts fences of an earlier daemon around processes that are new, except those of guests that
    /// are fenced now: their threads take over what is there.
    fn lift_leftovers<'a>(
        &mut self,
        present: impl Iterator<Item = (&'a GuestId, ProcessId)>,
        is_ordered: impl Fn(&GuestId) -> bool,
    ) {
        if let Some(ended) = self.check.take_if(|check| check.thread.is_finished())
            && let Err(panic) = ended.thread.join()
        {
            self.warnings.warn("fences", &format!("a thread panicked: {}", panic_text(&*panic)));
        }
        if self.check.is_some() {
            return;
        }
        let before = std::mem::take(&mut self.checked);
        let mut new = Vec::new();
        for (guest, process) in present {
            let key = (process.pid, process.start_ticks);
            let is_new = self.checked.insert(key) && !before.contains(&key);
            if is_new && !is_ordered(guest) && !self.fenced.contains_key(guest) {
                new.push((guest.clone(), process));
            }
        }
        if new.is_empty() {
            return;
        }
        let root = self.root.clone();
        let processes = new.iter().map(|(_, process)| *process).collect();
        let work = move || {
            for (guest, process) in new {
                lift_one(&root, &guest, process);
            }
        };
        match start_thread("fences", Box::new(work)) {
            Ok(thread) => self.check = Some(FenceCheck { thread, processes }),
            Err(error) => self.warnings.warn("fences", &format!("no thread: {error}")),
        }
    }

    fn warn(&mut self) {
        let of_threads =
            self.fenced.iter().map(|(guest, fenced)| (guest, lock(&fenced.found).trouble.clone()));
        let refused = self.refused.iter().map(|(guest, why)| (guest, Some(why.clone())));
        for (guest, trouble) in of_threads.chain(refused) {
            let subject = format!("{guest} (fence)");
            match trouble {
                Some(trouble) => self.warnings.warn(&subject, &trouble),
                None => drop(self.warnings.clear(&subject)),
            }
        }
    }

    /// Forgets threads that ended; warns about those that panicked or hang.
    fn check_threads(&mut self) {
        let warnings = &mut self.warnings;
        self.fenced.retain(|guest, fenced| {
            let deadline = WorkerDeadline {
                after: HANGS_AFTER,
                subject: &format!("{guest} (fence hangs)"),
                what: "setting its limit hangs: does the host's swap answer?",
            };
            fenced.worker.state().lives_on(&format!("{guest} (fence)"), deadline, warnings)
        });
    }
}

impl Drop for Fencer {
    fn drop(&mut self) {
        self.fenced.values().for_each(|fenced| fenced.worker.end());
        wait_for_end(END_WAIT_MAX, || {
            self.check_threads();
            self.fenced.is_empty()
        });
        for guest in self.fenced.keys() {
            warn!("{guest}: its fence hangs while the daemon stops, and may stay");
        }
    }
}

/// Keeps one guest's fence as ordered until told to end. However it ends, the fence is lifted.
fn keep(root: &Path, inbox: &Inbox<Assignment>, found: &Mutex<FenceState>) {
    let mut fence: Option<Fence> = None;
    loop {
        match inbox.wait(None) {
            Letter::Order(assignment) => {
                let held = hold(root, &mut fence, &assignment);
                let trouble = held.err().map(|error| error.to_string());
                let limit = fence.as_ref().and_then(Fence::limit);
                *lock(found) = FenceState { limit, trouble };
            }
            Letter::None => {}
            Letter::End => break,
        }
    }
    if let Some(Err(error)) = fence.map(Fence::lift) {
        warn!("cannot lift a fence: {error}");
    }
}

fn hold(
    root: &Path,
    fence: &mut Option<Fence>,
    assignment: &Assignment,
) -> Result<(), ReclaimError> {
    let Assignment { order, swap } = assignment;
    let ProcessId { pid, start_ticks } = order.process;
    let fence = match fence {
        Some(fence) => fence,
        None => fence.insert(Fence::open(root, pid, Some(start_ticks))?),
    };
    fence.hold(order.height, order.takes, swap)
}

/// Lifts the fence that an earlier daemon left around one process.
fn lift_one(root: &Path, guest: &GuestId, process: ProcessId) {
    // If there can be no fence, or there is none of Ballast's, none was left.
    let left = match Fence::open(root, process.pid, Some(process.start_ticks)) {
        Ok(left) => left,
        Err(why) => return debug!("{guest}: no fence was left: {why}"),
    };
    let Some(limit) = left.limit() else { return };
    match left.lift() {
        Ok(()) => info!("{guest}: lifted the fence of {limit} that an earlier daemon left"),
        Err(error) => {
            warn!("{guest}: cannot lift the fence of {limit} that an earlier daemon left: {error}")
        }
    }
}

#[cfg(test)]
mod tests;
