//! Carries out orders to page guests out and in.
//!
//! Idea: writing to a disk takes its time, and a tick has none. A thread of its own keeps one job per guest and takes
//! small steps; each tick hands it the orders of its plan, which take the place of those before, and fetches
//! what came of them. An order that is not given again is dropped with its job.
//! Cost: nothing while nothing is ordered. Limits: [`GUESTS_MAX`] jobs; a step writes [`STEP_BYTES_MAX`], and no job goes on
//! after its order's deadline.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::Context;
use ballast_host::PROC;
use ballast_model::{Bytes, GuestId, Mechanism, Paging, Timestamp};
use ballast_reclaim::{
    Coldness, Finish, GuestRam, PageIn, PageInLimits, PageOut, PageOutLimits, Picker, Progress,
    Refusal, State, SwapBounds,
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

/// What an operator can set about paging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagerSettings {
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
}

/// What came of an order so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paged {
    pub(crate) guest: GuestId,
    pub(crate) mechanism: Mechanism,
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
        let Paged { guest, mechanism, moved, end } = self;
        let subject = format!("{guest} ({mechanism})");
        match end {
            Some(Ended::Refused(refusal)) => said.warn(&subject, &refusal.to_string()),
            Some(Ended::Finished(finish)) => {
                said.over(&subject);
                // Where there is nothing to move, the same order comes with each tick.
                if *moved > Bytes::ZERO {
                    info!("{guest}: {mechanism} {moved}: {}", finish.code());
                }
            }
            None => debug!("{guest}: {mechanism} {moved} so far"),
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

/// The thread's handle; the thread ends with it.
#[derive(Debug)]
pub(crate) struct Pager {
    orders: Sender<Vec<Order>>,
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
        std::thread::Builder::new()
            .name("pager".to_owned())
            .spawn(work)
            .context("no thread to page guests with")?;
        Ok(Pager { orders, paged, is_busy: false })
    }

    /// From now on these orders and no others.
    pub(crate) fn obey(&mut self, orders: Vec<Order>) {
        if self.is_busy || !orders.is_empty() {
            self.is_busy = !orders.is_empty();
            // The thread lives as long as this does.
            let _ = self.orders.send(orders);
        }
    }

    /// What came of them since this was last called; of each guest the latest comes last.
    pub(crate) fn paged(&mut self) -> Vec<Paged> {
        self.paged.try_iter().collect()
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
    process: ballast_reclaim::Paging,
    way: Way,
    /// What was told last.
    told: Bytes,
    is_over: bool,
}

enum Way {
    Out(Box<PageOut>),
    In(PageIn),
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
            if self.step(clock::now()).is_err() {
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
                    Err(refusal) => {
                        let _ = self.told.send(order.ended(Bytes::ZERO, Ended::Refused(refusal)));
                    }
                },
            }
        }
    }

    /// A step of each job. `Err`: nobody listens any more.
    fn step(&mut self, now: Timestamp) -> Result<(), mpsc::SendError<Paged>> {
        for job in self.jobs.values_mut().filter(|job| !job.is_over) {
            if now > job.order.paging.deadline {
                job.is_over = true;
                continue;
            }
            let Progress { state, moved, .. } = match &mut job.way {
                Way::Out(page_out) => page_out.step(&job.process, now),
                Way::In(page_in) => {
                    page_in.step(&job.process, now, host_spare(self.settings.host_reserve))
                }
            };
            let end = match state {
                State::Finished(finish) => Some(Ended::Finished(finish)),
                // Where that may be over with the next tick, the order comes again.
                State::Refused(refusal) => Some(Ended::Refused(refusal)),
                State::Going | State::Waiting { .. } => None,
            };
            job.is_over = end.is_some();
            if end.is_some() || moved > job.told {
                job.told = moved;
                let (guest, mechanism) =
                    (job.order.paging.guest.clone(), job.order.paging.mechanism);
                self.told.send(Paged { guest, mechanism, moved, end })?;
            }
        }
        Ok(())
    }
}

impl Order {
    fn ended(&self, moved: Bytes, end: Ended) -> Paged {
        let Paging { guest, mechanism, .. } = &self.paging;
        Paged { guest: guest.clone(), mechanism: *mechanism, moved, end: Some(end) }
    }
}

impl Job {
    fn begin(order: Order, settings: &PagerSettings) -> Result<Job, Refusal> {
        let ram = GuestRam::AtLeast(RAM_MIN);
        let process = ballast_reclaim::Paging::open(Path::new(PROC), order.pid, None, ram)?;
        let (now, wanted) = (order.resident, order.paging.resident);
        let way = if order.paging.mechanism == Mechanism::PageIn {
            let limits =
                PageInLimits { per_second: settings.per_second, step_bytes_max: STEP_BYTES_MAX };
            Way::In(PageIn::new(Some(wanted.saturating_sub(now)), limits))
        } else {
            let limits = PageOutLimits {
                per_second: settings.per_second,
                step_bytes_max: STEP_BYTES_MAX,
                swap: settings.swap,
            };
            // Another choice of pages for each plan; the same for the same one.
            let mut picker = Picker::new(order.paging.generation.0);
            if let Some(coldness) = &order.coldness {
                picker = coldness.tell(picker, &process.regions()?);
            }
            Way::Out(Box::new(PageOut::new(now.saturating_sub(wanted), picker, limits)))
        };
        Ok(Job { order, process, way, told: Bytes::ZERO, is_over: false })
    }
}

/// What the host has available beyond its reserve; nothing where it does not say.
fn host_spare(reserve: Bytes) -> Bytes {
    let available = ballast_host::HostReader::new(Path::new(PROC)).sample().0.memory_available;
    available.unwrap_or_default().saturating_sub(reserve)
}
