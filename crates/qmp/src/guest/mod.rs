//! What is known of one guest and what is being asked of it, as a state machine: no I/O, and time
//! is a parameter.
//!
//! Idea: a [`Guest`] lives as long as its socket is known, over any number of connections. Each new
//! connection is probed once; then [`Guest::begin_sample`] queues the questions of one tick, which
//! leave in one write, and [`Guest::receive`] takes in the answers. What was read keeps its moment,
//! so that the same reading simply grows older while the hypervisor does not answer.
//!
//! Cost: a tick is two commands and two replies: about 160 bytes out and 400 in; of a guest with memory
//! devices it is three. QEMU up to 9 spends
//! more on reading these bytes, one per turn of its main loop, than on answering.
//! Limits: while any command is overdue nothing more is asked, so that a hypervisor that hangs does
//! not wake up to a queue of old wishes; after [`SILENCE_MAX`] the connection is given up.

mod age;
mod devices;
mod orders;
mod plugging;
mod probe;
mod questions;
mod replies;
mod run_state;
mod stats;

use std::time::Duration;

use ballast_model::{
    Bytes, Capabilities, GuestId, GuestSample, GuestStats, LinkDown, LinkState, Measured,
    OutcomeKind, Timestamp,
};

pub use age::StatsAge;
pub use plugging::MODULE;
pub use stats::read_guest_stats;

use crate::codec::Version;
use crate::session::{CommandId, Event, Input, Phase, Session, SessionError};
use orders::Orders;
use plugging::Plugging;
use probe::Found;
use questions::{Asker, Question};
use replies::event_device;
use run_state::RunTracker;

/// How long a command may stay unanswered before its connection is given up. Long enough for the
/// pauses of a migration or of a host deep in swap; reconnecting to a hypervisor that hangs gains
/// nothing, but one lost reply must not blind us for ever.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often the device tree is looked at again. Devices that are unplugged are announced by an
/// event, devices that are added are not.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Identifies an order given to a [`Guest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// The questions of one tick under way.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: u64,
    begun_at: Timestamp,
    /// Answers to come; `None` until the first probe is done and they can be asked.
    left: Option<usize>,
}

/// One guest.
#[derive(Debug)]
pub struct Guest {
    command_timeout: Duration,
    session: Option<Session>,
    down: LinkDown,
    pid: Option<u32>,
    asked: Vec<(CommandId, Question, Asker)>,
    overdue_since: Option<Timestamp>,
    /// The probe under way: answers to come, and what they brought so far.
    probe: Option<(usize, Found)>,
    probed_at: Option<Timestamp>,
    probe_again: bool,
    round: Option<Round>,
    round_took: Option<Duration>,
    rounds: u64,
    next_ticket: u64,
    finished: Vec<(Ticket, OutcomeKind)>,
    orders: Orders,
    run: RunTracker,
    balloon_path: Option<String>,
    allocation: Option<(Bytes, Timestamp)>,
    /// Memory the balloon leaves of what QEMU counts, and memory QEMU does not count, with who asked:
    /// they make an allocation where the same one did.
    left_by_balloon: Option<(Asker, Bytes)>,
    uncounted: Option<(Asker, Bytes)>,
    base_memory: Option<Bytes>,
    plugging: Plugging,
    stats: Option<GuestStats>,
    stats_age: StatsAge,
    capabilities: Capabilities,
}

impl Guest {
    /// A guest of which nothing is known. A command is late after `command_timeout`, the greeting
    /// of a connection likewise.
    pub fn new(command_timeout: Duration) -> Self {
        Guest {
            command_timeout,
            session: None,
            down: LinkDown::Connecting,
            pid: None,
            asked: Vec::new(),
            overdue_since: None,
            probe: None,
            probed_at: None,
            probe_again: false,
            round: None,
            round_took: None,
            rounds: 0,
            next_ticket: 0,
            finished: Vec::new(),
            orders: Orders::default(),
            run: RunTracker::default(),
            balloon_path: None,
            allocation: None,
            left_by_balloon: None,
            uncounted: None,
            base_memory: None,
            plugging: Plugging::default(),
            stats: None,
            stats_age: StatsAge::default(),
            capabilities: Capabilities::default(),
        }
    }

    /// A connection was made to the process `pid`. Another process than before is another guest:
    /// nothing read from the old one is kept.
    pub fn connected(&mut self, now: Timestamp, pid: Option<u32>) {
        if self.pid != pid {
            *self = Guest {
                next_ticket: self.next_ticket,
                rounds: self.rounds,
                round: self.round,
                finished: std::mem::take(&mut self.finished),
                ..Guest::new(self.command_timeout)
            };
        }
        self.pid = pid;
        self.down = LinkDown::Connecting;
        self.run = RunTracker::default();
        self.probed_at = None;
        self.session = Some(Session::new(now, self.command_timeout));
    }

