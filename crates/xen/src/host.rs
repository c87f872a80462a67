//! All domains of a Xen host.
//!
//! Idea: one watch on `/local/domain` reports every domain that appears, ends or changes, and what
//! guests publish; only keys that changed are read. `xl` is run for the rest: with every sample
//! while something moves, with every other one at rest. Between samples only events are taken in.
//!
//! Cost: two messages per sample, and three per changed key (event, request, answer); at most two
//! runs of `xl` per second; a listing of disks, and two small files per disk every five seconds
//! (`disk_reads.rs`).
//! Limits: a key that changes twice within a sample is read once. `claims.rs` deals with what a
//! guest may forge.

mod agent_answers;
mod changes;
mod in_flight;
mod limits;
mod orders;
mod xl_figures;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_agent_proto::wire::HostMessage;
use ballast_backend::{Backend, GuestReading, HostMemory, SampleRequest, Waiting};
use ballast_model::{
    Action, Bytes, Compliance, GuestId, LinkDown, LinkState, Outcome, Plan, Timestamp,
};
use ballast_xenstore::{Answer, Connection, GuardedWrite, RequestId};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::disk_reads::DiskCounters;
use crate::dom0::read_dom0_stats;
use crate::domain::Domain;
use crate::key::{DomainId, DomainKey};
use crate::xl::XlInfo;
use crate::xl_program::XlProgram;

use in_flight::{LimitRun, Listing, XlRun};

/// Most notices kept; further ones are dropped.
const NOTICES_MAX: usize = 1000;
/// The folder in which dom0's kernel reports its statistics.
const PROC: &str = "/proc";
/// The folder of the devices that dom0's kernel serves to domains.
const BACKEND_DEVICES: &str = "/sys/bus/xen-backend/devices";

/// Settings of the connection to Xen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenConfig {
    /// The socket of xenstored.
    pub socket: PathBuf,
    /// The program `xl`.
    pub xl: PathBuf,
    /// After this time without an answer xenstored or `xl` counts as not answering.
    pub command_timeout: Duration,
    /// The floor of dom0.
    pub dom0_floor: Bytes,
    /// Shortest time between emergencies of one guest.
    pub emergency_period: Duration,
    /// Most domains; further ones are refused with a notice.
    pub guests_max: usize,
}

/// The domains of a Xen host.
#[derive(Debug)]
pub struct XenHost {
    config: XenConfig,
    xl: XlProgram,
    connection: Option<Connection>,
    /// Why there is no connection; `None` once everything was read from it.
    down: Option<LinkDown>,
    /// When xenstored last answered a request for a sign of life.
    answered_at: Option<Timestamp>,
    /// The purposes of requests without an answer.
    asked: BTreeMap<RequestId, RequestPurpose>,
    /// Answers to guests' agents that are being written.
    answer_writes: BTreeMap<RequestId, GuardedWrite>,
    /// Answers to orders, as received.
    order_answers: BTreeMap<RequestId, Answer>,
    /// Keys to read, and when an event reported their change; `None` if that time is unknown.
    changed: BTreeMap<(DomainId, DomainKey), Option<Timestamp>>,
    /// Keys that were requested in this sample.
    read: BTreeSet<(DomainId, DomainKey)>,
    /// A list of all domains that is wanted or requested.
    listing: Listing,
    domains: BTreeMap<DomainId, Domain>,
    /// Domains that are refused as guests, and why.
    refused: BTreeMap<DomainId, String>,
    /// A run of `xl` that has not ended.
    run: Option<XlRun>,
    /// When the last run of `xl` that ended was begun.
    xl_run_at: Option<Timestamp>,
    /// Figures of the host from the last run.
    info: Option<XlInfo>,
    /// Why `xl` does not work; `None` if it works.
    xl_error: Option<String>,
    /// Changes of maxmem that are running.
    limit_runs: JoinSet<LimitRun>,
    /// Domains whose maxmem is being changed.
    limiting: BTreeSet<DomainId>,
    /// What domains have read from their disks.
    disks: DiskCounters,
    notices: Vec<String>,
    /// The caller's clock, from which it is extended between calls.
    anchor: Option<(Timestamp, Instant)>,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPurpose {
    Watch,
    /// A sign of life: only that an answer comes counts.
    LivenessCheck,
    /// An answer to a guest's agent.
    AgentAnswer,
    Domains,
    /// A key, and when an event reported its change.
    Key(DomainId, DomainKey, Option<Timestamp>),
    Order,
}

impl XenHost {
    /// A host that was not sampled yet.
    pub fn new(config: XenConfig) -> XenHost {
        XenHost {
            xl: XlProgram { path: config.xl.clone(), timeout: config.command_timeout },
            config,
            connection: None,
            down: Some(LinkDown::Connecting),
            answered_at: None,
            asked: BTreeMap::new(),
            answer_writes: BTreeMap::new(),
            order_answers: BTreeMap::new(),
            changed: BTreeMap::new(),
            read: BTreeSet::new(),
            listing: Listing::default(),
            domains: BTreeMap::new(),
            refused: BTreeMap::new(),
            run: None,
            xl_run_at: None,
            info: None,
            xl_error: None,
            limit_runs: JoinSet::new(),
            limiting: BTreeSet::new(),
            disks: DiskCounters::new(Path::new(BACKEND_DEVICES)),
            notices: Vec::new(),
            anchor: None,
        }
    }

    fn say(&mut self, notice: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }

    /// The caller's clock now.
    fn now(&self) -> Timestamp {
        self.anchor.map_or(Timestamp::ZERO, |(then, at)| then + at.elapsed())
    }

