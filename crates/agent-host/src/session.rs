//! One guest's agent, from greeting to silence.
//!
//! Idea: sans-IO. The caller says when the transport is up and down, hands over bytes, and calls
//! [`Session::handle_timeout`] when [`Session::poll_timeout`] says so; it takes what is to be sent with
//! [`Session::poll_transmit`] and what has happened with [`Session::poll_event`].
//!
//! States: down, greeting (hello is repeated, for bytes may have been lost before the guest opened its
//! port), up, silent (nothing came for [`SILENCE_MAX`]; greets again, since the agent may have been
//! started anew). Whatever came before the answer to this session's hello is not heard.
//!
//! A guest that was turned back to a snapshot counts as one whose agent was started anew. An agent that
//! has just been started says hello with number 0, and is greeted at once.
//!
//! Limits: [`EVENTS_MAX`] events, [`TRANSMITS_MAX`] frames, and [`BYTES_PER_SECOND_MAX`] of input, what
//! comes beyond is dropped and said.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_agent_wire::message::{common_version, decode, encode, short};
use ballast_agent_wire::statistics::NUMBER_MAX;
use ballast_agent_wire::{
    Ages, Balloon, FrameReader, Given, GuestFrame, GuestMessage, HostFrame, HostMessage, Kind,
    Offer, Outcome, Statistics, VERSION, VERSION_OLDEST, Why,
};
use ballast_model::{Bytes, MemoryRequest, RequestKind, Timestamp};

use crate::gate::{Gate, Implausible, Known};

/// Most events that wait to be taken.
pub const EVENTS_MAX: usize = 64;
/// Most frames that wait to be sent.
pub const TRANSMITS_MAX: usize = 32;
/// Most bytes heard of an agent in a second, twenty times what it sends.
pub const BYTES_PER_SECOND_MAX: u64 = 64 << 10;
/// Time between two hellos that are not answered.
pub const HELLO_PERIOD: Duration = Duration::from_millis(500);
/// Time after which the host says that it is there.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);
/// Time without a word after which an agent counts as silent.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What a session is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time between two statistics.
    pub statistics_period: Duration,
    /// Least time between two emergencies: the policy's period.
    pub emergency_period: Duration,
    /// What the host knows of the guest.
    pub known: Known,
}

/// How the conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// No transport.
    Down,
    /// No answer yet.
    Greeting,
    /// It talks.
    Up,
    /// It did, and does no more.
    Silent,
    /// Its agent speaks no version that is spoken here.
    Foreign,
}

/// Who answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The version spoken.
    pub version: u32,
    /// New for each start of the agent.
    pub instance: u64,
    /// Its name and version.
    pub agent: String,
    /// The guest's kernel.
    pub system: String,
    /// The size of a page.
    pub page: Bytes,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// Its shrinkers.
    pub shrinkers: Vec<String>,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The agent answered; `restarted`: it is another start of it than the last one.
    Up {
        /// Who it is.
        agent: Agent,
        /// Whether the agent was started anew, or the guest turned back, since it last answered.
        restarted: bool,
    },
    /// It speaks no version that is spoken here.
    Foreign {
        /// Its newest.
        version: u32,
        /// Its oldest.
        oldest: u32,
    },
    /// Nothing came for [`SILENCE_MAX`]: what it said last is stale.
    Silent,
    /// So many of its messages are missing.
    Missing(u64),
    /// Figures.
    Statistics {
        /// The guest's uptime.
        uptime_ms: u64,
        /// The figures.
        statistics: Box<Statistics>,
    },
    /// How long memory has not been used.
    Ages(Ages),
    /// It asks.
    Request {
        /// What, capped at what the guest can have.
        request: MemoryRequest,
        /// Why.
        why: Why,
    },
    /// Its shrinkers work: the balloon is to wait.
    Shrinking {
        /// The order's number.
        number: u64,
        /// What each could give.
        offers: Vec<Offer>,
    },
    /// Its shrinkers are done.
    Shrunk {
        /// The order's number.
        number: u64,
        /// What came of it, all together.
        gave: Bytes,
        /// What each gave.
        given: Vec<Given>,
    },
    /// It could not do something.
    Error(String),
    /// Something that it said does not count.
    Implausible(Implausible),
    /// Bytes that are no message.
    Unreadable(String),
}

/// The conversation with one guest's agent.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    link: Link,
    /// The number of this connection's hello.
    number: u64,
    reader: FrameReader,
    gate: Gate,
    instance: Option<u64>,
    seq: u64,
    events: VecDeque<Event>,
    transmits: VecDeque<Vec<u8>>,
    heard_at: Timestamp,
    said_at: Timestamp,
    budget: Budget,
    request: Option<MemoryRequest>,
    emergency_at: Option<Timestamp>,
    order: u64,
}

/// Input heard in the current second.
#[derive(Debug)]
struct Budget {
    since: Timestamp,
    bytes: u64,
    told: bool,
}

