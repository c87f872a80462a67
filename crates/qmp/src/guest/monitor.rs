//! The state of one guest's monitor, and its connection.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_backend::StatsAge;
use ballast_model::{
    Bytes, Capabilities, GuestId, GuestSample, GuestStats, HotplugKind, LinkDown, LinkState,
    Measured, OutcomeKind, Pinned, RunState, Timestamp,
};

use super::block_stats::BlockStats;
use super::events::event_device;
use super::hotplug::HotplugState;
use super::probe::ProbeResult;
use super::requests::{PendingAction, Poll, Purpose, Requester, SentCommand, Ticket};
use super::run_state::RunTracker;
use crate::codec::QemuVersion;
use crate::session::{QmpEvent, QmpSession, SessionError, SessionInput, SessionPhase};

/// How long a command may stay unanswered before its connection is dropped. Long enough for the
/// pauses of a migration or of a host deep in swap; reconnecting to a hypervisor that hangs gains
/// nothing, but a single lost reply must not cut the guest off for ever.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often the device tree is probed again. An event announces each device that is removed, but
/// not those that are added.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// The monitor of one guest.
#[derive(Debug)]
pub struct GuestMonitor {
    pub(super) command_timeout: Duration,
    pub(super) session: Option<QmpSession>,
    down: LinkDown,
    pid: Option<u32>,
    /// Whether that process has sent a greeting, on this connection or an earlier one.
    was_greeted: bool,
    pub(super) sent: Vec<SentCommand>,
    overdue_since: Option<Timestamp>,
    /// The running probe: replies to come, and the result so far.
    pub(super) probe: Option<(usize, ProbeResult)>,
    pub(super) probed_at: Option<Timestamp>,
    pub(super) probe_again: bool,
    pub(super) poll: Option<Poll>,
    poll_took: Option<Duration>,
    polls: u64,
    pub(super) next_ticket: u64,
    pub(super) finished: Vec<(Ticket, OutcomeKind)>,
    /// In the order in which they were given.
    pub(super) actions: VecDeque<PendingAction>,
    pub(super) run: RunTracker,
    pub(super) balloon_path: Option<String>,
    pub(super) vsock_cid: Option<u32>,
    pub(super) pinned: Option<Pinned>,
    pub(super) allocation: Option<(Bytes, Timestamp)>,
    /// The reply to `query-balloon` and the memory it does not count, each with its requester: they
    /// add up to an allocation if they have the same one.
    pub(super) balloon_actual: Option<(Requester, Bytes)>,
    pub(super) virtio_mem_plugged: Option<(Requester, Bytes)>,
    pub(super) base_memory: Option<Bytes>,
    pub(super) hotplug: HotplugState,
    pub(super) stats: Option<GuestStats>,
    pub(super) stats_age: StatsAge,
    pub(super) block_stats: BlockStats,
    pub(super) capabilities: Capabilities,
}

impl GuestMonitor {
    /// A monitor without a connection. Commands, and the greeting of a connection, are late after
    /// `command_timeout`.
    pub fn new(command_timeout: Duration) -> Self {
        GuestMonitor {
            command_timeout,
            session: None,
            down: LinkDown::Connecting,
            pid: None,
            was_greeted: false,
            sent: Vec::new(),
            overdue_since: None,
            probe: None,
            probed_at: None,
            probe_again: false,
            poll: None,
            poll_took: None,
            polls: 0,
            next_ticket: 0,
            finished: Vec::new(),
            actions: VecDeque::new(),
            run: RunTracker::default(),
            balloon_path: None,
            vsock_cid: None,
            pinned: None,
            allocation: None,
            balloon_actual: None,
            virtio_mem_plugged: None,
            base_memory: None,
            hotplug: HotplugState::default(),
            stats: None,
            stats_age: StatsAge::default(),
            block_stats: BlockStats::default(),
            capabilities: Capabilities::default(),
        }
    }

