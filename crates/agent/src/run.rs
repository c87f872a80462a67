//! The loop.
//!
//! Idea: wait for whatever comes first (bytes of the host, the end of an order, the time to look), then do
//! all there is to do without waiting. What the host is told of its wishes is in `Agent`, which is handed
//! the time; the rest moves bytes.
//!
//! Limits: while the host's end is closed the way there cannot be waited for, and is looked at every
//! `RECONNECT_PERIOD`.

use std::path::Path;
use std::time::Duration;

use ballast_agent_wire::{Balloon, GuestMessage, HostMessage, Kind, Outcome, capability};
use ballast_model::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::asker::Asker;
use crate::config::Config;
use crate::conversation::{Conversation, Heard, Identity};
use crate::linux::{self, Sources};
use crate::shrink::{Shrinker, Workers};
use crate::transport::{Address, Transport};

/// Time between two attempts at reaching the host.
const RECONNECT_PERIOD: Duration = Duration::from_millis(500);
/// Most pieces read at a time, so that a host that never stops talking is still reported to.
const READS_MAX: usize = 16;
/// Time shrinkers are given that work because a request was not granted.
const OWN_ORDER_TIME: Duration = Duration::from_secs(10);
/// The number of an order that no host gave.
const OWN_ORDER: u64 = 0;

/// Reports to the host at `address`; comes back only with why it cannot begin.
///
/// # Errors
/// The system has no thread left.
pub fn run(
    address: &Address,
    config: &Config,
    shrinkers: Vec<Box<dyn Shrinker>>,
) -> Result<(), String> {
    linux::stay_responsive();
    let workers = Workers::start(shrinkers).map_err(|error| format!("shrinkers: {error}"))?;
    let mut agent = Agent::new(config, workers, Sources::open(Path::new("/")));
    let mut way = Way { address: address.clone(), transport: None, was_open: false, told: false };
    loop {
        let wait = if way.was_open { agent.wait() } else { agent.wait().min(RECONNECT_PERIOD) };
        way.wait(&agent, wait)?;
        way.tend(&mut agent);
        agent.tend();
        way.send(&mut agent);
    }
}

/// The way to the host, open or not.
struct Way {
    address: Address,
    transport: Option<Box<dyn Transport>>,
    was_open: bool,
    /// That it cannot be reached was told.
    told: bool,
}

impl Way {
    fn wait(&self, agent: &Agent, wait: Duration) -> Result<(), String> {
        let mut fds = vec![PollFd::from_borrowed_fd(agent.workers.fd(), PollFlags::IN)];
        if let Some(transport) = self.transport.as_ref().filter(|_| self.was_open) {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, agent.conversation.unwritten().is_some());
            fds.push(PollFd::from_borrowed_fd(transport.fd(), flags));
        }
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut fds, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(format!("poll: {error}")),
        }
    }

    /// Opens what is closed, and reads what has come.
    fn tend(&mut self, agent: &mut Agent) {
        if self.transport.is_none() {
            match self.address.open() {
                Ok(transport) => self.transport = Some(transport),
                Err(error) => {
                    if !self.told {
                        eprintln!("ballast-agent: {}: {error}; trying again", self.address);
                        self.told = true;
                    }
                    return;
                }
            }
        }
        let Some(transport) = &mut self.transport else { return };
        let open = transport.is_open();
        if open && !self.was_open {
            self.told = false;
            agent.conversation.opened(linux::uptime(), now());
        } else if !open && self.was_open {
            agent.conversation.closed();
        }
        self.was_open = open;
        let mut chunk = [0; 4096];
        for _ in 0..READS_MAX {
            match transport.read(&mut chunk) {
                Ok(None) => break,
                Ok(Some(n)) => agent.hear(chunk.get(..n).unwrap_or_default()),
                Err(_) => return self.close(agent),
            }
        }
    }

    fn send(&mut self, agent: &mut Agent) {
        while self.was_open
            && let Some(transport) = &mut self.transport
            && let Some(bytes) = agent.conversation.unwritten()
        {
            match transport.write(bytes) {
                Ok(0) => break,
                Ok(n) => agent.conversation.wrote(n),
                Err(_) => return self.close(agent),
            }
        }
    }

    fn close(&mut self, agent: &mut Agent) {
        self.transport = None;
        self.was_open = false;
        agent.conversation.closed();
    }
}

/// What the agent does, given the time.
struct Agent {
    conversation: Conversation,
    sources: Sources,
    asker: Asker,
    workers: Workers,
    when_refused: bool,
    ages_period: Duration,
    look_at: Timestamp,
    ages_at: Timestamp,
    /// The last order's number.
    order: u64,
    /// The last request for more.
    asked_bytes: u64,
    deflating: bool,
}

