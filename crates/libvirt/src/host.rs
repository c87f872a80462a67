//! All domains of one libvirt.
//!
//! Idea: one connection serves all domains. A tick makes one call that returns state and balloon of
//! every domain; the XML of a domain is read when the domain is new, when its memory changed, and
//! again every few minutes. Libvirt's figure of a domain's current memory is up to a second old:
//! while the balloon moves, the hypervisor is queried too, so that memory the guest gave can be
//! granted to others at once. Orders are sent together, and waited for together. Nothing happens
//! between the calls of the daemon: late answers are read in the next call.
//!
//! Cost: one call per tick, some 600 bytes per domain; one call for each domain whose balloon
//! moves; and what `disk_reads.rs` has.
//! Limits: libvirt returns no balloon report of a domain whose hypervisor is busy; the last report
//! then still counts, and ages.

mod between_samples;
mod disk_reads;
mod orders;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_backend::{Backend, GuestReading, SampleRequest, VsockAddress, Waiting};
use ballast_model::{Action, GuestChange, GuestId, LinkDown, LinkState, Outcome, Timestamp};
use tokio::time::Instant;

use crate::call::{Call, DomainStats, Reply};
use crate::connection::{Connection, Purpose};
use crate::domain_guest::DomainGuest;
use crate::domain_xml::{DomainFacts, read_domain_xml};
use crate::session::{Answer, Serial};

/// Most notices kept; further ones are dropped.
const NOTICES_MAX: usize = 1000;
/// The reporting period set for a balloon that has none, in seconds.
const STATS_PERIOD: i32 = 1;
/// How long a domain's XML counts: the event of a metadata change may have been lost.
const FACTS_PERIOD: Duration = Duration::from_secs(300);
/// Most domains whose XML is read again in one sample because it is old.
const REREADS_MAX: usize = 8;
/// The folder of processes.
const PROC: &str = "/proc";

/// Settings of the connection to a libvirt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibvirtConfig {
    /// Its socket: of `libvirtd` or of `virtqemud`.
    pub socket: PathBuf,
    /// After this time without a reply it counts as not answering.
    pub command_timeout: Duration,
    /// Most domains; further ones are refused with a notice.
    pub guests_max: usize,
}

/// The domains of one libvirt.
#[derive(Debug)]
pub struct LibvirtHost {
    config: LibvirtConfig,
    connection: Option<Connection>,
    /// Why there is no connection; `None` once it carried a reply.
    down: Option<LinkDown>,
    /// When the domains were last listed.
    answered_at: Option<Timestamp>,
    guests: BTreeMap<GuestId, DomainGuest>,
    /// Names of domains that are refused as guests.
    refused: BTreeSet<String>,
    notices: Vec<String>,
    /// When disk reads were last requested.
    disk_reads_asked_at: Option<Timestamp>,
    /// Whether that call was refused the last time.
    are_disk_reads_refused: bool,
}

/// The caller's clocks, which go on while a call waits.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    now: Timestamp,
    wall: SystemTime,
    began: Instant,
}

impl Clocks {
    fn now(&self) -> Timestamp {
        self.now + self.began.elapsed()
    }
}

impl LibvirtHost {
    /// A libvirt that was not connected to yet.
    pub fn new(config: LibvirtConfig) -> LibvirtHost {
        LibvirtHost {
            config,
            connection: None,
            down: None,
            answered_at: None,
            guests: BTreeMap::new(),
            refused: BTreeSet::new(),
            notices: Vec::new(),
            disk_reads_asked_at: None,
            are_disk_reads_refused: false,
        }
    }