impl Session {
    /// One without a transport.
    pub fn new(settings: Settings, now: Timestamp) -> Session {
        Session {
            settings,
            link: Link::Down,
            number: 0,
            reader: FrameReader::new(),
            gate: Gate::new(),
            instance: None,
            seq: 0,
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            heard_at: now,
            said_at: now,
            budget: Budget { since: now, bytes: 0, told: false },
            request: None,
            emergency_at: None,
            order: 0,
        }
    }

    /// How the conversation is.
    pub const fn link(&self) -> Link {
        self.link
    }

    /// The last request that counts, answered or not.
    pub const fn request(&self) -> Option<MemoryRequest> {
        self.request
    }

    /// What the host knows of the guest has changed.
    pub const fn set_known(&mut self, known: Known) {
        self.settings.known = known;
    }

    /// The transport is up; `number`, new for each connection, tells answers to its hello from older ones.
    pub fn connected(&mut self, number: u64, now: Timestamp) {
        // 0 is what an agent says of itself.
        self.number = (number & NUMBER_MAX).max(1);
        self.reader = FrameReader::new();
        self.transmits.clear();
        self.seq = 0;
        self.link = Link::Greeting;
        self.heard_at = now;
        self.greet(now);
    }

    /// The transport is down.
    pub fn disconnected(&mut self) {
        self.link = Link::Down;
        self.transmits.clear();
    }

    /// Bytes came.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Timestamp) {
        if self.link == Link::Down || !self.afford(bytes.len(), now) {
            return;
        }
        self.reader.push(bytes);
        while let Some(frame) = self.reader.next_frame() {
            let frame = frame.map_err(|error| error.to_string());
            let decoded = |it: String| decode(&it).map_err(|error| error.to_string());
            match frame.and_then(decoded) {
                Ok(frame) => self.handle_frame(frame, now),
                // What is left of another conversation is no fault.
                Err(_) if self.link == Link::Greeting => {}
                Err(why) => self.tell(Event::Unreadable(why)),
            }
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.link == Link::Up && now.saturating_since(self.heard_at) >= SILENCE_MAX {
            self.link = Link::Silent;
            self.tell(Event::Silent);
            self.greet(now);
            return;
        }
        let quiet = now.saturating_since(self.said_at);
        match self.link {
            Link::Greeting | Link::Silent if quiet >= HELLO_PERIOD => self.greet(now),
            Link::Up if quiet >= HEARTBEAT_PERIOD => self.say(HostMessage::Heartbeat {}, now),
            _ => {}
        }
    }