    /// The connection is gone, or could not be made. Orders under way fail; what was read stays,
    /// and ages.
    pub fn disconnected(&mut self, why: LinkDown) {
        let how = format!("before it was answered: {why}");
        for (_, question, asker) in self.asked.drain(..) {
            if let (Asker::Order(ticket), Question::Powerdown) = (asker, question) {
                self.finished.push((ticket, OutcomeKind::Failed(how.clone())));
            }
        }
        self.drop_orders(&how);
        self.down = why;
        self.session = None;
        self.overdue_since = None;
        self.probe = None;
        self.round = None;
        self.round_took = None;
        self.run.disconnected();
    }

    /// Bytes to be written.
    pub fn outgoing(&self) -> &[u8] {
        self.session.as_ref().map_or(&[], Session::outgoing)
    }

    /// Says that the first `count` of the outgoing bytes were written.
    pub fn mark_written(&mut self, count: usize) {
        if let Some(session) = &mut self.session {
            session.mark_written(count);
        }
    }

    /// Takes in bytes read at `now`, when the wall clock says `wall_secs`.
    ///
    /// # Errors
    /// When they are not the protocol: call [`Guest::disconnected`] with the error.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<(), LinkDown> {
        while let Some(session) = &mut self.session {
            let took = session.receive(bytes);
            bytes = &bytes[took..];
            // The session is taken out while its reply is handled, because the reply borrows it.
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

    /// Handles one message; says whether there was one.
    fn handle_next(
        &mut self,
        session: &mut Session,
        now: Timestamp,
        wall_secs: u64,
    ) -> Result<bool, LinkDown> {
        match session.poll(now).map_err(protocol)? {
            None => return Ok(false),
            Some(Input::Reply { id, result }) => {
                let Some(at) = self.asked.iter().position(|(asked, ..)| *asked == id) else {
                    return Ok(true);
                };
                let (_, question, asker) = self.asked.remove(at);
                self.answer(question, asker, result, now, wall_secs)?;
                match asker {
                    Asker::Probe => {
                        if let Some((left, _)) = &mut self.probe {
                            *left = left.saturating_sub(1);
                        }
                    }
                    Asker::Round(number) => self.round_answered(number, now),
                    Asker::Order(_) | Asker::Nobody => {}
                }
            }
            Some(Input::Event) => {
                while let Some(event) = session.pop_event() {
                    self.event(&event);
                }
            }
            Some(Input::Negotiating | Input::Ready | Input::Duplicate) => {}
        }
        if !session.is_overdue() {
            self.overdue_since = None;
        }
        Ok(true)
    }

    fn round_answered(&mut self, of: u64, now: Timestamp) {
        let Some(Round { number, begun_at, left: Some(left) }) = &mut self.round else { return };
        if *number != of {
            return;
        }
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.round_took = Some(now.saturating_since(*begun_at));
            self.round = None;
        }
    }

    /// Whether there may be a balloon.
    fn has_balloon(&self) -> bool {
        self.capabilities.balloon != Some(false)
    }

    /// Memory that nothing but a balloon takes from the guest: that of the boot, and modules that are
    /// not ours.
    fn unplugged_memory(&self) -> Option<Bytes> {
        self.base_memory.map(|base| base.saturating_add(self.plugging.foreign()))
    }

    /// Without a balloon a guest holds all it was booted with and all that is plugged in.
    fn hold_all_without_balloon(&mut self, now: Timestamp) {
        if !self.has_balloon() {
            let all = |unplugged: Bytes| Some(unplugged.saturating_add(self.plugging.plugged()?));
            self.allocation = self.unplugged_memory().and_then(all).map(|all| (all, now));
        }
    }

    /// Joins what the balloon leaves and what QEMU does not count, where both are of one moment.
    fn hold_with_balloon(&mut self, now: Timestamp) {
        let Some((asker, left)) = self.left_by_balloon else { return };
        let uncounted = match self.uncounted {
            Some((by, uncounted)) if by == asker => uncounted,
            // A probe always asks for both, a tick only where there are devices.
            _ if asker == Asker::Probe || self.plugging.has_devices() => return,
            _ => Bytes::ZERO,
        };
        self.allocation = Some((left.saturating_add(uncounted), now));
    }

