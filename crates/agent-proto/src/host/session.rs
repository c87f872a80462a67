//! The conversation with one guest's agent, from greeting to silence.
//!
//! Sans-IO: the caller says when the transport is up or down, passes in bytes, and calls
//! [`AgentSession::handle_timeout`] at the time that [`AgentSession::poll_timeout`] returns; it
//! takes frames to send from [`AgentSession::poll_transmit`] and events from
//! [`AgentSession::poll_event`].
//!
//! States: down; greeting (hello is repeated, because bytes are lost until the guest opens its
//! port); up; silent (nothing came for [`SILENCE_MAX`]; greets again, because the agent may have
//! restarted); unsupported version. Everything before the answer to this connection's hello is
//! ignored.
//!
//! A guest restored from a snapshot counts as a restarted agent. An agent that just started sends a
//! hello with session 0 and is greeted at once.
//!
//! Limits: [`EVENTS_MAX`] events, [`TRANSMITS_MAX`] frames, [`BYTES_PER_SECOND_MAX`] of input. An
//! agent that sends more is reported, and the caller should not read before
//! [`AgentSession::readable_at`]. The limits apply to the guest: a restarted agent may not send
//! more bytes or emergencies.

use std::collections::VecDeque;
use std::time::Duration;

use crate::wire::message::{common_version, decode, encode, truncated};
use crate::wire::statistics::NUMBER_MAX;
use crate::wire::{
    BalloonActivity, FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage,
    RequestOutcome, RequestReason, VERSION, VERSION_OLDEST, WireRequestKind,
};
use ballast_model::{Bytes, MemoryRequest, RequestKind, Timestamp};

use super::event::{AgentEvent, AgentIdentity, AgentLink};
use super::validator::{HostFacts, ImplausibleMessage, MessageValidator};

/// Most events in the queue.
pub const EVENTS_MAX: usize = 64;
/// Most frames in the send queue.
pub const TRANSMITS_MAX: usize = 32;
/// Most bytes read from an agent in a second: twenty times what it normally sends.
pub const BYTES_PER_SECOND_MAX: u64 = 64 << 10;
/// The time in which at most [`BYTES_PER_SECOND_MAX`] are read.
const SECOND: Duration = Duration::from_secs(1);
/// Time between hellos until one is answered.
pub const HELLO_PERIOD: Duration = Duration::from_millis(500);
/// Time without other messages after which the host sends a heartbeat.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// Time without messages after which an agent counts as silent.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    /// Time between two statistics.
    pub statistics_period: Duration,
    /// Least time between two emergencies: the policy's period.
    pub emergency_period: Duration,
    /// What the host knows about the guest.
    pub host_facts: HostFacts,
}

/// The conversation with one guest's agent.
#[derive(Debug)]
pub struct AgentSession {
    settings: SessionSettings,
    link: AgentLink,
    /// The number of this connection's hello.
    number: u64,
    reader: FrameReader,
    validator: MessageValidator,
    instance: Option<u64>,
    seq: u64,
    events: VecDeque<AgentEvent>,
    transmits: VecDeque<Vec<u8>>,
    received_at: Timestamp,
    sent_at: Timestamp,
    input_rate: InputRate,
    request: Option<MemoryRequest>,
    emergency_at: Option<Timestamp>,
    order: u64,
}

/// Input received in the current second.
#[derive(Debug)]
struct InputRate {
    since: Timestamp,
    bytes: u64,
}

impl AgentSession {
    /// A session without a transport.
    pub fn new(settings: SessionSettings, now: Timestamp) -> AgentSession {
        AgentSession {
            settings,
            link: AgentLink::Down,
            number: 0,
            reader: FrameReader::new(),
            validator: MessageValidator::new(),
            instance: None,
            seq: 0,
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            received_at: now,
            sent_at: now,
            input_rate: InputRate { since: now, bytes: 0 },
            request: None,
            emergency_at: None,
            order: 0,
        }
    }

    /// State of the conversation.
    pub const fn link(&self) -> AgentLink {
        self.link
    }

    /// The last accepted request, answered or not.
    pub const fn request(&self) -> Option<MemoryRequest> {
        self.request
    }

    /// Replaces what the host knows about the guest.
    pub const fn set_host_facts(&mut self, facts: HostFacts) {
        self.settings.host_facts = facts;
    }

    /// The transport is up. `number`, new for each connection, identifies answers to its hello.
    pub fn connected(&mut self, number: u64, now: Timestamp) {
        // 0 is reserved for an agent that has not been greeted.
        self.number = (number & NUMBER_MAX).max(1);
        self.reader = FrameReader::new();
        self.transmits.clear();
        self.seq = 0;
        self.link = AgentLink::Greeting;
        self.received_at = now;
        self.send_hello(now);
    }

    /// The transport is down.
    pub fn disconnected(&mut self) {
        self.link = AgentLink::Down;
        self.transmits.clear();
    }

