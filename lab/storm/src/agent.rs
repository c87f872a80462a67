//! One guest's agent: the daemon's side of the conversation, and an agent that may misbehave.
//!
//! Idea: everything that the daemon knows from an agent passes through the daemon's own code, from
//! bytes. An honest agent reports true figures, asks for what its guest lacks, and offers what the
//! guest does not need. An offender's agent floods the daemon, restarts without end, sends
//! emergencies without need, lies, or sends noise. The judgement is about the cost to the host: no
//! more bytes may be read than its ration, and no more than one emergency may be accepted in a
//! period.
//!
//! Cost: some 10 µs a guest and tick. Limits: both sides act only at ticks; there are no programs
//! that shrink.

use std::time::Duration;

use ballast_agent_proto::host::BYTES_PER_SECOND_MAX;
use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage, RequestReason,
    RequestRule, Statistics, WireRequestKind,
};
use ballast_daemon::engine::{Answer, Conversation};
use ballast_model::{GuestSample, ProcessId, Timestamp};
use fastrand::Rng;

use crate::fault::Fault;
use crate::guest::StormGuest;

/// The daemon's values.
const PERIOD: Duration = Duration::from_secs(1);
pub(crate) const EMERGENCY_PERIOD: Duration = Duration::from_secs(10);

/// How many bytes the daemon reads at once, and how many a socket holds for it.
const CHUNK: usize = 4096;
const SOCKET: usize = 1 << 18;

/// The most bytes that may be read in any second: two rations, because one may end in it and
/// another begin.
const READ_MAX: usize = 2 * (BYTES_PER_SECOND_MAX as usize + CHUNK);

/// How often an agent asks for what its guest lacks, and the least amount that it asks for, MiB.
const ASKS_EVERY: Duration = Duration::from_secs(10);
const WORTH_ASKING: u64 = 32;

/// A misdeed of an agent, and how long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Misdeed {
    fault: Fault,
    until: Duration,
    amount: u64,
}

/// An agent and the daemon's side of it.
#[derive(Debug)]
pub(crate) struct StormAgent {
    host: Conversation,
    /// The number of connections so far.
    connections: u64,
    /// The guest's number of boots when the agent was started.
    boots: u32,
    booted_at: Duration,
    process: ProcessId,
    instance: u64,
    seq: u64,
    requests: u64,
    /// The session from the daemon's last hello.
    session: Option<u64>,
    reader: FrameReader,
    said_at: Duration,
    misdeed: Option<Misdeed>,
    to_host: Vec<u8>,
    /// How many bytes were read in the last second, and when.
    read: Vec<(Duration, usize)>,
    called_at: Option<Duration>,
    /// What the daemon did for the agent beyond its ration, in words.
    pub(crate) excess: Option<String>,
    /// Sabotage: a new instance of the agent gets a new ration.
    forgets: bool,
    /// When an honest agent last asked or offered.
    asked_at: Duration,
}

impl StormAgent {
    pub(crate) fn new(guest: &StormGuest, now: Duration, forgets: bool) -> StormAgent {
        let mut agent = StormAgent {
            host: conversation(now),
            connections: 0,
            boots: guest.boots,
            booted_at: now,
            process: guest.process,
            instance: 1,
            seq: 0,
            requests: 0,
            session: None,
            reader: FrameReader::new(),
            said_at: Duration::ZERO,
            misdeed: None,
            to_host: Vec::new(),
            read: Vec::new(),
            called_at: None,
            excess: None,
            forgets,
            asked_at: now,
        };
        agent.connect(now);
        agent
    }

    fn connect(&mut self, now: Duration) {
        self.connections += 1;
        self.host.connected(self.connections, at(now));
        self.to_host.clear();
        self.reader = FrameReader::new();
        self.session = None;
    }

