//! One guest and the exchange with it.
//!
//! Idea: an exchange is a task of its own, so that a late guest does not delay the others: its
//! answers are taken in at a later sample, with their age. A sample does not wait for a guest that
//! was slower than the deadline the last time. If another process is behind the socket, all
//! readings are dropped, because they are of another guest.
//! Limits: one exchange at a time for samples; an order has one of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballast_backend::{GenerationGate, SpreadQuery};
use ballast_model::{GuestId, GuestSample, LinkDown, LinkState, Timestamp};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::client::{ExchangeResult, exchange};
use crate::guest::{HypervisorKind, RestGuest};

/// The caller's clock, which advances while a call waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Timestamp,
    pub(crate) began: Instant,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        self.now + self.began.elapsed()
    }

    /// The time of `instant`, which may lie before this clock began.
    fn at(&self, instant: Instant) -> Timestamp {
        let before = self.began.saturating_duration_since(instant);
        self.now.saturating_sub(before) + instant.saturating_duration_since(self.began)
    }
}

/// One guest.
#[derive(Debug)]
pub(crate) struct Slot {
    kind: HypervisorKind,
    pub(crate) path: PathBuf,
    pub(crate) inode: u64,
    /// Whether its socket still exists.
    pub(crate) is_listed: bool,
    pub(crate) guest: Box<dyn RestGuest>,
    pub(crate) gate: GenerationGate,
    /// Why its API does not answer; `None` if it does.
    pub(crate) down: Option<LinkDown>,
    /// Whether it counts as a guest: its API has answered, or may belong to a guest that does not
    /// answer.
    pub(crate) is_guest: bool,
    /// The reason last reported why its socket is not used.
    pub(crate) ignored: Option<LinkDown>,
    /// The process that listens on the socket, and whether it is the hypervisor.
    listener: Option<u32>,
    is_hypervisor: bool,
    /// The socket, as that process named it.
    pub(crate) listens_at: Option<Arc<Path>>,
    exchange: JoinSet<ExchangeResult>,
    /// When a sample is in full; `None` before the first sample.
    full_query: Option<SpreadQuery>,
    /// How long the last exchange took.
    took: Duration,
}

impl Slot {
    pub(crate) fn new(kind: HypervisorKind, path: PathBuf, inode: u64) -> Slot {
        Slot {
            kind,
            path,
            inode,
            is_listed: true,
            guest: (kind.guest)(),
            gate: GenerationGate::default(),
            down: Some(LinkDown::Connecting),
            is_guest: false,
            ignored: None,
            listener: None,
            is_hypervisor: false,
            listens_at: None,
            exchange: JoinSet::new(),
            full_query: None,
            took: Duration::ZERO,
        }
    }

    /// The hypervisor's process. A manager that passed it a listening socket is not the hypervisor.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.listener.filter(|_| self.is_hypervisor)
    }

    /// Whether the hypervisor's process still runs.
    pub(crate) fn is_alive(&self, proc: &Path) -> bool {
        self.pid().is_some_and(|pid| proc.join(pid.to_string()).exists())
    }

    /// Samples the guest, as far as it answers by `until`; an exchange may take `timeout`.
    pub(crate) async fn advance(
        &mut self,
        clock: Clock,
        deadline: Duration,
        timeout: Duration,
        proc: &Path,
    ) {
        let is_late = !self.exchange.is_empty();
        let is_slow = is_late || self.took >= deadline;
        let until = clock.began + if is_slow { Duration::ZERO } else { deadline };
        if !is_late {
            let (now, number) = (clock.now(), self.inode);
            let query = self.full_query.get_or_insert_with(|| SpreadQuery::new(number, now));
            self.guest.begin(now, query.take_due(now));
        }
        loop {
            if self.exchange.is_empty() {
                let calls = self.guest.calls();
                if calls.is_empty() {
                    return;
                }
                let path = self.path.clone();
                let end = Instant::now() + timeout;
                self.exchange.spawn(async move { exchange(&path, calls, false, end).await });
            }
            match timeout_at(until, self.exchange.join_next()).await {
                Ok(Some(Ok(done))) => self.take(done, clock, proc),
                Ok(Some(Err(_))) => {
                    self.down = Some(LinkDown::Closed("the task of its calls panicked".to_owned()));
                }
                Ok(None) | Err(_) => return,
            }
            if self.down.is_some() {
                return;
            }
        }
    }

    /// Takes in the result of an exchange.
    fn take(&mut self, done: ExchangeResult, clock: Clock, proc: &Path) {
        self.took = done.took;
        let is_another = matches!((self.listener, done.pid), (Some(a), Some(b)) if a != b);
        if is_another {
            self.forget();
            return;
        }
        self.listener = done.pid.or(self.listener);
        self.listens_at = done.listens_at.or(self.listens_at.take());
        for (call, asked_at, answer) in &done.answered {
            let (asked_at, now) = (clock.at(*asked_at), clock.now());
            if let Err(why) = self.guest.take(call, answer, asked_at, now) {
                self.down = Some(why);
                return;
            }
        }
        if let Some(pid) = self.listener.filter(|_| !self.is_hypervisor) {
            let name = fs::read_to_string(proc.join(pid.to_string()).join("comm"));
            let is_called_so = name.is_ok_and(|name| name.starts_with(self.kind.process));
            self.is_hypervisor = is_called_so || self.guest.claims_process(pid);
        }
        self.down = done.error.map(|error| error.why);
    }

    /// Drops all readings: another guest answers on the socket from now on.
    pub(crate) fn forget(&mut self) {
        let (path, inode, is_listed) = (self.path.clone(), self.inode, self.is_listed);
        let (is_guest, ignored) = (self.is_guest, self.ignored.take());
        *self = Slot { is_listed, is_guest, ignored, ..Slot::new(self.kind, path, inode) };
    }

    /// Its sample at `now`.
    pub(crate) fn sample(&self, id: &GuestId, now: Timestamp) -> GuestSample {
        let mut sample = self.guest.sample(id, now);
        if let Some(why) = &self.down {
            sample.link = LinkState::Down(why.clone());
        }
        sample
    }
}