    async fn sample_all(&mut self, request: SampleRequest<'_>) -> Vec<GuestReading> {
        self.anchor = Some((request.now, Instant::now()));
        let until = Instant::now() + request.deadline;
        self.begin_xl();
        self.connect(until).await;
        self.read_changes(until).await;
        self.await_xl(until).await;
        self.change_limits();
        self.refuse();
        self.readings()
    }

    /// Connects, unless there is a connection.
    async fn connect(&mut self, until: Instant) {
        if self.connection.is_some() {
            return;
        }
        match Connection::open(&self.config.socket, until).await {
            Err(why) => self.disconnected(why),
            Ok(connection) => {
                self.connection = Some(connection);
                self.watch();
            }
        }
    }

    /// Records that the connection ended or could not be made. Each reason is reported once.
    fn disconnected(&mut self, why: LinkDown) {
        if self.down.as_ref() != Some(&why) {
            let socket = self.config.socket.display().to_string();
            self.say(format!("no connection to xenstored ({socket}): {why}"));
        }
        self.down = Some(why);
        self.connection = None;
        self.asked.clear();
        self.answer_writes.clear();
        self.order_answers.clear();
        self.changed.clear();
        self.listing = Listing::default();
    }

    fn link(&self) -> LinkState {
        let now = self.now();
        let is_late = |at: Timestamp| now.saturating_since(at) > self.config.command_timeout;
        match (&self.connection, self.answered_at) {
            (None, _) => LinkState::Down(self.down.clone().unwrap_or(LinkDown::Connecting)),
            (Some(_), Some(at)) if !is_late(at) => LinkState::Up,
            (Some(_), Some(_)) => LinkState::Down(LinkDown::TimedOut),
            (Some(_), None) => LinkState::Down(LinkDown::Connecting),
        }
    }

    /// The guests, each with its domain. Of two domains with the same name, the one with the lower
    /// number counts.
    fn guests(&self) -> BTreeMap<GuestId, DomainId> {
        let mut guests = BTreeMap::new();
        for domain in self.domains.values() {
            let id = domain.name().and_then(|name| name.parse::<GuestId>().ok());
            if let Some(id) = id.filter(|_| guests.len() < self.config.guests_max) {
                guests.entry(id).or_insert(domain.id);
            }
        }
        guests
    }

    /// Reports once for each domain why it is refused as a guest.
    fn refuse(&mut self) {
        let guests = self.guests();
        let taken: BTreeSet<DomainId> = guests.values().copied().collect();
        let mut refused = BTreeMap::new();
        for domain in self.domains.values().filter(|domain| !taken.contains(&domain.id)) {
            // A domain without a name is still being built.
            let Some(name) = domain.name() else { continue };
            let why = match name.parse::<GuestId>() {
                Err(error) => error.to_string(),
                Ok(id) => match guests.get(&id) {
                    Some(other) => format!("domain {other} is called {id}, too"),
                    None => format!("there are {} domains already", self.config.guests_max),
                },
            };
            refused.insert(domain.id, why);
        }
        let mut notices = Vec::new();
        for (id, why) in &refused {
            if self.refused.get(id) != Some(why) {
                notices.push(format!("ignoring domain {id} of Xen: {why}"));
            }
        }
        self.refused = refused;
        for notice in notices {
            self.say(notice);
        }
    }

    fn readings(&mut self) -> Vec<GuestReading> {
        let (now, link) = (self.now(), self.link());
        let dom0 = read_dom0_stats(Path::new(PROC));
        self.disks.observe(now);
        let guests = self.guests();
        let mut readings = Vec::with_capacity(guests.len());
        for (id, domain) in guests {
            let Some(domain) = self.domains.get_mut(&domain) else { continue };
            let notices = std::mem::take(&mut domain.notices);
            let dom0 = dom0.filter(|_| domain.id == DomainId::DOM0);
            let is_xl_failing = self.xl_error.is_some();
            let mut reading = domain.reading(&id, link.clone(), now, dom0, is_xl_failing);
            reading.sample.disk_reads = self.disks.of(domain.id, now);
            readings.push(reading);
            for notice in notices {
                self.say(notice);
            }
        }
        readings
    }
}

impl Backend for XenHost {
    fn name(&self) -> &'static str {
        "xen"
    }

    fn sample<'a>(&'a mut self, request: SampleRequest<'a>) -> Waiting<'a, Vec<GuestReading>> {
        Box::pin(self.sample_all(request))
    }

    fn act_all<'a>(
        &'a mut self,
        now: Timestamp,
        actions: &'a [Action],
    ) -> Waiting<'a, Vec<Outcome>> {
        Box::pin(self.order_all(now, actions))
    }

    fn planned(&mut self, plan: &Plan) {
        for (id, domain) in self.guests() {
            let (Some(guest), Some(domain)) = (plan.guest(&id), self.domains.get_mut(&domain))
            else {
                continue;
            };
            let is_left = guest.change.leaves_alone();
            let gives_not =
                matches!(guest.compliance, Compliance::Stuck { .. } | Compliance::Slow { .. });
            domain.ceiling = guest.bounds.map(|bounds| bounds.ceiling);
            domain.is_stuck = gives_not && !is_left && domain.id != DomainId::DOM0;
        }
    }

    fn send_to_agent(&mut self, guest: &GuestId, message: &HostMessage) {
        self.answer_agent(guest, message);
    }

    fn wait_for_event(&mut self) -> Waiting<'_, ()> {
        Box::pin(self.wait_for_urgent_event())
    }

    fn host_memory(&self) -> Option<HostMemory> {
        let total = self.info.map(|info| info.total);
        Some(HostMemory { total, available: self.info.map(|info| info.free) })
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn refused(&self) -> usize {
        self.refused.len()
    }
}

#[cfg(test)]
mod tests;