    /// The daemon was started anew, or it knows the guest as a new one.
    pub(crate) fn daemon_died(&mut self, now: Duration) {
        self.host = conversation(now);
        (self.called_at, self.read) = (None, Vec::new());
        self.connect(now);
    }

    pub(crate) fn strike(&mut self, fault: Fault, until: Duration, amount: u64) {
        self.misdeed = Some(Misdeed { fault, until, amount });
    }

    /// Lets both sides send and read.
    pub(crate) fn exchange(&mut self, guest: &mut StormGuest, now: Duration) {
        if guest.boots != self.boots {
            (self.boots, self.booted_at, self.misdeed) = (guest.boots, now, None);
            self.begin_anew(now);
            self.session = None;
        }
        if guest.process != self.process {
            self.process = guest.process;
            self.daemon_died(now);
        }
        self.misdeed = self.misdeed.filter(|it| now < it.until);
        if !self.host.step(at(now)) {
            self.host.disconnected();
            self.connect(now);
        }
        self.listen();
        // A hypervisor that hangs passes nothing on, and a stopped guest says nothing.
        if now >= guest.stalled_until.max(guest.stopped_until) {
            self.speak(guest, now);
        }
        self.read_by_host(now);
        let (called, last) = (self.host.has_called(), self.called_at);
        if called && last.is_some_and(|last| now - last < EMERGENCY_PERIOD) {
            self.excess = Some("was heard with two emergencies in a period".to_owned());
        }
        self.called_at = if called { Some(now) } else { last };
    }

    /// Reads what the daemon has written.
    fn listen(&mut self) {
        while !self.host.outgoing().is_empty() {
            let count = self.host.outgoing().len();
            self.reader.push(self.host.outgoing());
            self.host.mark_written(count);
        }
        while let Some(frame) = self.reader.next_frame() {
            let frame = frame.ok().and_then(|payload| decode::<HostFrame>(&payload).ok());
            if let Some(HostFrame { message: HostMessage::Hello { session, .. }, .. }) = frame {
                self.session = Some(session);
                self.say_hello();
            }
        }
    }

    fn say_hello(&mut self) {
        let hello = GuestGreeting {
            session: self.session.unwrap_or(0),
            instance: self.instance,
            agent: "agent of a storm".to_owned(),
            ..GuestGreeting::default()
        };
        self.send(GuestMessage::Hello(hello), self.said_at);
    }

    /// Starts another instance of the agent.
    fn begin_anew(&mut self, now: Duration) {
        self.instance += 1;
        (self.seq, self.requests) = (0, 0);
        if self.forgets {
            self.host = conversation(now);
            self.host.connected(self.connections, at(now));
        }
    }

    fn speak(&mut self, guest: &mut StormGuest, now: Duration) {
        let due = now >= self.said_at + PERIOD || now < self.said_at;
        self.said_at = now;
        if self.session.is_none() {
            return;
        }
        let Some(Misdeed { fault, amount, .. }) = self.misdeed else {
            if due {
                guest.agent_at = now;
                self.send(GuestMessage::Statistics(Box::new(statistics(guest))), now);
                self.ask_as_needed(guest, now);
            }
            return;
        };
        match fault {
            Fault::FloodByAgent => {
                while self.to_host.len() < SOCKET {
                    self.send(GuestMessage::Heartbeat {}, now);
                }
            }
            Fault::CycleAgent => {
                self.begin_anew(now);
                self.say_hello();
                self.ask(WireRequestKind::Emergency, 0, now);
            }
            Fault::CallWithoutNeed => self.ask(WireRequestKind::Emergency, guest.boot << 20, now),
            Fault::LieByAgent => {
                guest.agent_at = now;
                let mut statistics = statistics(guest);
                statistics.memory.available_bytes = Some(0);
                statistics.memory.free_bytes = Some(0);
                statistics.memory.committed_bytes = Some(guest.boot << 20);
                self.send(GuestMessage::Statistics(Box::new(statistics)), now);
                self.ask(WireRequestKind::More, guest.boot << 20, now);
            }
            Fault::GarbleAgent => {
                let mut rng = Rng::with_seed(amount ^ self.seq);
                let count = rng.usize(1..3000);
                self.to_host.extend(std::iter::repeat_with(|| rng.u8(..)).take(count));
                // The last message is sent once more, with its old number.
                self.seq = self.seq.saturating_sub(2);
                self.send(GuestMessage::Heartbeat {}, now);
            }
            // Silence.
            _ => {}
        }
    }