    /// Something happened by itself.
    fn event(&mut self, event: &Event) {
        self.run.event(&event.name);
        match event.name.as_str() {
            "DEVICE_DELETED" => {
                self.probe_again = true;
                if let Some(device) = event_device(event) {
                    self.plugging.gone(&device);
                }
            }
            // Of a device that nobody knew of yet; that of a known one is read with every tick.
            "MEMORY_DEVICE_SIZE_CHANGE" => self.probe_again |= !self.plugging.has_devices(),
            // Linux says by ACPI that it keeps a module; the others are what QEMU says for it.
            "ACPI_DEVICE_OST" | "MEM_UNPLUG_ERROR" | "DEVICE_UNPLUG_GUEST_ERROR" => {
                if let Some(device) = event_device(event) {
                    self.plugging.kept(&device);
                }
            }
            _ => {}
        }
    }

    /// Asks for what a tick wants to know. Says whether there is anything to wait for: not where
    /// the connection is down or an earlier question is still open.
    pub fn begin_sample(&mut self, now: Timestamp) -> bool {
        if self.round.is_some() || self.overdue_since.is_some() {
            return false;
        }
        if !matches!(self.link(), LinkState::Up | LinkState::Down(LinkDown::Connecting)) {
            return false;
        }
        self.rounds += 1;
        self.round = Some(Round { number: self.rounds, begun_at: now, left: None });
        self.advance(now);
        self.round.is_some()
    }

    /// Whether the questions of a tick are still open.
    pub fn is_sampling(&self) -> bool {
        self.round.is_some()
    }

    /// How long the last complete tick took to answer.
    pub fn round_took(&self) -> Option<Duration> {
        self.round_took
    }

    /// An order that came to its end, and how.
    pub fn pop_finished(&mut self) -> Option<(Ticket, OutcomeKind)> {
        self.finished.pop()
    }

    /// Looks at the deadlines.
    ///
    /// # Errors
    /// When the connection is to be given up: call [`Guest::disconnected`] with the error.
    pub fn handle_timeout(&mut self, now: Timestamp) -> Result<(), LinkDown> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let mut late_orders = Vec::new();
        while let Some(id) = session.expire(now) {
            self.overdue_since.get_or_insert(now);
            self.round = None;
            let late = self.asked.iter_mut().find(|(asked, ..)| *asked == id);
            if let Some((_, _, asker @ Asker::Order(_))) = late {
                // The answer may still come, but nobody waits for it.
                if let Asker::Order(ticket) = std::mem::replace(asker, Asker::Nobody) {
                    late_orders.push(ticket);
                }
            }
        }
        if session.is_greeting_overdue(now) {
            // Stay in the queue: the greeting comes when the other client leaves.
            self.down = LinkDown::Taken;
            self.round = None;
        }
        for ticket in late_orders {
            self.order_late(ticket);
        }
        match self.overdue_since {
            Some(since) if now.saturating_since(since) >= SILENCE_MAX => Err(LinkDown::TimedOut),
            _ => Ok(()),
        }
    }

    /// When to call [`Guest::handle_timeout`] next.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let session = self.session.as_ref()?;
        let greeting_known_late =
            session.phase() == Phase::Greeting && self.down == LinkDown::Taken;
        let deadline = session.next_deadline().filter(|_| !greeting_known_late);
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
            Some(session) if session.phase() == Phase::Greeting && self.down == LinkDown::Taken => {
                LinkState::Down(LinkDown::Taken)
            }
            Some(_) if self.probed_at.is_none() => LinkState::Down(LinkDown::Connecting),
            Some(_) => LinkState::Up,
        }
    }

    /// The hypervisor's version, once it has greeted.
    pub fn version(&self) -> Option<Version> {
        self.session.as_ref()?.version()
    }

    /// The process that listens on the socket, where it is known.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Everything known, with ages as of `now`. Resident memory is not known here.
    pub fn sample(&self, id: GuestId, now: Timestamp) -> GuestSample {
        let since = |at: Timestamp| now.saturating_since(at);
        GuestSample {
            run_state: self.run.state().cloned(),
            allocation: self.allocation.map(|(value, at)| Measured { value, age: since(at) }),
            boot_memory: self.unplugged_memory(),
            hotplug: self.plugging.hotplug(),
            stats: self
                .stats
                .and_then(|value| Some(Measured { value, age: self.stats_age.age(now)? })),
            capabilities: self.capabilities,
            ..GuestSample::unknown(id, self.link())
        }
    }
}

fn protocol(error: SessionError) -> LinkDown {
    LinkDown::Protocol(error.to_string())
}
