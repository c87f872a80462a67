//! One guest of a fleet without its socket: no I/O, and time is a parameter.
//!
//! Idea: holds the guest's monitor, rejects outdated orders, and computes the wait before the next
//! connection attempt. The fleet drives it over a socket, a simulation over bytes in memory.

use std::time::Duration;

use ballast_backend::GenerationGate;
use ballast_model::{Action, LinkDown, LinkState, OutcomeKind, Timestamp};

use crate::backoff::Backoff;
use crate::guest::{GuestMonitor, Ticket};

/// Connections refused in a row after which a socket counts as deserted: about two seconds, with
/// the first waits of [`Backoff`].
const REFUSALS_MAX: u32 = 5;

/// One guest, connected or not.
#[derive(Debug)]
pub struct GuestLink {
    /// The guest's monitor, with its readings.
    pub guest: GuestMonitor,
    gate: GenerationGate,
    backoff: Backoff,
    /// Whether the hypervisor answered on this connection.
    was_up: bool,
    /// Connections refused in a row.
    refusals: u32,
}

impl GuestLink {
    /// A guest without a connection; see [`GuestMonitor::new`] and [`Backoff::new`].
    pub fn new(command_timeout: Duration, seed: u64) -> GuestLink {
        GuestLink {
            guest: GuestMonitor::new(command_timeout),
            gate: GenerationGate::default(),
            backoff: Backoff::new(seed),
            was_up: false,
            refusals: 0,
        }
    }

    /// A connection to process `pid` was made.
    pub fn connected(&mut self, now: Timestamp, pid: Option<u32>) {
        self.refusals = 0;
        self.was_up = false;
        self.guest.connected(now, pid);
    }

    /// Checks the deadlines, and notes whether the hypervisor answers. Call it after receiving
    /// bytes and at each deadline.
    ///
    /// # Errors
    /// The hypervisor was silent for too long: call [`GuestLink::disconnected`] with the error.
    pub fn step(&mut self, now: Timestamp) -> Result<(), LinkDown> {
        self.was_up |= self.guest.link() == LinkState::Up;
        self.guest.handle_timeout(now)
    }

    /// Records that a connection ended or could not be made. Returns the wait before the next
    /// attempt.
    pub fn disconnected(&mut self, why: LinkDown) -> Duration {
        self.refusals = match why {
            LinkDown::Refused => self.refusals.saturating_add(1),
            _ => 0,
        };
        if std::mem::take(&mut self.was_up) {
            self.backoff.reset();
        }
        self.guest.disconnected(why);
        self.backoff.next_wait()
    }

    /// Whether the guest has left its socket behind. The kernel refuses a connection only if no
    /// process listens on the socket.
    pub fn is_deserted(&self) -> bool {
        self.refusals >= REFUSALS_MAX
    }

    /// Begins to carry out `action`, unless it is outdated; see [`GuestMonitor::begin_action`].
    ///
    /// # Errors
    /// The action is not sent.
    pub fn begin_action(&mut self, action: &Action, now: Timestamp) -> Result<Ticket, OutcomeKind> {
        self.gate.check(action, now)?;
        let ticket = self.guest.begin_action(action, now)?;
        self.gate.sent(action);
        Ok(ticket)
    }
}