    /// Asks for what the guest lacks, or offers what it does not need.
    fn ask_as_needed(&mut self, guest: &StormGuest, now: Duration) {
        if now < self.asked_at + ASKS_EVERY {
            return;
        }
        let (holds, wants) = (guest.holds, guest.wants);
        if wants > holds + WORTH_ASKING {
            self.asked_at = now;
            self.ask(WireRequestKind::More, (wants - holds) << 20, now);
        } else if holds > wants + 2 * WORTH_ASKING {
            self.asked_at = now;
            self.ask(WireRequestKind::Less, (holds - wants - WORTH_ASKING) << 20, now);
        }
    }

    fn ask(&mut self, kind: WireRequestKind, bytes: u64, now: Duration) {
        self.requests += 1;
        let why = RequestReason { rule: RequestRule::FreeFalling, text: "as it likes".to_owned() };
        self.send(GuestMessage::Request { number: self.requests, kind, bytes, why }, now);
    }

    fn send(&mut self, message: GuestMessage, now: Duration) {
        self.seq += 1;
        let uptime = now.saturating_sub(self.booted_at).as_millis();
        let uptime_ms = u64::try_from(uptime).unwrap_or(u64::MAX);
        let frame = GuestFrame { seq: self.seq, uptime_ms, message };
        let bytes = encode(&frame).expect("an agent's messages are within bounds");
        if self.to_host.len() + bytes.len() <= SOCKET + CHUNK {
            self.to_host.extend(bytes);
        }
    }

    /// Lets the daemon read as much as it is willing to.
    fn read_by_host(&mut self, now: Duration) {
        while self.host.unreadable_for(at(now)).is_zero() && !self.to_host.is_empty() {
            let chunk: Vec<u8> = self.to_host.drain(..CHUNK.min(self.to_host.len())).collect();
            self.host.receive(&chunk, at(now));
            self.read.push((now, chunk.len()));
            if !self.host.step(at(now)) {
                break;
            }
        }
        self.read.retain(|(then, _)| now - *then < Duration::from_secs(1));
        let read: usize = self.read.iter().map(|(_, count)| count).sum();
        if read > READ_MAX {
            self.excess = Some(format!("had {read} bytes read in a second"));
        }
    }

    /// Adds what the daemon knows from the agent to the hypervisor's sample.
    pub(crate) fn add_to(&self, sample: &mut GuestSample, now: Duration) {
        self.host.add_to(sample, at(now));
    }

    pub(crate) fn answer(&mut self, number: u64, answer: Answer, now: Duration) {
        self.host.answer(number, answer, at(now));
    }
}

fn at(now: Duration) -> Timestamp {
    Timestamp::ZERO + now
}

fn conversation(now: Duration) -> Conversation {
    Conversation::new(PERIOD, EMERGENCY_PERIOD, at(now))
}

/// The guest's statistics as an agent reports them.
fn statistics(guest: &StormGuest) -> Statistics {
    let stats = guest.figures();
    let mut told = Statistics::default();
    told.memory.total_bytes = Some(guest.claims().min(guest.boot) << 20);
    told.memory.available_bytes = stats.available.map(|it| it.get());
    told.memory.committed_bytes = Some(guest.wants << 20);
    told.counters.swap_in_pages = stats.swap_in.map(|it| it.get() / 4096);
    told.counters.swap_out_pages = stats.swap_out.map(|it| it.get() / 4096);
    told
}