impl Agent {
    fn new(config: &Config, workers: Workers, mut sources: Sources) -> Agent {
        let sample = sources.sample();
        let mut capabilities = vec![capability::STATISTICS, capability::REQUESTS];
        let optional = [
            (capability::PRESSURE, sample.pressure.is_some()),
            (capability::WATERMARKS, sample.watermarks.low_bytes.is_some()),
            (capability::AGES, sources.ages().is_some()),
            (capability::SHRINK, !workers.names().is_empty()),
        ];
        capabilities.extend(optional.iter().filter(|(_, has)| *has).map(|(name, _)| *name));
        let identity = Identity {
            instance: linux::random(),
            system: linux::system(),
            page_bytes: linux::page_bytes(),
            capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            shrinkers: workers.names().to_vec(),
        };
        Agent {
            conversation: Conversation::new(identity),
            sources,
            asker: Asker::new(config.requests),
            workers,
            when_refused: config.shrinkers.when_refused,
            ages_period: config.ages.every,
            look_at: now(),
            ages_at: now(),
            order: 0,
            asked_bytes: 0,
            deflating: false,
        }
    }

    /// Time until there is something to do by itself.
    fn wait(&self) -> Duration {
        match self.conversation.wishes() {
            Some(_) => self.look_at.saturating_since(now()),
            // A heartbeat and the like can wait as long; without a host there is neither.
            None => Duration::from_secs(5),
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let (uptime, now) = (linux::uptime(), now());
        for heard in self.conversation.handle_bytes(bytes, uptime, now) {
            match heard {
                Heard::Greeted(wishes) => {
                    self.asker.greeted(wishes.emergency_period);
                    (self.look_at, self.ages_at) = (now, now);
                    (self.order, self.deflating) = (0, false);
                }
                Heard::Message(message) => self.obey(message, now),
            }
        }
    }

    fn obey(&mut self, message: HostMessage, now: Timestamp) {
        match message {
            HostMessage::Answer { request, outcome, bytes, .. } => {
                let last = self.asker.answered(request);
                let left = self.asked_bytes.saturating_sub(bytes);
                if last && self.when_refused && outcome != Outcome::Granted && left > 0 {
                    // Before the kernel has to; what cannot be given it takes itself.
                    let _ = self.workers.order(OWN_ORDER, left, OWN_ORDER_TIME);
                }
            }
            HostMessage::Shrink { number, .. } if number <= self.order => {
                let text =
                    format!("order {number} after order {}: expected a larger number", self.order);
                self.say(GuestMessage::Error { text }, now);
            }
            HostMessage::Shrink { number, bytes, within_ms } => {
                self.order = number;
                let within = Duration::from_millis(within_ms);
                if self.deflating || !self.workers.order(number, bytes, within) {
                    let given = Vec::new();
                    self.say(GuestMessage::Shrunk { number, gave_bytes: 0, given }, now);
                }
            }
            HostMessage::Release {} => self.workers.release(),
            HostMessage::Balloon { state } => self.deflating = state == Balloon::Deflating,
            HostMessage::Hello { .. } | HostMessage::Heartbeat {} | HostMessage::Unknown => {}
        }
    }

    /// Does what is due.
    fn tend(&mut self) {
        let now = now();
        let told: Vec<GuestMessage> = self.workers.told().collect();
        for message in told {
            self.say(message, now);
        }
        self.conversation.handle_timeout(linux::uptime(), now);
        let Some(wishes) = self.conversation.wishes() else { return };
        if now < self.look_at {
            return;
        }
        let period = wishes.statistics_period;
        // What comes late moves what is after it: two at once would say nothing new.
        self.look_at = (self.look_at + period).max(now + period / 2);
        let statistics = self.sources.sample();
        self.say(GuestMessage::Statistics(Box::new(statistics)), now);
        if let Some(request) = self.asker.look(&statistics, now) {
            self.asked_bytes = match &request {
                GuestMessage::Request { kind: Kind::More, bytes, .. } => *bytes,
                _ => 0,
            };
            self.say(request, now);
        }
        if now >= self.ages_at {
            self.ages_at = now + self.ages_period;
            if let Some(ages) = self.sources.ages() {
                self.say(GuestMessage::Ages(ages), now);
            }
        }
    }

    fn say(&mut self, message: GuestMessage, now: Timestamp) {
        self.conversation.say(message, linux::uptime(), now);
    }
}

fn now() -> Timestamp {
    Timestamp::from_millis(u64::try_from(linux::monotonic().as_millis()).unwrap_or(u64::MAX))
}
