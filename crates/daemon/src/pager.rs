//! Carries out orders to page guests out and in.
//!
//! Idea: writing to a disk takes its time, and a tick has none. A thread of its own keeps one job per guest and takes
//! small steps; each tick hands it the orders of its plan, which take the place of those before, and fetches
//! what came of them. An order that is not given again is dropped with its job.
//!
//! Pages of the guest's process are chosen where that is permitted; where it is not, the guest's own cgroup is asked for
//! an amount ([`PagingWay`]). No step leaves a cgroup with another bound than before, so that none is left behind
//! whichever way an order ends.
//!
//! Cost: nothing while nothing is ordered; 1 ms to find out what is permitted for each order that begins. Limits:
//! [`GUESTS_MAX`] jobs; a step writes [`STEP_BYTES_MAX`], and no job goes on after its order's deadline.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use ballast_host::PROC;
use ballast_model::{Bytes, GuestId, Mechanism, Paging, Timestamp};
use ballast_reclaim::{
    Coldness, Finish, GroupOut, GuestRam, PageIn, PageInLimits, PageOut, PageOutLimits, Picker,
    Progress, Refusal, State, SwapBounds, capabilities,
};
use tracing::{debug, info};

use super::clock;
use super::once::Once;

/// Most guests that are paged at a time.
const GUESTS_MAX: usize = 64;
/// Most that one step moves.
const STEP_BYTES_MAX: Bytes = Bytes::mib(8);
/// A guest's memory is in mappings at least so large: smaller ones are the hypervisor's own.
pub(super) const RAM_MIN: Bytes = Bytes::mib(64);
/// Time between looks where every job waits.
const PAUSE: Duration = Duration::from_millis(5);

/// Where the kernel's files are.
const ROOT: &str = "/";

/// Whose memory is paged out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PagingWay {
    /// The process's, and its cgroup's where the former is not permitted or the kernel cannot.
    #[default]
    Auto,
    /// Pages of the guest's process: what is known to be cold, else at random.
    Process,
    /// An amount of the guest's own cgroup, chosen by the kernel.
    Cgroup,
}

/// What an operator can set about paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagerSettings {
    /// Whose memory is paged out.
    pub(crate) way: PagingWay,
    /// Bytes a second of each guest.
    pub(crate) per_second: Bytes,
    /// How much of the host's swap may be in use.
    pub(crate) swap: SwapBounds,
    /// The host's available memory that paging in leaves alone.
    pub(crate) host_reserve: Bytes,
}

impl PagerSettings {
    /// A disk of the slower kind, and less than a guest can read back from it.
    pub(crate) const PER_SECOND_DEFAULT: Bytes = Bytes::mib(128);

    fn page_out(&self) -> PageOutLimits {
        let (per_second, swap) = (self.per_second, self.swap);
        PageOutLimits { per_second, step_bytes_max: STEP_BYTES_MAX, swap }
    }
}

/// What came of an order so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paged {
    pub(crate) guest: GuestId,
    pub(crate) mechanism: Mechanism,
    /// By which way of [`ReclaimCapabilities::all`](ballast_reclaim::ReclaimCapabilities::all); `None`: by none yet.
    pub(crate) way: Option<&'static str>,
    /// Why pages of its process were not chosen, though they were to be.
    pub(crate) not_by_process: Option<Refusal>,
    /// What really moved since the order was first given.
    pub(crate) moved: Bytes,
    /// Why nothing more will move.
    pub(crate) end: Option<Ended>,
}

/// Why an order came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Finished(Finish),
    Refused(Refusal),
}