    async fn sample_all(&mut self, request: SampleRequest<'_>) -> Vec<GuestReading> {
        let clocks = Clocks { now: request.now, wall: request.wall, began: Instant::now() };
        let until = clocks.began + request.deadline;
        self.connect(until).await;
        self.run(until, |it| it.session.is_open()).await;
        self.watch();
        // One call at a time: while libvirt is late, no further call is sent.
        if !self.connection.as_ref().is_some_and(Connection::awaits_stats) {
            self.call(Call::AllDomainStats, Purpose::Stats(clocks.now()));
        }
        let asked_at = clocks.now();
        self.query_moving_guests(asked_at);
        let is_pending =
            |it: &Connection| it.awaits_stats() || it.awaits_current_memory(None, Some(asked_at));
        self.run(until, |it| !is_pending(it)).await;
        self.handle_answers(clocks);
        if self.connection.is_none() {
            self.drop_ended();
        }
        self.handle_events();
        self.request_facts(clocks.now());
        self.request_disk_reads(clocks.now());
        let is_xml = |it: &Purpose| matches!(it, Purpose::Xml(_));
        // The call for disk reads is written, and its answer not waited for.
        let has_facts =
            |it: &Connection| it.session.outgoing().is_empty() && !it.pending.values().any(is_xml);
        self.run(until, has_facts).await;
        self.handle_answers(clocks);
        self.readings(clocks.now())
    }

    /// Connects, unless there is a connection.
    async fn connect(&mut self, until: Instant) {
        if self.connection.is_some() {
            return;
        }
        match Connection::open(&self.config.socket, until).await {
            Err(why) => self.disconnected(why),
            Ok(connection) => self.connection = Some(connection),
        }
    }

    /// Records that the connection ended or could not be made. Each reason is reported once.
    fn disconnected(&mut self, why: LinkDown) {
        if self.down.as_ref() != Some(&why) {
            let socket = self.config.socket.display();
            self.notices.push(format!("no connection to libvirt ({socket}): {why}"));
        }
        self.down = Some(why);
        self.connection = None;
    }

    fn down(&self) -> LinkDown {
        self.down.clone().unwrap_or(LinkDown::Connecting)
    }

    fn call(&mut self, call: Call, purpose: Purpose) -> Option<Serial> {
        let connection = self.connection.as_mut()?;
        let serial = connection.session.call(call)?;
        connection.pending.insert(serial, purpose);
        Some(serial)
    }

    fn is_pending(&self, purpose: &Purpose) -> bool {
        self.connection.as_ref().is_some_and(|it| it.is_pending(purpose))
    }

    /// Reads and writes until `is_done`, `until`, or the end of the connection.
    async fn run(&mut self, until: Instant, is_done: impl Fn(&Connection) -> bool) {
        while let Some(connection) = &mut self.connection {
            let moved = connection.move_bytes(until, &is_done).await;
            connection.sort_answers();
            match moved {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => self.disconnected(why),
            }
        }
    }

    /// Takes in the received answers, also those to earlier calls.
    fn handle_answers(&mut self, clocks: Clocks) {
        while let Some((purpose, answer, received)) =
            self.connection.as_mut().and_then(|it| it.answers.pop_front())
        {
            self.handle_answer(purpose, answer, received, clocks);
        }
    }

    fn handle_answer(
        &mut self,
        purpose: Purpose,
        answer: Answer,
        received: Instant,
        clocks: Clocks,
    ) {
        match (purpose, answer) {
            (Purpose::Stats(asked_at), Ok(Reply::AllDomainStats(all))) => {
                self.handle_stats(all, asked_at, clocks);
            }
            (Purpose::Stats(_), Ok(_)) => {}
            (Purpose::Stats(_), Err(error)) => {
                self.disconnected(LinkDown::Closed(error.to_string()));
            }
            (Purpose::DiskReads(asked_at, sent), answer) => {
                let took = received.saturating_duration_since(sent);
                self.handle_disk_reads(answer, asked_at, took);
            }
            (Purpose::CurrentMemory(id, asked_at), Ok(Reply::CurrentMemory(Some(kib)))) => {
                if let Some(guest) = self.guests.get_mut(&id) {
                    guest.observe_current_memory(kib, asked_at);
                }
            }
            // The domain has ended or is busy; the call for all domains shows that.
            (Purpose::CurrentMemory(..), _) => {}
            (Purpose::Xml(id), Ok(Reply::Xml(xml))) => self.handle_xml(&id, &xml, clocks.now()),
            (Purpose::Xml(_), _) => {}
            (Purpose::StatsPeriod(id), Ok(_)) => {
                self.notices.push(format!("domain {id} reports its memory every second now"));
            }
            (Purpose::StatsPeriod(id), Err(error)) => {
                self.notices.push(format!("domain {id} does not report its memory: {error}"));
            }
            (Purpose::Watch, Err(error)) => {
                let notice = format!("libvirt tells of no events of one kind: {error}");
                self.notices.push(notice);
            }
            (Purpose::Watch | Purpose::Command | Purpose::Order, _) => {}
        }
    }

