//! The agent's main loop.
//!
//! Each round waits for input from the host, the end of an order, or the time of the next sample,
//! and then does everything that is due without blocking. `AgentLoop` holds the logic and the
//! clock, `HostConnection` moves bytes.
//!
//! Limits: a virtio-serial port whose host end is closed cannot be polled; it is checked every
//! `RECONNECT_PERIOD`.

use std::path::Path;
use std::time::Duration;

use ballast_agent_proto::wire::{
    BalloonActivity, GuestGreeting, GuestMessage, HostMessage, RequestOutcome, WireRequestKind,
    capability,
};
use ballast_model::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config::AgentConfig;
use crate::conversation::{Conversation, ReceivedMessage};
use crate::linux::{self, KernelSources};
use crate::requester::Requester;
use crate::shrink::{SHRUNK_TIME_MAX, ShrinkWorker, Shrinker};
use crate::transport::{HostAddress, Transport};

/// Time between two attempts to connect.
const RECONNECT_PERIOD: Duration = Duration::from_millis(500);
/// Most reads per round, so that a host that never stops sending still gets reports.
const READS_MAX: usize = 16;
/// Time limit of an order that the agent gives itself after a refused request.
const OWN_ORDER_TIME: Duration = Duration::from_secs(10);
/// The number of an order that the agent gives itself.
const OWN_ORDER: u64 = 0;

/// Reports to the host at `address`. Returns only on failure.
///
/// # Errors
/// The shrinker thread cannot be started, or polling fails.
pub fn run(
    address: &HostAddress,
    config: &AgentConfig,
    shrinkers: Vec<Box<dyn Shrinker>>,
) -> Result<(), String> {
    for refused in linux::stay_responsive() {
        eprintln!("ballast-agent: {refused}");
    }
    let worker = ShrinkWorker::start(shrinkers, SHRUNK_TIME_MAX)
        .map_err(|error| format!("shrinkers: {error}"))?;
    let mut agent = AgentLoop::new(config, worker, KernelSources::open(Path::new("/")));
    let mut host = HostConnection::new(address.clone());
    loop {
        let wait = if host.was_open { agent.wait() } else { agent.wait().min(RECONNECT_PERIOD) };
        host.wait(&agent, wait)?;
        host.receive(&mut agent);
        agent.run_due();
        host.send(&mut agent);
    }
}

/// The connection to the host, open or not.
struct HostConnection {
    address: HostAddress,
    transport: Option<Box<dyn Transport>>,
    was_open: bool,
    /// Whether the current failure to connect was logged.
    is_failure_logged: bool,
}

impl HostConnection {
    fn new(address: HostAddress) -> HostConnection {
        HostConnection { address, transport: None, was_open: false, is_failure_logged: false }
    }

