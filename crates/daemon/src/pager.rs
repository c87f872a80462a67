//! Pages guests out and in, as the plan orders.
//!
//! Idea: writing to disk takes too long for a tick. Each guest that is paged has a thread, which
//! works in small steps. If one guest's swap device hangs, the tick and the other guests go on.
//! Each tick replaces the threads' orders with those of its plan and fetches the outcomes so far.
//! An order that is not repeated is dropped with its thread. A thread that panics is logged as a
//! warning; the next order starts another.
//!
//! Where permitted, the thread chooses pages of the guest's process. Otherwise it reclaims an
//! amount from the guest's own cgroup ([`PagingWay`]). Every step restores the cgroup's limit, so
//! no limit is left behind however an order ends.
//!
//! Cost: none without orders; 1 ms per new order to check permissions, and 4 ms for each GiB of
//! shared memory of a guest to be paged out.
//! Limits: [`GUESTS_MAX`] threads, including those that hang; a step moves at most
//! [`STEP_BYTES_MAX`]; a job stops at its order's deadline; [`OUTCOMES_MAX`] outcomes wait for the
//! tick, further ones are dropped. A step that hangs when the daemon stops may leave its limit on a
//! cgroup; this is logged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use ballast_config::paging::{PagerSettings, PagingWay};
use ballast_host::{PROC, ProcessReader, ReadError};
use ballast_model::{Bytes, GuestId, Mechanism, Paging, ProcessId, Timestamp};
use ballast_reclaim::{
    CgroupPageOut, Coldness, FinishReason, GuestMemory, GuestRam, PageIn, PageInLimits, PageOut,
    PageOutLimits, PagingProgress, PagingState, Picker, ReclaimError, capabilities,
};
use tracing::{debug, info, warn};

use super::clock;
use super::warn_once::WarnOnce;
use super::worker::{END_WAIT_MAX, Inbox, Letter, Worker, WorkerDeadline, wait_for_end};

/// Most guests paged at the same time.
const GUESTS_MAX: usize = 64;
/// Most bytes that one step moves.
const STEP_BYTES_MAX: Bytes = Bytes::mib(8);
/// Smallest mapping taken for guest memory: smaller ones belong to the hypervisor itself.
pub(super) const RAM_MIN: Bytes = Bytes::mib(64);
/// Pause between two steps of a guest.
const PAUSE: Duration = Duration::from_millis(5);
/// Most outcomes that wait for a tick: several for each step of each guest in a tick of a second.
const OUTCOMES_MAX: usize = 1 << 14;
/// A step takes some tens of milliseconds; one that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// Root of the kernel's file systems.
const ROOT: &str = "/";

fn page_out_limits(settings: &PagerSettings) -> PageOutLimits {
    let (per_second, swap) = (settings.per_second, settings.swap);
    PageOutLimits { per_second, step_bytes_max: STEP_BYTES_MAX, swap }
}

/// The outcome of a paging order so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagingOutcome {
    /// The guest.
    pub guest: GuestId,
    /// Whether it is paged out or in.
    pub mechanism: Mechanism,
    /// The reclaim method in use, named as in
    /// [`ReclaimCapabilities::all`](ballast_reclaim::ReclaimCapabilities::all); `None`: none yet.
    pub way: Option<&'static str>,
    /// Why the cgroup was used instead of choosing pages of the process.
    pub not_by_process: Option<ReclaimError>,
    /// Bytes moved since the order was first given.
    pub moved: Bytes,
    /// Why the order ended; `None`: it is in progress.
    pub end: Option<PagingEnd>,
}

/// Why an order ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagingEnd {
    /// There is nothing left to do.
    Finished(FinishReason),
    /// It cannot be carried out now.
    Refused(ReclaimError),
}

impl PagingOutcome {
    pub(super) fn log(&self, warnings: &mut WarnOnce) {
        let PagingOutcome { guest, mechanism, moved, .. } = self;
        let subject = format!("{guest} ({mechanism})");
        let by = self.way.unwrap_or("no method");
        if let Some(why) = &self.not_by_process {
            let what = format!("reclaiming from its cgroup, because choosing pages failed: {why}");
            warnings.warn(&format!("{subject} by process"), &what);
        }
        match &self.end {
            Some(PagingEnd::Refused(refusal)) => warnings.warn(&subject, &refusal.to_string()),
            Some(PagingEnd::Finished(finish)) => {
                warnings.clear(&subject);
                // An order with nothing to move repeats at every tick: do not log it.
                if *moved > Bytes::ZERO {
                    info!("{guest}: {mechanism} {moved} by {by}: {}", finish.code());
                }
            }
            None => debug!("{guest}: {mechanism} {moved} by {by} so far"),
        }
    }
}

