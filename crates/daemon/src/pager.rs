//! Pages guests out and in, as the plan orders.
//!
//! Idea: writing to disk takes too long for a tick. A thread keeps one job per guest and works in
//! small steps. Each tick replaces the thread's orders with those of its plan and fetches the
//! outcomes so far. An order that is not repeated is dropped with its job.
//!
//! Where permitted, the thread chooses pages of the guest's process. Otherwise it reclaims an
//! amount from the guest's own cgroup ([`PagingWay`]). Every step restores the cgroup's limit, so
//! no limit is left behind however an order ends.
//!
//! Cost: none without orders; 1 ms per new order to check permissions.
//! Limits: [`GUESTS_MAX`] jobs; a step moves at most [`STEP_BYTES_MAX`]; a job stops at its order's
//! deadline.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use ballast_config::paging::{PagerSettings, PagingWay};
use ballast_host::PROC;
use ballast_model::{Bytes, GuestId, Mechanism, Paging, Timestamp};
use ballast_reclaim::{
    CgroupPageOut, Coldness, FinishReason, GuestMemory, GuestRam, PageIn, PageInLimits, PageOut,
    PageOutLimits, PagingProgress, PagingState, Picker, ReclaimError, capabilities,
};
use tracing::{debug, info};

use super::clock;
use super::warn_once::WarnOnce;

/// Most guests paged at the same time.
const GUESTS_MAX: usize = 64;
/// Most bytes that one step moves.
const STEP_BYTES_MAX: Bytes = Bytes::mib(8);
/// Smallest mapping taken for guest memory: smaller ones belong to the hypervisor itself.
pub(super) const RAM_MIN: Bytes = Bytes::mib(64);
/// Pause between two rounds of steps.
const PAUSE: Duration = Duration::from_millis(5);

/// Root of the kernel's file systems.
const ROOT: &str = "/";

/// Limits of one page-out step.
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
    /// Logs it.
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
                warnings.over(&subject);
                // An order with nothing to move repeats at every tick: do not log it.
                if *moved > Bytes::ZERO {
                    info!("{guest}: {mechanism} {moved} by {by}: {}", finish.code());
                }
            }
            None => debug!("{guest}: {mechanism} {moved} by {by} so far"),
        }
    }
}

/// A paging order and the process it applies to.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) paging: Paging,
    pub(crate) pid: u32,
    /// Host memory its process occupies now.
    pub(crate) resident: Bytes,
    /// Which of its pages are cold, if known.
    pub(crate) coldness: Option<Arc<Coldness>>,
}

/// Handle of the pager thread. Dropping it ends the thread and waits for it: a process that exits
/// during a step would leave that step's limit on a cgroup.
#[derive(Debug)]
pub(crate) struct Pager {
    /// `None`: the thread is to end.
    orders: Option<Sender<Vec<Order>>>,
    thread: Option<JoinHandle<()>>,
    paged: Receiver<PagingOutcome>,
    /// Whether the last orders were not empty.
    is_busy: bool,
}

impl Pager {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(settings: PagerSettings) -> anyhow::Result<Pager> {
        let (orders, taken) = mpsc::channel();
        let (outcomes, paged) = mpsc::channel();
        let work = move || Worker { settings, jobs: BTreeMap::new(), outcomes }.run(&taken);
        let thread = std::thread::Builder::new()
            .name("pager".to_owned())
            .spawn(work)
            .context("cannot start the pager thread")?;
        Ok(Pager { orders: Some(orders), thread: Some(thread), paged, is_busy: false })
    }

    /// Replaces all orders with these.
    pub(crate) fn obey(&mut self, orders: Vec<Order>) {
        if self.is_busy || !orders.is_empty() {
            self.is_busy = !orders.is_empty();
            // Sending cannot fail: the thread lives as long as this handle.
            let _ = self.orders.as_ref().map(|it| it.send(orders));
        }
    }