    /// When [`Session::handle_timeout`] is to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self.link {
            Link::Down | Link::Foreign => None,
            Link::Greeting | Link::Silent => Some(self.said_at + HELLO_PERIOD),
            Link::Up => Some((self.said_at + HEARTBEAT_PERIOD).min(self.heard_at + SILENCE_MAX)),
        }
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmits.pop_front()
    }

    /// What has happened next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers the last request.
    pub fn answer(&mut self, outcome: Outcome, bytes: Bytes, why: Option<String>, now: Timestamp) {
        let Some(request) = self.request else { return };
        let why = why.map(|why| short(&why));
        let bytes = bytes.get();
        self.say(HostMessage::Answer { request: request.number, outcome, bytes, why }, now);
    }

    /// Orders programs to give back so much; the order's number.
    pub fn shrink(&mut self, bytes: Bytes, within: Duration, now: Timestamp) -> u64 {
        self.order += 1;
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        self.say(HostMessage::Shrink { number: self.order, bytes: bytes.get(), within_ms }, now);
        self.order
    }

    /// Programs that were made to shrink may grow again.
    pub fn release(&mut self, now: Timestamp) {
        self.say(HostMessage::Release {}, now);
    }

    /// Tells what the balloon does.
    pub fn balloon(&mut self, state: Balloon, now: Timestamp) {
        self.say(HostMessage::Balloon { state }, now);
    }

    fn afford(&mut self, bytes: usize, now: Timestamp) -> bool {
        if now.saturating_since(self.budget.since) >= Duration::from_secs(1) {
            self.budget = Budget { since: now, bytes: 0, told: false };
        }
        self.budget.bytes = self.budget.bytes.saturating_add(bytes as u64);
        if self.budget.bytes <= BYTES_PER_SECOND_MAX {
            return true;
        }
        if !self.budget.told {
            self.budget.told = true;
            let bytes_per_second_max = BYTES_PER_SECOND_MAX;
            self.tell(Event::Implausible(Implausible::Flood { bytes_per_second_max }));
        }
        false
    }

    fn handle_frame(&mut self, frame: GuestFrame, now: Timestamp) {
        if let GuestMessage::Hello { session, instance, .. } = &frame.message {
            match *session {
                number if number == self.number => self.handle_hello(frame, now),
                // It has just been started, or has lost its place.
                0 if self.link != Link::Up || self.instance != Some(*instance) => {
                    self.link = Link::Greeting;
                    self.greet(now);
                }
                _ => {}
            }
            return;
        }
        // Before the answer to this connection's hello, it is the rest of another conversation.
        if !matches!(self.link, Link::Up | Link::Silent) {
            return;
        }
        match self.gate.message(frame.seq, frame.uptime_ms, now) {
            Ok(0) => {}
            Ok(missing) => self.tell(Event::Missing(missing)),
            Err(why) => return self.tell(Event::Implausible(why)),
        }
        self.heard_at = now;
        self.link = Link::Up;
        match frame.message {
            GuestMessage::Statistics(statistics) => {
                match self.gate.statistics(&statistics, self.settings.known) {
                    Ok(()) => {
                        self.tell(Event::Statistics { uptime_ms: frame.uptime_ms, statistics });
                    }
                    Err(why) => self.tell(Event::Implausible(why)),
                }
            }
            GuestMessage::Ages(ages) => self.tell(Event::Ages(ages)),
            GuestMessage::Request { number, kind, bytes, why } => {
                self.handle_request(number, kind, bytes, why, now);
            }
            GuestMessage::Shrinking { number, offers } => {
                self.tell(Event::Shrinking { number, offers });
            }
            GuestMessage::Shrunk { number, gave_bytes, given } => {
                let gave = self.capped(gave_bytes);
                self.tell(Event::Shrunk { number, gave, given });
            }
            GuestMessage::Error { text } => self.tell(Event::Error(text)),
            GuestMessage::Hello { .. } | GuestMessage::Heartbeat {} | GuestMessage::Unknown => {}
        }
    }

    fn handle_hello(&mut self, frame: GuestFrame, now: Timestamp) {
        let GuestMessage::Hello {
            version,
            oldest,
            instance,
            agent,
            system,
            page_bytes,
            capabilities,
            shrinkers,
            ..
        } = frame.message
        else {
            return;
        };
        let Some(common) = common_version(version, oldest) else {
            self.link = Link::Foreign;
            return self.tell(Event::Foreign { version, oldest });
        };
        // The answer to a hello that was repeated is none to tell again.
        if self.link == Link::Up && self.instance == Some(instance) {
            return;
        }
        let mut restarted = self.instance.is_some_and(|known| known != instance);
        let turned_back = self.gate.message(frame.seq, frame.uptime_ms, now).is_err();
        if self.instance != Some(instance) || turned_back {
            // A new agent; or the guest has gone back to a snapshot, since what it answers is new.
            restarted |= turned_back;
            self.instance = Some(instance);
            self.gate = Gate::new();
            (self.request, self.emergency_at) = (None, None);
            let _ = self.gate.message(frame.seq, frame.uptime_ms, now);
        }
        self.link = Link::Up;
        self.heard_at = now;
        let page = Bytes::new(page_bytes);
        let agent =
            Agent { version: common, instance, agent, system, page, capabilities, shrinkers };
        self.tell(Event::Up { agent, restarted });
    }

    fn handle_request(&mut self, number: u64, kind: Kind, bytes: u64, why: Why, now: Timestamp) {
        let last = self.request.map_or(0, |request| request.number);
        if number <= last {
            return self.tell(Event::Implausible(Implausible::RequestRepeated { number, last }));
        }
        let is_rationed = self
            .emergency_at
            .is_some_and(|at| now.saturating_since(at) < self.settings.emergency_period);
        let kind = match kind {
            // An honest agent's second emergency comes early where the first one was long on its way. It waits for
            // an answer all the same, and must have one.
            Kind::Emergency if is_rationed => RequestKind::More,
            Kind::Emergency => {
                self.emergency_at = Some(now);
                RequestKind::Emergency
            }
            Kind::More => RequestKind::More,
            Kind::Less => RequestKind::Less,
        };
        let request = MemoryRequest { number, kind, amount: self.capped(bytes) };
        self.request = Some(request);
        self.tell(Event::Request { request, why });
    }

    /// No guest can have, ask for or give more than it could hold.
    fn capped(&self, bytes: u64) -> Bytes {
        let bytes = Bytes::new(bytes);
        self.settings.known.memory_max.map_or(bytes, |most| bytes.min(most))
    }

    fn greet(&mut self, now: Timestamp) {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let hello = HostMessage::Hello {
            version: VERSION,
            oldest: VERSION_OLDEST,
            session: self.number,
            statistics_ms: ms(self.settings.statistics_period),
            emergency_ms: ms(self.settings.emergency_period),
        };
        self.say(hello, now);
    }

    fn say(&mut self, message: HostMessage, now: Timestamp) {
        if self.link == Link::Down {
            return;
        }
        self.said_at = now;
        let frame = HostFrame { seq: self.seq + 1, message };
        // Only a figure of the caller's beyond all bounds cannot be encoded: nothing is sent then.
        let Ok(bytes) = encode(&frame) else { return };
        self.seq += 1;
        if self.transmits.len() >= TRANSMITS_MAX {
            self.transmits.pop_front();
        }
        self.transmits.push_back(bytes);
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}