/// A paging order, and the process it applies to.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) paging: Paging,
    pub(crate) process: ProcessId,
    /// Host memory that the process occupied at the tick's sample.
    pub(crate) resident: Bytes,
    /// Which of its pages are cold, if known.
    pub(crate) coldness: Option<Arc<Coldness>>,
}

/// An order, and the settings to carry it out by.
#[derive(Clone, Debug)]
struct Assignment {
    order: Order,
    settings: PagerSettings,
}

/// The work of a guest's thread.
type Work = fn(&Inbox<Assignment>, &SyncSender<PagingOutcome>);

/// The threads that page guests. Dropping it ends them and waits for steps in progress, for a
/// bounded time: a process that exits during a step would leave that step's limit on a cgroup.
#[derive(Debug)]
pub(crate) struct Pager {
    /// `None`: paging is off.
    settings: Option<PagerSettings>,
    work: Work,
    workers: BTreeMap<GuestId, Worker<Assignment>>,
    outcomes: SyncSender<PagingOutcome>,
    paged: Receiver<PagingOutcome>,
    warnings: WarnOnce,
}

impl Pager {
    /// A pager without orders. `None`: paging is off.
    pub(crate) fn new(settings: Option<PagerSettings>) -> Pager {
        Pager::doing(page, settings)
    }

    fn doing(work: Work, settings: Option<PagerSettings>) -> Pager {
        let (outcomes, paged) = mpsc::sync_channel(OUTCOMES_MAX);
        let (workers, warnings) = (BTreeMap::new(), WarnOnce::default());
        Pager { settings, work, workers, outcomes, paged, warnings }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.settings.is_some()
    }

    /// Changes the settings. Orders in progress start anew with the next ones given.
    pub(crate) fn set(&mut self, settings: Option<PagerSettings>) {
        self.settings = settings;
        if settings.is_none() {
            self.workers.values().for_each(Worker::end);
        }
    }

    /// Replaces all orders with these. Never waits.
    pub(crate) fn obey(&mut self, orders: Vec<Order>) {
        self.check_threads();
        let Some(settings) = self.settings else { return };
        let is_ordered = |guest: &GuestId| orders.iter().any(|order| order.paging.guest == *guest);
        for (_, worker) in self.workers.iter().filter(|(guest, _)| !is_ordered(guest)) {
            worker.end();
        }
        for order in orders {
            let guest = order.paging.guest.clone();
            if !self.workers.contains_key(&guest) {
                if self.workers.len() >= GUESTS_MAX {
                    continue;
                }
                let (work, outcomes) = (self.work, self.outcomes.clone());
                match Worker::start("pager", move |inbox| work(inbox, &outcomes)) {
                    Ok(worker) => drop(self.workers.insert(guest.clone(), worker)),
                    Err(error) => {
                        self.warnings.warn("pager", &format!("cannot start a thread: {error}"));
                        continue;
                    }
                }
            }
            // A thread that is ending takes no order; a later tick starts a new one.
            if let Some(worker) = self.workers.get(&guest) {
                worker.order(Assignment { order, settings });
            }
        }
    }

    /// The outcomes since the last call, in order.
    pub(crate) fn take_outcomes(&mut self) -> Vec<PagingOutcome> {
        self.paged.try_iter().collect()
    }

    /// Forgets threads that ended; warns about those that panicked or hang.
    fn check_threads(&mut self) {
        let warnings = &mut self.warnings;
        self.workers.retain(|guest, worker| {
            let deadline = WorkerDeadline {
                after: HANGS_AFTER,
                subject: &format!("{guest} (paging)"),
                what: "a step hangs: does the host's swap device answer?",
            };
            worker.state().lives_on(&format!("{guest} (pager)"), deadline, warnings)
        });
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.workers.values().for_each(Worker::end);
        wait_for_end(END_WAIT_MAX, || {
            self.check_threads();
            self.workers.is_empty()
        });
        for guest in self.workers.keys() {
            warn!("{guest}: paging hangs while the daemon stops: its cgroup may keep a limit");
        }
    }
}