    /// Starts a connection to process `pid`. A process other than before is another guest: all
    /// readings of the old one are dropped.
    pub fn connected(&mut self, now: Timestamp, pid: Option<u32>) {
        if self.pid != pid {
            *self = GuestMonitor {
                next_ticket: self.next_ticket,
                polls: self.polls,
                poll: self.poll,
                finished: std::mem::take(&mut self.finished),
                ..GuestMonitor::new(self.command_timeout)
            };
        }
        self.pid = pid;
        self.down = LinkDown::Connecting;
        self.run = RunTracker::default();
        self.probed_at = None;
        self.block_stats.connected(now, pid);
        self.session = Some(QmpSession::new(now, self.command_timeout));
    }

    /// Ends the connection, or records that none could be made. Pending orders fail; readings are
    /// kept, and age.
    pub fn disconnected(&mut self, why: LinkDown) {
        let how = format!("before the reply: {why}");
        for (place, command) in self.sent.drain(..).enumerate() {
            match (command.requester, command.purpose) {
                (Requester::Caller(ticket), Purpose::Powerdown) => {
                    self.finished.push((ticket, OutcomeKind::Failed(how.clone())));
                }
                // QEMU replies in order: one that owes an earlier reply hangs for another reason.
                (_, Purpose::BlockStats)
                    if matches!(why, LinkDown::Protocol(_))
                        || (why == LinkDown::TimedOut && place == 0) =>
                {
                    self.block_stats.broke();
                }
                _ => {}
            }
        }
        self.fail_actions(&how);
        self.down = why;
        self.session = None;
        self.overdue_since = None;
        self.probe = None;
        self.poll = None;
        self.poll_took = None;
        self.run.disconnected();
    }

    /// Bytes to write.
    pub fn outgoing(&self) -> &[u8] {
        self.session.as_ref().map_or(&[], QmpSession::outgoing)
    }

    /// Removes the first `count` outgoing bytes, which were written.
    pub fn mark_written(&mut self, count: usize) {
        if let Some(session) = &mut self.session {
            session.mark_written(count);
        }
    }