    /// Takes in a domain's XML. Each problem in it is reported once.
    fn handle_xml(&mut self, id: &GuestId, xml: &str, now: Timestamp) {
        let facts = read_domain_xml(xml);
        let facts = facts
            .unwrap_or_else(|why| DomainFacts { complaints: vec![why], ..DomainFacts::default() });
        let Some(guest) = self.guests.get_mut(id) else { return };
        if guest.complaints != facts.complaints {
            self.notices.extend(facts.complaints.iter().map(|it| format!("domain {id}: {it}")));
            guest.complaints = facts.complaints.clone();
        }
        let settings = facts.settings.clone().map(Arc::new);
        if guest.settings != settings {
            guest.settings = settings;
        }
        let is_first = guest.facts.is_none();
        (guest.facts_at, guest.wants_facts) = (now, false);
        guest.facts = Some(facts.clone());
        if !is_first {
            return;
        }
        let has_balloon = facts.capabilities.balloon == Some(true);
        if has_balloon && facts.stats_period.unwrap_or(0) == 0 {
            let call = Call::SetStatsPeriod { domain: guest.domain.clone(), seconds: STATS_PERIOD };
            self.call(call, Purpose::StatsPeriod(id.clone()));
        }
    }

    /// Takes in the figures of all active domains, queried at `asked_at`.
    fn handle_stats(&mut self, all: Vec<DomainStats>, asked_at: Timestamp, clocks: Clocks) {
        let now = clocks.now();
        if self.down.take().is_some() || self.answered_at.is_none() {
            let socket = self.config.socket.display();
            self.notices.push(format!("connected to libvirt ({socket}), {} domains", all.len()));
        }
        self.answered_at = Some(now);
        let mut present = BTreeSet::new();
        let mut refused = BTreeSet::new();
        for stats in all {
            let name = stats.domain.name.clone();
            match self.guest_of(&stats) {
                Ok(id) => {
                    if let Some(guest) = self.guests.get_mut(&id) {
                        guest.observe(stats, asked_at, now, clocks.wall);
                    }
                    present.insert(id);
                }
                Err(why) => {
                    if !self.refused.contains(&name) {
                        self.notices.push(format!("ignoring a domain of libvirt: {why}"));
                    }
                    refused.insert(name);
                }
            }
        }
        self.refused = refused;
        let notices = &mut self.notices;
        self.guests.retain(|id, _| {
            let is_present = present.contains(id);
            if !is_present {
                notices.push(format!("guest {id} is gone"));
            }
            is_present
        });
        self.notices.truncate(NOTICES_MAX);
    }

    /// Without libvirt, a domain has ended if its process has.
    fn drop_ended(&mut self) {
        let notices = &mut self.notices;
        self.guests.retain(|id, guest| {
            let is_there = |pid: u32| Path::new(PROC).join(pid.to_string()).exists();
            let is_present = guest.pid.is_none_or(is_there);
            if !is_present {
                notices.push(format!("guest {id} is gone"));
            }
            is_present
        });
    }