/// Pages one guest as ordered, until told to end.
fn page(inbox: &Inbox<Assignment>, outcomes: &SyncSender<PagingOutcome>) {
    let mut job: Option<PagingJob> = None;
    // An outcome that finds no room is only missing from the log.
    let report = |paged: PagingOutcome| drop(outcomes.try_send(paged));
    loop {
        let is_busy = job.as_ref().is_some_and(|job| !job.is_over);
        match inbox.wait(is_busy.then_some(PAUSE)) {
            Letter::Order(Assignment { order, settings }) => {
                job = match job.take().filter(|job| job.may_go_on(&order, &settings)) {
                    Some(job) => Some(PagingJob { order, ..job }),
                    None => {
                        PagingJob::begin(order, settings).map_err(|refused| report(*refused)).ok()
                    }
                };
            }
            Letter::None => {}
            Letter::End => return,
        }
        let running = job.as_mut().filter(|job| !job.is_over);
        if let Some(paged) = running.and_then(|job| job.step(clock::now())) {
            report(paged);
        }
    }
}

/// One guest being paged.
struct PagingJob {
    order: Order,
    settings: PagerSettings,
    way: Way,
    not_by_process: Option<ReclaimError>,
    /// Bytes reported last; `None`: nothing reported yet.
    reported: Option<Bytes>,
    is_over: bool,
}

enum Way {
    Out(GuestMemory, Box<PageOut>),
    GroupOut(Box<CgroupPageOut>),
    In(GuestMemory, PageIn),
}

impl PagingJob {
    /// Whether the job can continue under `order` instead of its own.
    fn may_go_on(&self, order: &Order, settings: &PagerSettings) -> bool {
        !self.is_over
            && self.settings == *settings
            && self.order.process == order.process
            && self.order.paging.mechanism == order.paging.mechanism
            && self.order.paging.resident == order.paging.resident
    }

    /// Does one step. Returns the outcome if it is new.
    fn step(&mut self, now: Timestamp) -> Option<PagingOutcome> {
        if now > self.order.paging.deadline {
            self.is_over = true;
            return None;
        }
        let PagingProgress { state, moved, .. } = self.way.step(now, self.settings.host_reserve);
        let end = match state {
            PagingState::Finished(finish) => Some(PagingEnd::Finished(finish)),
            // If the cause may pass, the next plan repeats the order.
            PagingState::Failed(refusal) => Some(PagingEnd::Refused(refusal)),
            PagingState::InProgress | PagingState::Waiting { .. } => None,
        };
        self.is_over = end.is_some();
        let is_new = end.is_some() || self.reported.is_none_or(|reported| moved > reported);
        is_new.then(|| {
            self.reported = Some(moved);
            PagingOutcome {
                guest: self.order.paging.guest.clone(),
                mechanism: self.order.paging.mechanism,
                way: Some(self.way.code()),
                not_by_process: self.not_by_process.clone(),
                moved,
                end,
            }
        })
    }

    /// `Err`: the outcome of an order that is refused at once.
    fn begin(order: Order, settings: PagerSettings) -> Result<PagingJob, Box<PagingOutcome>> {
        let is_in = order.paging.mechanism == Mechanism::PageIn;
        let not_by_process = if is_in || settings.way != PagingWay::Auto {
            None
        } else {
            let (root, ram) = (Path::new(ROOT), GuestRam::AtLeast(RAM_MIN));
            let ProcessId { pid, start_ticks } = order.process;
            let ways = capabilities(root, pid, Some(start_ticks), ram, &settings.swap);
            ways.page_out.err().filter(ReclaimError::may_use_cgroup)
        };
        let by_cgroup = settings.way == PagingWay::Cgroup || not_by_process.is_some();
        let way = match (is_in, by_cgroup) {
            (true, _) => Way::page_in(&order, &settings),
            (false, true) => Way::page_out_by_cgroup(&order, &settings),
            (false, false) => Way::page_out(&order, &settings),
        };
        match way {
            Ok(way) => Ok(PagingJob {
                order,
                settings,
                way,
                not_by_process,
                reported: None,
                is_over: false,
            }),
            Err(refusal) => Err(Box::new(PagingOutcome {
                guest: order.paging.guest,
                mechanism: order.paging.mechanism,
                way: None,
                not_by_process,
                moved: Bytes::ZERO,
                end: Some(PagingEnd::Refused(refusal)),
            })),
        }
    }
}

