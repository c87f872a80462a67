//! One guest's QMP connection: the daemon's side, a machine, and the bytes between them, with
//! faults.
//!
//! Idea: everything that the daemon knows of a guest passes through its own QMP code, from the
//! bytes of a machine that reports the guest's claims. Orders become commands, which the machine
//! may carry out late or not at all. Bytes move as time passes; when the daemon waits for an answer
//! they move at once, except those that are held back, which are late.
//!
//! Cost: some 20 µs a guest and tick. Limits: a socket accepts everything that is written, and
//! connecting always succeeds; waiting for an answer takes no time.

use std::time::Duration;

use ballast_model::{
    Action, Bytes, GuestId, GuestSample, LinkDown, LinkState, OutcomeKind, ProcessId, RunState,
    Timestamp,
};
use ballast_qmp::link::GuestLink;
use ballast_qmp_testing::{Claims, Machine, PeerConfig};

use crate::fault::Fault;
use crate::guest::StormGuest;
use crate::sabotage::Sabotage;
use crate::tamper::Tamper;

/// The daemon's value.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// The greatest number of exchanges until both sides are silent: a first probe takes four, a poll
/// one.
const ROUNDS_MAX: u32 = 16;

/// The current time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Duration,
    /// Seconds of the wall clock.
    pub(crate) wall: u64,
}

impl Moment {
    fn timestamp(self) -> Timestamp {
        Timestamp::ZERO + self.now
    }
}

/// One guest's QMP.
#[derive(Debug)]
pub(crate) struct Wire {
    link: GuestLink,
    machine: Machine,
    /// The process of the machine.
    process: ProcessId,
    /// When the daemon connects next.
    connects_at: Duration,
    /// Whether the machine has greeted this connection.
    is_greeted: bool,
    /// The machine sends no greeting before this time.
    greets_at: Duration,
    /// Bytes on the way to the machine, and from it.
    to_machine: Vec<u8>,
    to_daemon: Vec<u8>,
    /// Until when bytes from the machine are held back, and how many still pass.
    held_until: Duration,
    passing: usize,
    /// Whether the connection ends after those have arrived.
    ends: bool,
    tamper: Tamper,
}

impl Wire {
    pub(crate) fn new(guest: &StormGuest, now: Duration, sabotage: Option<Sabotage>) -> Wire {
        Wire {
            link: link(guest),
            machine: machine(guest, now),
            process: guest.process,
            connects_at: now,
            is_greeted: false,
            greets_at: Duration::ZERO,
            to_machine: Vec::new(),
            to_daemon: Vec::new(),
            held_until: Duration::ZERO,
            passing: 0,
            ends: false,
            tamper: Tamper::new(sabotage == Some(Sabotage::Replies)),
        }
    }

    /// The daemon ended, or lost the guest. What it wrote last may still be read.
    pub(crate) fn begin_anew(&mut self, guest: &StormGuest, now: Duration) {
        self.disconnect("one side is gone", now);
        self.link = link(guest);
        self.connects_at = now;
    }

    /// One fault strikes until `until`.
    pub(crate) fn strike(&mut self, fault: Fault, until: Duration, amount: u64) {
        match fault {
            Fault::HoldBytes => {
                (self.held_until, self.passing) = (until, (amount % 400) as usize);
            }
            Fault::CutLink => self.ends = true,
            Fault::GreetLate => (self.greets_at, self.ends) = (until, true),
            Fault::RefuseCommands => self.machine.refuse(1 + (amount % 5) as u32),
            Fault::DoubleEvents => {
                const EVENTS: [&str; 6] =
                    ["STOP", "RESUME", "RESET", "DEVICE_DELETED", "SUSPEND", "WATCHDOG"];
                let event = EVENTS[(amount % 6) as usize];
                (0..1 + amount % 3).for_each(|_| self.machine.queue_event(event));
            }
            _ => self.tamper.strike(fault, until, amount),
        }
    }

    /// Moves all bytes that can move now. `is_late`: the machine reads nothing in this call.
    pub(crate) fn exchange(&mut self, guest: &mut StormGuest, at: Moment, is_late: bool) {
        if guest.process != self.process {
            self.disconnect("end of stream", at.now);
            self.to_machine.clear();
            self.process = guest.process;
            self.machine = machine(guest, at.now);
            // The new process has a new socket.
            self.connects_at = at.now;
        }
        let hangs = is_late || at.now < guest.stalled_until;
        for _ in 0..ROUNDS_MAX {
            if !self.link.guest.is_connected() && at.now >= self.connects_at {
                self.link.connected(at.timestamp(), u32::try_from(self.process.start_ticks).ok());
                self.is_greeted = false;
            }
            let outgoing = self.link.guest.outgoing();
            let written = outgoing.len();
            self.to_machine.extend_from_slice(outgoing);
            self.link.guest.mark_written(written);
            if !hangs {
                self.run_machine(guest, at);
            }
            if !self.deliver(at) && self.link.guest.outgoing().is_empty() {
                break;
            }
        }
        if let Err(why) = self.link.step(at.timestamp()) {
            self.drop_link(why, at.now);
        }
    }