    /// The guest of a domain. Makes a new guest if the domain is new or was started again.
    fn guest_of(&mut self, stats: &DomainStats) -> Result<GuestId, String> {
        let id: GuestId = stats.domain.name.parse().map_err(|error| format!("{error}"))?;
        let is_known = self.guests.get(&id).is_some_and(|guest| guest.domain == stats.domain);
        if is_known {
            return Ok(id);
        }
        if !self.guests.contains_key(&id) && self.guests.len() >= self.config.guests_max {
            let most = self.config.guests_max;
            return Err(format!("{id}: there are {most} already, and no more are managed"));
        }
        self.notices.push(format!("guest {id} appeared, domain {}", stats.domain.id));
        self.guests.insert(id.clone(), DomainGuest::new(stats.domain.clone()));
        Ok(id)
    }

    /// Queries the current memory of guests whose balloons move. While a reply is missing, its
    /// guest is not queried again, and the others do not wait for it.
    fn query_moving_guests(&mut self, asked_at: Timestamp) {
        let mut calls = Vec::new();
        for (id, guest) in &self.guests {
            let is_awaited =
                self.connection.as_ref().is_some_and(|it| it.awaits_current_memory(Some(id), None));
            if guest.is_moving() && !is_awaited {
                calls.push((id.clone(), guest.domain.clone()));
            }
        }
        for (id, domain) in calls {
            self.call(Call::MemoryStats(domain), Purpose::CurrentMemory(id, asked_at));
        }
    }

    /// Requests the XML of domains that are new, that changed, or whose XML is old. Looks for
    /// hypervisor processes that are not known yet.
    fn request_facts(&mut self, now: Timestamp) {
        let folder = self.config.socket.parent().unwrap_or(Path::new("/")).to_owned();
        let mut calls = Vec::new();
        let mut rereads = 0;
        for (id, guest) in &mut self.guests {
            if guest.pid.is_none() {
                guest.find_process(&folder, Path::new(PROC));
            }
            let is_old = now.saturating_since(guest.facts_at) > FACTS_PERIOD;
            let is_old = is_old && rereads < REREADS_MAX;
            rereads += usize::from(is_old);
            if guest.wants_facts || is_old {
                calls.push((id.clone(), guest.domain.clone()));
            }
        }
        for (id, domain) in calls {
            let purpose = Purpose::Xml(id);
            if !self.is_pending(&purpose) {
                self.call(Call::Xml(domain), purpose);
            }
        }
    }

    fn readings(&self, now: Timestamp) -> Vec<GuestReading> {
        let link = self.link(now);
        self.guests.iter().map(|(id, guest)| guest.reading(id, link.clone(), now)).collect()
    }

    fn link(&self, now: Timestamp) -> LinkState {
        let is_late = |at: Timestamp| now.saturating_since(at) > self.config.command_timeout;
        match (&self.connection, self.answered_at) {
            (None, _) => LinkState::Down(self.down()),
            (Some(_), Some(at)) if !is_late(at) => LinkState::Up,
            (Some(_), _) => LinkState::Down(LinkDown::TimedOut),
        }
    }
}

impl Backend for LibvirtHost {
    fn name(&self) -> &'static str {
        "libvirt"
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

    fn vsock(&self, guest: &GuestId) -> Option<VsockAddress> {
        self.guests.get(guest)?.facts.as_ref()?.vsock_cid.map(VsockAddress::Cid)
    }

    fn keeps_settings(&self) -> bool {
        true
    }

    fn persist<'a>(
        &'a mut self,
        guest: &'a GuestId,
        settings: &'a GuestChange,
    ) -> Waiting<'a, Result<(), String>> {
        Box::pin(self.write_settings(guest, settings))
    }

    fn wait_for_event(&mut self) -> Waiting<'_, ()> {
        Box::pin(self.wait_for_urgent_event())
    }

    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn refused(&self) -> usize {
        self.refused.len()
    }
}