    /// The outcomes since the last call, in order.
    pub(crate) fn paged(&mut self) -> Vec<PagingOutcome> {
        self.paged.try_iter().collect()
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.orders = None;
        // A thread that panicked is gone already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The pager thread's state.
struct Worker {
    settings: PagerSettings,
    jobs: BTreeMap<GuestId, Job>,
    outcomes: Sender<PagingOutcome>,
}

/// One guest being paged.
struct Job {
    order: Order,
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

impl Worker {
    fn run(mut self, orders: &Receiver<Vec<Order>>) {
        loop {
            let wait = if self.jobs.values().all(|job| job.is_over) {
                orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                orders.recv_timeout(PAUSE)
            };
            match wait {
                Ok(orders) => self.take(orders),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !self.step(clock::now()) {
                return;
            }
        }
    }

    /// Continues jobs whose order is repeated, starts new ones and drops the rest.
    fn take(&mut self, orders: Vec<Order>) {
        let mut before = std::mem::take(&mut self.jobs);
        for order in orders.into_iter().take(GUESTS_MAX) {
            let guest = order.paging.guest.clone();
            let same = before.remove(&guest).filter(|job| {
                let is_same = job.order.pid == order.pid
                    && job.order.paging.mechanism == order.paging.mechanism
                    && job.order.paging.resident == order.paging.resident;
                is_same && !job.is_over
            });
            match same {
                Some(job) => {
                    self.jobs.insert(guest, Job { order, ..job });
                }
                None => match Job::begin(order.clone(), &self.settings) {
                    Ok(job) => {
                        self.jobs.insert(guest, job);
                    }
                    Err(refused) => {
                        let _ = self.outcomes.send(*refused);
                    }
                },
            }
        }
    }

    /// Does one step of each job; `false`: the handle is gone.
    fn step(&mut self, now: Timestamp) -> bool {
        for job in self.jobs.values_mut().filter(|job| !job.is_over) {
            if now > job.order.paging.deadline {
                job.is_over = true;
                continue;
            }
            let PagingProgress { state, moved, .. } = job.way.step(now, self.settings.host_reserve);
            let end = match state {
                PagingState::Finished(finish) => Some(PagingEnd::Finished(finish)),
                // If the cause may pass, the next plan repeats the order.
                PagingState::Failed(refusal) => Some(PagingEnd::Refused(refusal)),
                PagingState::InProgress | PagingState::Waiting { .. } => None,
            };
            job.is_over = end.is_some();
            if end.is_some() || job.reported.is_none_or(|reported| moved > reported) {
                job.reported = Some(moved);
                let Paging { guest, mechanism, .. } = &job.order.paging;
                let paged = PagingOutcome {
                    guest: guest.clone(),
                    mechanism: *mechanism,
                    way: Some(job.way.code()),
                    not_by_process: job.not_by_process.clone(),
                    moved,
                    end,
                };
                if self.outcomes.send(paged).is_err() {
                    return false;
                }
            }
        }
        true
    }
}

impl Job {
    /// `Err`: the outcome of an order that is refused at once.
    fn begin(order: Order, settings: &PagerSettings) -> Result<Job, Box<PagingOutcome>> {
        let is_in = order.paging.mechanism == Mechanism::PageIn;
        let not_by_process = if is_in || settings.way != PagingWay::Auto {
            None
        } else {
            let (root, ram) = (Path::new(ROOT), GuestRam::AtLeast(RAM_MIN));
            let ways = capabilities(root, order.pid, None, ram, &settings.swap);
            ways.page_out.err().filter(ReclaimError::may_use_cgroup)
        };
        let by_cgroup = settings.way == PagingWay::Cgroup || not_by_process.is_some();
        let way = match (is_in, by_cgroup) {
            (true, _) => Way::page_in(&order, settings),
            (false, true) => Way::page_out_by_cgroup(&order, settings),
            (false, false) => Way::page_out(&order, settings),
        };
        match way {
            Ok(way) => Ok(Job { order, way, not_by_process, reported: None, is_over: false }),
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
        // Seeded by the plan: each plan chooses other pages, and reproducibly.
        let mut picker = Picker::new(order.paging.generation.0);
        if let Some(coldness) = &order.coldness {
            picker = coldness.apply_to(picker, &process.regions()?);
        }
        let amount = order.resident.saturating_sub(order.paging.resident);
        Ok(Way::Out(process, Box::new(PageOut::new(amount, picker, page_out_limits(settings)))))
    }

    fn page_out_by_cgroup(order: &Order, settings: &PagerSettings) -> Result<Way, ReclaimError> {
        let (root, to) = (Path::new(ROOT), order.paging.resident);
        let group_out = CgroupPageOut::open(root, order.pid, None, to, page_out_limits(settings))?;
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
    let ram = GuestRam::AtLeast(RAM_MIN);
    GuestMemory::open(Path::new(PROC), order.pid, None, ram)
}

/// Host memory available beyond `reserve`; zero if unknown.
fn host_spare(reserve: Bytes) -> Bytes {
    let available = ballast_host::HostReader::new(Path::new(PROC)).sample().0.memory_available;
    available.unwrap_or_default().saturating_sub(reserve)
}

#[cfg(test)]
mod tests;