    /// When bytes may be read next: after the current second, if the agent has used up its bytes.
    pub fn readable_at(&self) -> Timestamp {
        let InputRate { since, bytes } = self.input_rate;
        if bytes < BYTES_PER_SECOND_MAX { since } else { since + SECOND }
    }

    /// Handles received bytes. Bytes that come before [`AgentSession::readable_at`] are dropped.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Timestamp) {
        if self.link == AgentLink::Down || !self.is_within_rate(bytes.len(), now) {
            return;
        }
        self.reader.push(bytes);
        while let Some(frame) = self.reader.next_frame() {
            let decoded = frame
                .map_err(|error| error.to_string())
                .and_then(|payload| decode(&payload).map_err(|error| error.to_string()));
            match decoded {
                Ok(frame) => self.handle_frame(frame, now),
                // Frames that were left from an earlier conversation are not an error.
                Err(_) if self.link == AgentLink::Greeting => {}
                Err(why) => self.emit(AgentEvent::Unreadable(why)),
            }
        }
    }

    /// Sends hellos and heartbeats that are due, and detects silence.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.link == AgentLink::Up && now.saturating_since(self.received_at) >= SILENCE_MAX {
            self.link = AgentLink::Silent;
            self.emit(AgentEvent::Silent);
            self.send_hello(now);
            return;
        }
        let quiet = now.saturating_since(self.sent_at);
        match self.link {
            AgentLink::Greeting | AgentLink::Silent if quiet >= HELLO_PERIOD => {
                self.send_hello(now)
            }
            AgentLink::Up if quiet >= HEARTBEAT_PERIOD => self.send(HostMessage::Heartbeat {}, now),
            _ => {}
        }
    }

    /// The latest time for the next call of [`AgentSession::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self.link {
            AgentLink::Down | AgentLink::UnsupportedVersion => None,
            AgentLink::Greeting | AgentLink::Silent => Some(self.sent_at + HELLO_PERIOD),
            AgentLink::Up => {
                Some((self.sent_at + HEARTBEAT_PERIOD).min(self.received_at + SILENCE_MAX))
            }
        }
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<AgentEvent> {
        self.events.pop_front()
    }

    /// Answers the last request.
    pub fn answer(
        &mut self,
        outcome: RequestOutcome,
        bytes: Bytes,
        why: Option<String>,
        now: Timestamp,
    ) {
        let Some(request) = self.request else { return };
        let why = why.map(|why| truncated(&why));
        let bytes = bytes.get();
        self.send(HostMessage::Answer { request: request.number, outcome, bytes, why }, now);
    }

    /// Orders programs to give back `bytes`; returns the order's number.
    pub fn shrink(&mut self, bytes: Bytes, within: Duration, now: Timestamp) -> u64 {
        self.order += 1;
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.send(HostMessage::Shrink { number: self.order, bytes: bytes.get(), within_ms }, now);
        self.order
    }

    /// Lets shrunk programs grow again.
    pub fn release(&mut self, now: Timestamp) {
        self.send(HostMessage::Release {}, now);
    }

    /// Reports what the balloon does.
    pub fn balloon(&mut self, state: BalloonActivity, now: Timestamp) {
        self.send(HostMessage::Balloon { state }, now);
    }

    /// Counts input; false if the bytes came before they may be read.
    fn is_within_rate(&mut self, bytes: usize, now: Timestamp) -> bool {
        if now.saturating_since(self.input_rate.since) >= SECOND {
            self.input_rate = InputRate { since: now, bytes: 0 };
        }
        if self.input_rate.bytes >= BYTES_PER_SECOND_MAX {
            return false;
        }
        self.input_rate.bytes = self.input_rate.bytes.saturating_add(bytes as u64);
        if self.input_rate.bytes >= BYTES_PER_SECOND_MAX {
            let bytes_per_second_max = BYTES_PER_SECOND_MAX;
            self.emit(AgentEvent::Implausible(ImplausibleMessage::Flood { bytes_per_second_max }));
        }
        true
    }

    fn handle_frame(&mut self, frame: GuestFrame, now: Timestamp) {
        if let GuestMessage::Hello(hello) = frame.message {
            match hello.session {
                number if number == self.number => {
                    self.handle_hello(hello, frame.seq, frame.uptime_ms, now);
                }
                // The agent has just started, or lost its connection.
                0 if self.link != AgentLink::Up || self.instance != Some(hello.instance) => {
                    self.link = AgentLink::Greeting;
                    self.send_hello(now);
                }
                _ => {}
            }
            return;
        }
        // Before the answer to this connection's hello, messages belong to an earlier conversation.
        if !matches!(self.link, AgentLink::Up | AgentLink::Silent) {
            return;
        }
        match self.validator.message(frame.seq, frame.uptime_ms, now) {
            Ok(0) => {}
            Ok(lost) => self.emit(AgentEvent::MessagesLost(lost)),
            Err(why) => return self.emit(AgentEvent::Implausible(why)),
        }
        self.received_at = now;
        self.link = AgentLink::Up;
        match frame.message {
            GuestMessage::Statistics(statistics) => {
                match self.validator.statistics(&statistics, self.settings.host_facts) {
                    Ok(()) => {
                        self.emit(AgentEvent::Statistics {
                            uptime_ms: frame.uptime_ms,
                            statistics,
                        });
                    }
                    Err(why) => self.emit(AgentEvent::Implausible(why)),
                }
            }
            GuestMessage::Ages(ages) => self.emit(AgentEvent::Ages(ages)),
            GuestMessage::Request { number, kind, bytes, why } => {
                self.handle_request(number, kind, bytes, why, now);
            }
            GuestMessage::Shrinking { number, offers } => {
                self.emit(AgentEvent::Shrinking { number, offers });
            }
            GuestMessage::Shrunk { number, gave_bytes, given } => {
                let gave = self.capped(gave_bytes);
                self.emit(AgentEvent::Shrunk { number, gave, given });
            }
            GuestMessage::Error { text } => self.emit(AgentEvent::Error(text)),
            GuestMessage::Hello(_) | GuestMessage::Heartbeat {} | GuestMessage::Unknown => {}
        }
    }

    fn handle_hello(&mut self, hello: GuestGreeting, seq: u64, uptime_ms: u64, now: Timestamp) {
        let GuestGreeting { version, oldest, instance, .. } = hello;
        let Some(common) = common_version(version, oldest) else {
            self.link = AgentLink::UnsupportedVersion;
            return self.emit(AgentEvent::UnsupportedVersion { version, oldest });
        };
        // An answer to a repeated hello brings nothing new.
        if self.link == AgentLink::Up && self.instance == Some(instance) {
            return;
        }
        let mut restarted = self.instance.is_some_and(|known| known != instance);
        let went_back = self.validator.message(seq, uptime_ms, now).is_err();
        if self.instance != Some(instance) || went_back {
            // Either a new agent, or the guest was restored from a snapshot: then its numbers went
            // back although this answer is new.
            restarted |= went_back;
            self.instance = Some(instance);
            self.validator = MessageValidator::new();
            self.request = None;
            let _ = self.validator.message(seq, uptime_ms, now);
        }
        self.link = AgentLink::Up;
        self.received_at = now;
        let agent = AgentIdentity {
            version: common,
            instance,
            agent: hello.agent,
            system: hello.system,
            page: Bytes::new(hello.page_bytes),
            capabilities: hello.capabilities,
            shrinkers: hello.shrinkers,
        };
        self.emit(AgentEvent::Up { agent, restarted });
    }

    fn handle_request(
        &mut self,
        number: u64,
        kind: WireRequestKind,
        bytes: u64,
        why: RequestReason,
        now: Timestamp,
    ) {
        let last = self.request.map_or(0, |request| request.number);
        if number <= last {
            return self.emit(AgentEvent::Implausible(ImplausibleMessage::RequestRepeated {
                number,
                last,
            }));
        }
        let is_within_period = self
            .emergency_at
            .is_some_and(|at| now.saturating_since(at) < self.settings.emergency_period);
        let kind = match kind {
            // An honest agent's second emergency comes early if its first one was delayed. It still
            // waits for an answer.
            WireRequestKind::Emergency if is_within_period => RequestKind::More,
            WireRequestKind::Emergency => {
                self.emergency_at = Some(now);
                RequestKind::Emergency
            }
            WireRequestKind::More => RequestKind::More,
            WireRequestKind::Less => RequestKind::Less,
        };
        let request = MemoryRequest { number, kind, amount: self.capped(bytes) };
        self.request = Some(request);
        self.emit(AgentEvent::Request { request, why });
    }

    /// `bytes`, limited to the most memory that the guest can have.
    fn capped(&self, bytes: u64) -> Bytes {
        let bytes = Bytes::new(bytes);
        self.settings.host_facts.memory_max.map_or(bytes, |limit| bytes.min(limit))
    }

    fn send_hello(&mut self, now: Timestamp) {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let hello = HostMessage::Hello {
            version: VERSION,
            oldest: VERSION_OLDEST,
            session: self.number,
            statistics_ms: ms(self.settings.statistics_period),
            emergency_ms: ms(self.settings.emergency_period),
        };
        self.send(hello, now);
    }

    fn send(&mut self, message: HostMessage, now: Timestamp) {
        if self.link == AgentLink::Down {
            return;
        }
        self.sent_at = now;
        let frame = HostFrame { seq: self.seq + 1, message };
        // Encoding fails only if the caller passed an out-of-range number; then nothing is sent.
        let Ok(bytes) = encode(&frame) else { return };
        self.seq += 1;
        if self.transmits.len() >= TRANSMITS_MAX {
            self.transmits.pop_front();
        }
        self.transmits.push_back(bytes);
    }

    fn emit(&mut self, event: AgentEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