    fn wait(&self, agent: &AgentLoop, wait: Duration) -> Result<(), String> {
        let mut fds = vec![PollFd::from_borrowed_fd(agent.shrinkers.fd(), PollFlags::IN)];
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

    /// Connects if necessary, and handles received bytes.
    fn receive(&mut self, agent: &mut AgentLoop) {
        if self.transport.is_none() {
            match self.address.open() {
                Ok(transport) => self.transport = Some(transport),
                Err(error) => {
                    if !self.is_failure_logged {
                        eprintln!(
                            "ballast-agent: cannot connect to {}: {error}; retrying",
                            self.address
                        );
                        self.is_failure_logged = true;
                    }
                    return;
                }
            }
        }
        let Some(transport) = &mut self.transport else { return };
        let open = transport.is_open();
        if open && !self.was_open {
            self.is_failure_logged = false;
            agent.conversation.opened(linux::uptime(), now());
        } else if !open && self.was_open {
            agent.conversation.closed();
        }
        self.was_open = open;
        let mut chunk = [0; 4096];
        for _ in 0..READS_MAX {
            match transport.read(&mut chunk) {
                Ok(None) => break,
                Ok(Some(n)) => agent.handle_bytes(chunk.get(..n).unwrap_or_default()),
                Err(_) => return self.close(agent),
            }
        }
    }

    fn send(&mut self, agent: &mut AgentLoop) {
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

    fn close(&mut self, agent: &mut AgentLoop) {
        self.transport = None;
        self.was_open = false;
        agent.conversation.closed();
    }
}

/// The agent's state and its reactions.
struct AgentLoop {
    conversation: Conversation,
    sources: KernelSources,
    requester: Requester,
    shrinkers: ShrinkWorker,
    when_refused: bool,
    ages_period: Duration,
    sample_at: Timestamp,
    ages_at: Timestamp,
    /// Number of the last order.
    order: u64,
    /// Size of the last request for more memory.
    requested_bytes: u64,
    is_deflating: bool,
}

impl AgentLoop {
    fn new(config: &AgentConfig, shrinkers: ShrinkWorker, mut sources: KernelSources) -> AgentLoop {
        let sample = sources.sample();
        let mut capabilities = vec![capability::STATISTICS, capability::REQUESTS];
        let optional = [
            (capability::PRESSURE, sample.pressure.is_some()),
            (capability::WATERMARKS, sample.watermarks.low_bytes.is_some()),
            (capability::AGES, sources.ages().is_some()),
            (capability::SHRINK, !shrinkers.names().is_empty()),
        ];
        capabilities.extend(optional.iter().filter(|(_, has)| *has).map(|(name, _)| *name));
        let hello = GuestGreeting {
            instance: linux::random(),
            agent: concat!("ballast-agent ", env!("CARGO_PKG_VERSION")).to_owned(),
            system: linux::system(),
            page_bytes: linux::page_bytes(),
            capabilities: capabilities.into_iter().map(str::to_owned).collect(),
            shrinkers: shrinkers.names().to_vec(),
            ..GuestGreeting::default()
        };
        AgentLoop {
            conversation: Conversation::new(hello),
            sources,
            requester: Requester::new(config.requests),
            shrinkers,
            when_refused: config.shrinkers.when_refused,
            ages_period: config.ages.every,
            sample_at: now(),
            ages_at: now(),
            order: 0,
            requested_bytes: 0,
            is_deflating: false,
        }
    }

    /// Time until the next sample is due.
    fn wait(&self) -> Duration {
        match self.conversation.parameters() {
            Some(_) => self.sample_at.saturating_since(now()),
            // Without a host there are no samples and no heartbeats.
            None => Duration::from_secs(5),
        }
    }

    fn handle_bytes(&mut self, bytes: &[u8]) {
        let (uptime, now) = (linux::uptime(), now());
        for received in self.conversation.handle_bytes(bytes, uptime, now) {
            match received {
                ReceivedMessage::Greeted(parameters) => {
                    self.requester.greeted(parameters.emergency_period);
                    (self.sample_at, self.ages_at) = (now, now);
                    (self.order, self.is_deflating) = (0, false);
                }
                ReceivedMessage::Message(message) => self.handle_message(message, now),
            }
        }
    }

    fn handle_message(&mut self, message: HostMessage, now: Timestamp) {
        match message {
            HostMessage::Answer { request, outcome, bytes, .. } => {
                let is_last = self.requester.answered(request);
                let left = self.requested_bytes.saturating_sub(bytes);
                if is_last && self.when_refused && outcome != RequestOutcome::Granted && left > 0 {
                    // Before the kernel has to reclaim. The kernel reclaims what shrinkers cannot
                    // give.
                    let _ = self.shrinkers.order(OWN_ORDER, left, OWN_ORDER_TIME);
                }
            }
            HostMessage::Shrink { number, .. } if number <= self.order => {
                let text =
                    format!("order {number} after order {}: expected a larger number", self.order);
                self.send(GuestMessage::Error { text }, now);
            }
            HostMessage::Shrink { number, bytes, within_ms } => {
                self.order = number;
                let within = Duration::from_millis(within_ms);
                if self.is_deflating || !self.shrinkers.order(number, bytes, within) {
                    let given = Vec::new();
                    self.send(GuestMessage::Shrunk { number, gave_bytes: 0, given }, now);
                }
            }
            HostMessage::Release {} => self.shrinkers.release(),
            HostMessage::Balloon { state } => {
                self.is_deflating = state == BalloonActivity::Deflating
            }
            HostMessage::Hello { .. } | HostMessage::Heartbeat {} | HostMessage::Unknown => {}
        }
    }

    /// Sends what is due: results of orders, heartbeats, statistics, requests and ages.
    fn run_due(&mut self) {
        let now = now();
        let results: Vec<GuestMessage> = self.shrinkers.messages().collect();
        for message in results {
            self.send(message, now);
        }
        self.conversation.handle_timeout(linux::uptime(), now);
        let Some(parameters) = self.conversation.parameters() else { return };
        if now < self.sample_at {
            return;
        }
        let period = parameters.statistics_period;
        // A late sample delays the next one: two in quick succession add nothing.
        self.sample_at = (self.sample_at + period).max(now + period / 2);
        let statistics = self.sources.sample();
        self.send(GuestMessage::Statistics(Box::new(statistics)), now);
        if let Some(request) = self.requester.request(&statistics, now) {
            self.requested_bytes = match &request {
                GuestMessage::Request { kind: WireRequestKind::More, bytes, .. } => *bytes,
                _ => 0,
            };
            self.send(request, now);
        }
        if now >= self.ages_at {
            self.ages_at = now + self.ages_period;
            if let Some(ages) = self.sources.ages() {
                self.send(GuestMessage::Ages(ages), now);
            }
        }
    }

    fn send(&mut self, message: GuestMessage, now: Timestamp) {
        self.conversation.send(message, linux::uptime(), now);
    }
}

fn now() -> Timestamp {
    Timestamp::from_millis(u64::try_from(linux::monotonic().as_millis()).unwrap_or(u64::MAX))
}