    fn run_machine(&mut self, guest: &mut StormGuest, at: Moment) {
        self.machine.claim(Self::claims(guest, at));
        if !self.to_machine.is_empty() || self.is_greeted {
            self.tamper.watch(&self.to_machine);
            let answer = self.machine.receive(&self.to_machine, at.now, at.wall);
            self.to_machine.clear();
            if let Some(order) = self.machine.take_order() {
                guest.order(order.get() >> 20);
            }
            // Answers to commands from a closed connection are dropped.
            if self.is_greeted {
                self.to_daemon.extend(self.tamper.tampered(answer.bytes, at.now));
            }
        }
        if self.link.guest.is_connected() && !self.is_greeted && at.now >= self.greets_at {
            let greeting = self.machine.connect().unwrap_or_default();
            self.to_daemon.extend_from_slice(greeting.as_bytes());
            self.is_greeted = true;
        }
    }

    /// What the machine reports about its guest.
    fn claims(guest: &StormGuest, at: Moment) -> Claims {
        let (mut stats, stats_at) = guest.stats();
        // The machine's balloon does not deflate by itself: Linux counts what it holds as gone.
        stats.total = stats.total.map(|total| total.min(Bytes::mib(guest.claimed)));
        Claims {
            actual: Bytes::mib(guest.claims()),
            plugged: Bytes::ZERO,
            stats: (stats, stats_at),
            status: match guest.run_state(at.now) {
                RunState::Running => "running",
                RunState::Panicked => "guest-panicked",
                RunState::Incoming => "inmigrate",
                RunState::Other(_) => "save-vm",
                RunState::Paused | RunState::Shutdown => "paused",
            },
        }
    }

    /// Delivers arrived bytes to the daemon; returns whether there were any.
    fn deliver(&mut self, at: Moment) -> bool {
        let passing = match at.now < self.held_until {
            true => std::mem::take(&mut self.passing).min(self.to_daemon.len()),
            false => self.to_daemon.len(),
        };
        let bytes: Vec<u8> = self.to_daemon.drain(..passing).collect();
        if passing > 0
            && let Err(why) = self.link.guest.receive(&bytes, at.timestamp(), at.wall)
        {
            self.drop_link(why, at.now);
        }
        if self.ends && self.to_daemon.is_empty() {
            self.disconnect("end of stream", at.now);
        }
        passing > 0
    }

    fn disconnect(&mut self, why: &str, now: Duration) {
        self.drop_link(LinkDown::Closed(why.to_owned()), now);
    }

    fn drop_link(&mut self, why: LinkDown, now: Duration) {
        self.ends = false;
        self.is_greeted = false;
        self.to_daemon.clear();
        if self.link.guest.is_connected() {
            self.connects_at = now + self.link.disconnected(why);
        }
    }

    /// The sample that the daemon has after asking the guest.
    pub(crate) fn sample(&mut self, guest: &mut StormGuest, at: Moment) -> GuestSample {
        self.exchange(guest, at, false);
        if self.link.guest.begin_sample(at.timestamp()) {
            self.exchange(guest, at, false);
        }
        let sample = self.link.guest.sample(guest.id.clone(), at.timestamp());
        let heard = sample.allocation.filter(|_| sample.link == LinkState::Up);
        guest.is_unheard = heard.is_none_or(|holds| !holds.age.is_zero());
        guest.heard = heard.map_or(0, |holds| holds.value.get() >> 20);
        sample
    }

    /// Gives the guest an order. `is_late`: the machine reads it later.
    pub(crate) fn act(
        &mut self,
        action: &Action,
        guest: &mut StormGuest,
        at: Moment,
        is_late: bool,
    ) -> OutcomeKind {
        let ticket = match self.link.begin_action(action, at.timestamp()) {
            Ok(ticket) => ticket,
            Err(why) => return why,
        };
        self.exchange(guest, at, is_late);
        let mut outcome = None;
        while let Some((finished, kind)) = self.link.guest.pop_finished() {
            if finished == ticket {
                outcome = Some(kind);
            }
        }
        let late = || OutcomeKind::Failed("no outcome in time".to_owned());
        outcome.unwrap_or_else(late)
    }
}

fn link(guest: &StormGuest) -> GuestLink {
    GuestLink::new(COMMAND_TIMEOUT, seed_of(&guest.id))
}

fn machine(guest: &StormGuest, now: Duration) -> Machine {
    let boot_memory = Bytes::mib(guest.boot);
    Machine::new(PeerConfig { boot_memory, ..PeerConfig::default() }, now)
}

/// Guests differ in how long they wait before they connect again.
fn seed_of(id: &GuestId) -> u64 {
    id.as_str().bytes().map(u64::from).sum()
}