impl Way {
    fn page_in(order: &Order, settings: &PagerSettings) -> Result<Way, ReclaimError> {
        let limits =
            PageInLimits { per_second: settings.per_second, step_bytes_max: STEP_BYTES_MAX };
        let missing = order.paging.resident.saturating_sub(order.resident);
        Ok(Way::In(process_of(order)?, PageIn::new(Some(missing), limits)))
    }

    fn page_out(order: &Order, settings: &PagerSettings) -> Result<Way, ReclaimError> {
        let process = process_of(order)?;
        // Seeded by the plan: each plan picks other pages, but reproducibly.
        let mut picker = Picker::new(order.paging.generation.0);
        if let Some(coldness) = &order.coldness {
            picker = coldness.apply_to(picker, &process.regions()?);
        }
        let amount = page_out_amount(order, occupied_now(&process)?);
        Ok(Way::Out(process, Box::new(PageOut::new(amount, picker, page_out_limits(settings)))))
    }

    fn page_out_by_cgroup(order: &Order, settings: &PagerSettings) -> Result<Way, ReclaimError> {
        let (root, to) = (Path::new(ROOT), order.paging.resident);
        let ProcessId { pid, start_ticks } = order.process;
        let limits = page_out_limits(settings);
        let group_out = CgroupPageOut::open(root, pid, Some(start_ticks), to, limits)?;
        Ok(Way::GroupOut(Box::new(group_out)))
    }

    fn step(&mut self, now: Timestamp, host_reserve: Bytes) -> PagingProgress {
        match self {
            Way::Out(process, page_out) => page_out.step(process, now),
            Way::GroupOut(group_out) => group_out.step(now),
            Way::In(process, page_in) => page_in.step(process, now, host_spare(host_reserve)),
        }
    }

    /// Stable word for [`PagingOutcome::way`].
    fn code(&self) -> &'static str {
        match self {
            Way::Out(..) => "page-out",
            Way::GroupOut(group_out) => group_out.method().code(),
            Way::In(..) => "page-in",
        }
    }
}

fn process_of(order: &Order) -> Result<GuestMemory, ReclaimError> {
    let ProcessId { pid, start_ticks } = order.process;
    GuestMemory::open(Path::new(PROC), pid, Some(start_ticks), GuestRam::AtLeast(RAM_MIN))
}

/// How much an order pages out of a process that occupies `now`. The order's own size may be from
/// before an earlier job ended, and so include memory that this job has moved already.
fn page_out_amount(order: &Order, now: Bytes) -> Bytes {
    order.resident.min(now).saturating_sub(order.paging.resident)
}

/// The host memory that a process occupies now, counted as for the plan. Takes about 4 ms for each
/// GiB of shared memory.
fn occupied_now(process: &GuestMemory) -> Result<Bytes, ReclaimError> {
    let pid = process.vmm().pid();
    let unreadable = |error: ReadError| ReclaimError::Unreadable {
        path: Path::new(PROC).join(pid.to_string()),
        why: error.to_string(),
    };
    let memory = match ProcessReader::open(Path::new(PROC), pid).map_err(unreadable)? {
        Some(mut reader) => reader.read(&mut Vec::new()).map_err(unreadable)?,
        None => None,
    };
    // If the files may not be counted, the page table's figure counts, as it does for the plan.
    let shared = process.shared_in_memory().ok().flatten();
    match memory {
        // It lives, so the reading was of this process and not of a later one with its PID.
        Some(memory) if process.vmm().is_alive() => Ok(memory.occupied(shared)),
        _ => Err(ReclaimError::Gone { pid }),
    }
}

/// Host memory available beyond `reserve`; zero if unknown.
fn host_spare(reserve: Bytes) -> Bytes {
    let available = ballast_host::HostReader::new(Path::new(PROC)).sample().0.memory_available;
    available.unwrap_or_default().saturating_sub(reserve)
}

#[cfg(test)]
mod tests;