    /// Takes in bytes read at `now`, when the wall clock says `wall_secs`.
    ///
    /// # Errors
    /// The bytes violate the protocol: call [`GuestMonitor::disconnected`] with the error.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<(), LinkDown> {
        while let Some(session) = &mut self.session {
            let taken = session.receive(bytes);
            bytes = &bytes[taken..];
            // The session is moved out while its reply is handled, because the reply borrows it.
            while let Some(mut session) = self.session.take() {
                let more = self.handle_next(&mut session, now, wall_secs);
                self.session = Some(session);
                if !more? {
                    break;
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        self.advance(now);
        Ok(())
    }

    /// Handles one message; returns whether there was one.
    fn handle_next(
        &mut self,
        session: &mut QmpSession,
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<bool, LinkDown> {
        match session.poll(now).map_err(protocol)? {
            None => return Ok(false),
            Some(SessionInput::Reply { id, result }) => {
                let Some(at) = self.sent.iter().position(|command| command.id == id) else {
                    return Ok(true);
                };
                let command = self.sent.remove(at);
                let requester = command.requester;
                self.handle_reply(command, result, now, wall_secs)?;
                match requester {
                    Requester::Probe => {
                        if let Some((pending, _)) = &mut self.probe {
                            *pending = pending.saturating_sub(1);
                        }
                    }
                    Requester::Poll(number) => self.poll_answered(number, now),
                    Requester::Caller(_) | Requester::Nobody => {}
                }
            }
            Some(SessionInput::Event) => {
                while let Some(event) = session.pop_event() {
                    self.handle_event(&event);
                }
            }
            Some(SessionInput::Negotiating | SessionInput::Ready | SessionInput::Duplicate) => {}
        }
        self.was_greeted |= session.version().is_some();
        if !session.is_overdue() {
            self.overdue_since = None;
        }
        Ok(true)
    }

    fn poll_answered(&mut self, answered: u64, now: Timestamp) {
        let Some(Poll { number, begun_at, pending: Some(pending) }) = &mut self.poll else {
            return;
        };
        if *number != answered {
            return;
        }
        *pending = pending.saturating_sub(1);
        if *pending == 0 {
            self.poll_took = Some(now.saturating_since(*begun_at));
            self.poll = None;
        }
    }

    fn handle_event(&mut self, event: &QmpEvent) {
        self.run.event(&event.name);
        match event.name.as_str() {
            "DEVICE_DELETED" => {
                self.probe_again = true;
                if let Some(device) = event_device(event) {
                    self.hotplug.device_removed(&device);
                }
            }
            // Each tick reads the sizes of known devices; without one, this device is new.
            "MEMORY_DEVICE_SIZE_CHANGE" => self.probe_again |= !self.hotplug.has_devices(),
            // Linux reports through ACPI that it keeps a module; QEMU sends the other two itself.
            "ACPI_DEVICE_OST" | "MEM_UNPLUG_ERROR" | "DEVICE_UNPLUG_GUEST_ERROR" => {
                if let Some(device) = event_device(event) {
                    self.hotplug.device_kept(&device);
                }
            }
            _ => {}
        }
    }

    /// Whether the guest has a balloon, or may have one.
    pub(super) fn may_have_balloon(&self) -> bool {
        self.capabilities.balloon != Some(false)
    }

    /// Memory that only a balloon can take from the guest: boot memory and modules of others.
    pub(super) fn fixed_memory(&self) -> Option<Bytes> {
        self.base_memory.map(|base| base.saturating_add(self.hotplug.foreign()))
    }

    /// Updates the allocation of a guest without a balloon: its boot memory and all plugged memory.
    pub(super) fn update_allocation_without_balloon(&mut self, now: Timestamp) {
        if !self.may_have_balloon() {
            let fixed_and_plugged = self.fixed_memory().zip(self.hotplug.plugged());
            self.allocation =
                fixed_and_plugged.map(|(fixed, plugged)| (fixed.saturating_add(plugged), now));
        }
    }

    /// Updates the allocation of a guest with a balloon once both of its parts are read by the same
    /// requester.
    pub(super) fn update_allocation_with_balloon(&mut self, now: Timestamp) {
        let Some((requester, actual)) = self.balloon_actual else { return };
        let plugged = match self.virtio_mem_plugged {
            Some((by, plugged)) if by == requester => plugged,
            // A probe always queries both parts, a poll only if there are devices.
            _ if requester == Requester::Probe || self.hotplug.has_devices() => return,
            _ => Bytes::ZERO,
        };
        self.allocation = Some((actual.saturating_add(plugged), now));
    }

    /// Begins to query what a tick needs. Returns whether there is anything to wait for: not if the
    /// connection is down or an earlier query is still open.
    pub fn begin_sample(&mut self, now: Timestamp) -> bool {
        if self.poll.is_some() || self.overdue_since.is_some() {
            return false;
        }
        if !matches!(self.link(), LinkState::Up | LinkState::Down(LinkDown::Connecting)) {
            return false;
        }
        self.polls += 1;
        self.poll = Some(Poll { number: self.polls, begun_at: now, pending: None });
        self.advance(now);
        self.poll.is_some()
    }

    /// Whether queries of a tick are still open.
    pub fn is_sampling(&self) -> bool {
        self.poll.is_some()
    }

    /// How long the last complete poll took.
    pub fn poll_took(&self) -> Option<Duration> {
        self.poll_took
    }

    /// Takes an order that is finished, with its outcome.
    pub fn pop_finished(&mut self) -> Option<(Ticket, OutcomeKind)> {
        self.finished.pop()
    }

    /// Checks the deadlines.
    ///
    /// # Errors
    /// The hypervisor was silent for too long: call [`GuestMonitor::disconnected`] with the error.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Result<(), LinkDown> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let mut late = Vec::new();
        while let Some(id) = session.expire(now) {
            self.overdue_since.get_or_insert(now);
            self.poll = None;
            if let Some(command) = self.sent.iter_mut().find(|command| command.id == id)
                && let Requester::Caller(ticket) = command.requester
            {
                // The reply may still come, but the caller no longer waits for it.
                command.requester = Requester::Nobody;
                late.push(ticket);
            }
        }
        if session.is_greeting_overdue(now) {
            // The connection stays queued: the greeting comes when the other client leaves.
            self.down = LinkDown::Taken;
            self.poll = None;
        }
        for ticket in late {
            self.order_late(ticket);
        }
        match self.overdue_since {
            Some(since) if now.saturating_since(since) >= SILENCE_MAX => Err(LinkDown::TimedOut),
            _ => Ok(()),
        }
    }

    /// When to call [`GuestMonitor::handle_timeout`] next.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let session = self.session.as_ref()?;
        let is_known_late =
            session.phase() == SessionPhase::Greeting && self.down == LinkDown::Taken;
        let deadline = if is_known_late { None } else { session.next_deadline() };
        let silence = self.overdue_since.map(|since| since + SILENCE_MAX);
        deadline.into_iter().chain(silence).min()
    }

    /// Whether there is a connection, usable or not.
    pub fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the hypervisor answers.
    pub fn link(&self) -> LinkState {
        match &self.session {
            None => LinkState::Down(self.down.clone()),
            Some(_) if self.overdue_since.is_some() => LinkState::Down(LinkDown::TimedOut),
            Some(session)
                if session.phase() == SessionPhase::Greeting && self.down == LinkDown::Taken =>
            {
                LinkState::Down(LinkDown::Taken)
            }
            Some(_) if self.probed_at.is_none() => LinkState::Down(LinkDown::Connecting),
            Some(_) => LinkState::Up,
        }
    }

    /// The hypervisor's version, once its greeting has come.
    pub fn version(&self) -> Option<QemuVersion> {
        self.session.as_ref()?.version()
    }

    /// The process that listens on the socket, if known.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Whether that process has sent QMP's greeting. One that has not may be anything that listens.
    pub fn was_greeted(&self) -> bool {
        self.was_greeted
    }

    /// The CID of the guest's vsock device, if it has one.
    pub fn vsock_cid(&self) -> Option<u32> {
        self.vsock_cid
    }

    /// All readings, with their ages at `now`, except resident memory. The allocation is clamped,
    /// whatever the hypervisor reports: whole pages, at most the guest's boot and plugged memory,
    /// and at least its plugged virtio-mem memory, which the balloon's figure does not include. A
    /// guest whose incoming migration is not complete has no allocation: its memory is still at the
    /// source.
    pub fn sample(&self, id: GuestId, now: Timestamp) -> GuestSample {
        let age = |at: Timestamp| now.saturating_since(at);
        let mut sample = GuestSample {
            run_state: self.run.state().cloned(),
            boot_memory: self.fixed_memory(),
            hotplug: self.hotplug.summary(),
            stats: self
                .stats
                .and_then(|value| Some(Measured { value, age: self.stats_age.age(now)? })),
            disk_reads: self.block_stats.reads(now),
            pinned: self.pinned,
            capabilities: self.capabilities,
            ..GuestSample::unknown(id, self.link())
        };
        let most = sample.present_memory().unwrap_or(Bytes::MAX);
        let virtio_mem = sample.hotplug.filter(|it| it.kind == HotplugKind::VirtioMem);
        let least = virtio_mem.map_or(Bytes::ZERO, |it| it.plugged);
        let is_there = sample.run_state != Some(RunState::Incoming);
        sample.allocation = self.allocation.filter(|_| is_there).map(|(value, at)| {
            let value = value.max(least).min(most).page_floor();
            Measured { value, age: age(at) }
        });
        sample
    }
}

fn protocol(error: SessionError) -> LinkDown {
    LinkDown::Protocol(error.to_string())
}