impl Paged {
    /// Says it in the log.
    pub(super) fn say(&self, said: &mut Once) {
        let Paged { guest, mechanism, moved, .. } = self;
        let subject = format!("{guest} ({mechanism})");
        let by = self.way.unwrap_or("no way");
        if let Some(why) = &self.not_by_process {
            let what = format!("its cgroup is asked, as pages may not be chosen: {why}");
            said.warn(&format!("{subject} by process"), &what);
        }
        match &self.end {
            Some(Ended::Refused(refusal)) => said.warn(&subject, &refusal.to_string()),
            Some(Ended::Finished(finish)) => {
                said.over(&subject);
                // Where there is nothing to move, the same order comes with each tick.
                if *moved > Bytes::ZERO {
                    info!("{guest}: {mechanism} {moved} by {by}: {}", finish.code());
                }
            }
            None => debug!("{guest}: {mechanism} {moved} by {by} so far"),
        }
    }
}

/// An order and the process it is about.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) paging: Paging,
    pub(crate) pid: u32,
    /// What its process occupies now.
    pub(crate) resident: Bytes,
    /// What is known of its pages.
    pub(crate) coldness: Option<Arc<Coldness>>,
}

/// The thread's handle. The thread ends with it, and is waited for: a process that ended in the midst of a step would
/// leave a cgroup with that step's bound.
#[derive(Debug)]
pub(crate) struct Pager {
    /// `None`: it is to end.
    orders: Option<Sender<Vec<Order>>>,
    thread: Option<JoinHandle<()>>,
    paged: Receiver<Paged>,
    /// Whether the thread was given anything that it may still be at.
    is_busy: bool,
}

impl Pager {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none.
    pub(crate) fn start(settings: PagerSettings) -> anyhow::Result<Pager> {
        let (orders, taken) = mpsc::channel();
        let (told, paged) = mpsc::channel();
        let work = move || Worker { settings, jobs: BTreeMap::new(), told }.run(&taken);
        let thread = std::thread::Builder::new()
            .name("pager".to_owned())
            .spawn(work)
            .context("no thread to page guests with")?;
        Ok(Pager { orders: Some(orders), thread: Some(thread), paged, is_busy: false })
    }

    /// From now on these orders and no others.
    pub(crate) fn obey(&mut self, orders: Vec<Order>) {
        if self.is_busy || !orders.is_empty() {
            self.is_busy = !orders.is_empty();
            // The thread lives as long as this does.
            let _ = self.orders.as_ref().map(|it| it.send(orders));
        }
    }

    /// What came of them since this was last called; of each guest the latest comes last.
    pub(crate) fn paged(&mut self) -> Vec<Paged> {
        self.paged.try_iter().collect()
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.orders = None;
        // One that panicked has nothing more to do.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The thread.
struct Worker {
    settings: PagerSettings,
    jobs: BTreeMap<GuestId, Job>,
    told: Sender<Paged>,
}

/// One guest being paged.
struct Job {
    order: Order,
    way: Way,
    not_by_process: Option<Refusal>,
    /// What was told last; `None`: nothing yet.
    told: Option<Bytes>,
    is_over: bool,
}

enum Way {
    Out(ballast_reclaim::Paging, Box<PageOut>),
    GroupOut(Box<GroupOut>),
    In(ballast_reclaim::Paging, PageIn),
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

    /// Jobs that are ordered again go on; the others end.
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
                        let _ = self.told.send(*refused);
                    }
                },
            }
        }
    }

    /// A step of each job, and whether anybody still listens.
    fn step(&mut self, now: Timestamp) -> bool {
        for job in self.jobs.values_mut().filter(|job| !job.is_over) {
            if now > job.order.paging.deadline {
                job.is_over = true;
                continue;
            }
            let Progress { state, moved, .. } = job.way.step(now, self.settings.host_reserve);
            let end = match state {
                State::Finished(finish) => Some(Ended::Finished(finish)),
                // Where that may be over with the next tick, the order comes again.
                State::Refused(refusal) => Some(Ended::Refused(refusal)),
                State::Going | State::Waiting { .. } => None,
            };
            job.is_over = end.is_some();
            if end.is_some() || job.told.is_none_or(|told| moved > told) {
                job.told = Some(moved);
                let Paging { guest, mechanism, .. } = &job.order.paging;
                let paged = Paged {
                    guest: guest.clone(),
                    mechanism: *mechanism,
                    way: Some(job.way.code()),
                    not_by_process: job.not_by_process.clone(),
                    moved,
                    end,
                };
                if self.told.send(paged).is_err() {
                    return false;
                }
            }
        }
        true
    }
}

