//! The daemon's side of one agent, without its socket: no I/O, and time is a parameter.
//!
//! Idea: bytes of the agent go in, bytes for it come out, and what it reports is kept for the next
//! tick. The daemon's task drives it over a socket, a simulation over bytes in memory.
//! Limits: a connection on which no agent answers ends after [`UNHEARD_MAX`]; one frame waits to be
//! written, and the session bounds the rest.

use std::sync::Arc;
use std::time::Duration;

use ballast_agent_proto::host::{AgentLink, AgentSession, HostFacts, SessionSettings};
use ballast_model::{GuestSample, Timestamp};
use tokio::sync::Notify;

use super::latest::Shared;
use super::order::{Answer, Order};

/// A connection without an answer for this long is closed.
const UNHEARD_MAX: Duration = Duration::from_secs(60);
/// Longest wait while the session has no timeout.
const IDLE: Duration = Duration::from_secs(1);

/// The daemon's side of one agent.
#[derive(Debug)]
pub struct Conversation {
    session: AgentSession,
    pub(super) shared: Arc<Shared>,
    urgent: Arc<Notify>,
    unsent: Vec<u8>,
    /// Whether the agent ever answered on this connection.
    was_up: bool,
    /// When the session was last up, or else when the connection was made.
    heard_at: Timestamp,
}

impl Conversation {
    /// A conversation with an agent that is asked for statistics every `period`, and may raise an
    /// emergency once in every `emergency_period`.
    pub fn new(period: Duration, emergency_period: Duration, now: Timestamp) -> Conversation {
        Conversation::shared(period, emergency_period, Arc::default(), Arc::default(), now)
    }

    /// Like [`Conversation::new`], with state and wake-ups that the agents' service shares.
    pub(super) fn shared(
        period: Duration,
        emergency_period: Duration,
        shared: Arc<Shared>,
        urgent: Arc<Notify>,
        now: Timestamp,
    ) -> Conversation {
        let settings = SessionSettings {
            statistics_period: period,
            emergency_period,
            host_facts: HostFacts::default(),
        };
        let session = AgentSession::new(settings, now);
        Conversation { session, shared, urgent, unsent: Vec::new(), was_up: false, heard_at: now }
    }

    /// The transport is up; `number` must be another for each connection.
    pub fn connected(&mut self, number: u64, now: Timestamp) {
        self.unsent.clear();
        (self.was_up, self.heard_at) = (false, now);
        self.session.connected(number, now);
    }

    /// The transport is down. Returns whether the agent ever answered on it.
    pub fn disconnected(&mut self) -> bool {
        self.session.disconnected();
        self.was_up
    }

    /// Does what is due. `false`: no agent has answered for too long; close it.
    #[must_use]
    pub fn step(&mut self, now: Timestamp) -> bool {
        self.session.handle_timeout(now);
        while let Some(event) = self.session.poll_event() {
            self.shared.handle(event, now, &self.urgent);
        }
        if self.session.link() == AgentLink::Up {
            (self.was_up, self.heard_at) = (true, now);
        } else if now.saturating_since(self.heard_at) >= UNHEARD_MAX {
            return false;
        }
        // If the guest does not read, one frame waits here; the session bounds the rest.
        if self.unsent.is_empty() {
            self.unsent = self.session.poll_transmit().unwrap_or_default();
        }
        true
    }

    /// Takes in bytes, which must not be read before [`Conversation::unreadable_for`] is over.
    pub fn receive(&mut self, bytes: &[u8], now: Timestamp) {
        self.session.set_host_facts(self.shared.host_facts());
        self.session.handle_bytes(bytes, now);
    }

    /// For how long nothing must be read: the bytes of an agent that floods wait in the kernel's
    /// buffer, and cost nothing meanwhile.
    pub fn unreadable_for(&self, now: Timestamp) -> Duration {
        self.session.readable_at().saturating_since(now)
    }

    /// Time until [`Conversation::step`] is due again.
    pub fn wakes_in(&self, now: Timestamp) -> Duration {
        let wake = self.session.poll_timeout().map_or(IDLE, |at| at.saturating_since(now));
        match self.unreadable_for(now) {
            Duration::ZERO => wake,
            unreadable => wake.min(unreadable),
        }
    }

    /// Bytes to write.
    pub fn outgoing(&self) -> &[u8] {
        &self.unsent
    }

    /// Removes the first `count` bytes, which were written.
    pub fn mark_written(&mut self, count: usize) {
        self.unsent.drain(..count.min(self.unsent.len()));
    }

    pub(super) fn carry_out(&mut self, order: Order, now: Timestamp) {
        order.carry_out(&mut self.session, &self.shared, now);
    }

    /// Adds the agent's last report to a hypervisor's sample, which limits what the agent may
    /// claim.
    pub fn add_to(&self, sample: &mut GuestSample, now: Timestamp) {
        self.shared.set_memory_max(sample.memory_max());
        self.shared.take(now).add_to(sample);
    }

    /// Whether the agent has called for a tick since this was last asked.
    pub fn has_called(&self) -> bool {
        self.shared.has_called()
    }

    /// Answers the agent's request of this number, if it is the latest.
    pub fn answer(&mut self, number: u64, answer: Answer, now: Timestamp) {
        self.carry_out(Order::Answer(number, answer), now);
    }
}