impl Job {
    /// `Err`: what is to be told of one that is refused at once.
    fn begin(order: Order, settings: &PagerSettings) -> Result<Job, Box<Paged>> {
        let is_in = order.paging.mechanism == Mechanism::PageIn;
        let not_by_process = if is_in || settings.way != PagingWay::Auto {
            None
        } else {
            let (root, ram) = (Path::new(ROOT), GuestRam::AtLeast(RAM_MIN));
            let ways = capabilities(root, order.pid, None, ram, &settings.swap);
            ways.page_out.err().filter(Refusal::leaves_cgroup)
        };
        let by_cgroup = settings.way == PagingWay::Cgroup || not_by_process.is_some();
        let way = match (is_in, by_cgroup) {
            (true, _) => Way::page_in(&order, settings),
            (false, true) => Way::page_out_by_cgroup(&order, settings),
            (false, false) => Way::page_out(&order, settings),
        };
        match way {
            Ok(way) => Ok(Job { order, way, not_by_process, told: None, is_over: false }),
            Err(refusal) => Err(Box::new(Paged {
                guest: order.paging.guest,
                mechanism: order.paging.mechanism,
                way: None,
                not_by_process,
                moved: Bytes::ZERO,
                end: Some(Ended::Refused(refusal)),
            })),
        }
    }
}

impl Way {
    fn page_in(order: &Order, settings: &PagerSettings) -> Result<Way, Refusal> {
        let limits =
            PageInLimits { per_second: settings.per_second, step_bytes_max: STEP_BYTES_MAX };
        let missing = order.paging.resident.saturating_sub(order.resident);
        Ok(Way::In(process_of(order)?, PageIn::new(Some(missing), limits)))
    }

    fn page_out(order: &Order, settings: &PagerSettings) -> Result<Way, Refusal> {
        let process = process_of(order)?;
        // Another choice of pages for each plan; the same for the same one.
        let mut picker = Picker::new(order.paging.generation.0);
        if let Some(coldness) = &order.coldness {
            picker = coldness.tell(picker, &process.regions()?);
        }
        let amount = order.resident.saturating_sub(order.paging.resident);
        Ok(Way::Out(process, Box::new(PageOut::new(amount, picker, settings.page_out()))))
    }

    fn page_out_by_cgroup(order: &Order, settings: &PagerSettings) -> Result<Way, Refusal> {
        let (root, to) = (Path::new(ROOT), order.paging.resident);
        let group_out = GroupOut::open(root, order.pid, None, to, settings.page_out())?;
        Ok(Way::GroupOut(Box::new(group_out)))
    }

    fn step(&mut self, now: Timestamp, host_reserve: Bytes) -> Progress {
        match self {
            Way::Out(process, page_out) => page_out.step(process, now),
            Way::GroupOut(group_out) => group_out.step(now),
            Way::In(process, page_in) => page_in.step(process, now, host_spare(host_reserve)),
        }
    }

    /// Stable word, as [`Paged::way`] has it.
    fn code(&self) -> &'static str {
        match self {
            Way::Out(..) => "page-out",
            Way::GroupOut(group_out) => group_out.way().code(),
            Way::In(..) => "page-in",
        }
    }
}

fn process_of(order: &Order) -> Result<ballast_reclaim::Paging, Refusal> {
    let ram = GuestRam::AtLeast(RAM_MIN);
    ballast_reclaim::Paging::open(Path::new(PROC), order.pid, None, ram)
}

/// What the host has available beyond its reserve; nothing where it does not say.
fn host_spare(reserve: Bytes) -> Bytes {
    let available = ballast_host::HostReader::new(Path::new(PROC)).sample().0.memory_available;
    available.unwrap_or_default().saturating_sub(reserve)
}

#[cfg(test)]
mod tests;
