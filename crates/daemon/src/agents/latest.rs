//! The latest state of one guest's agent, shared between the connection's task and the daemon.
//!
//! Idea: the task stores events, the tick takes the latest state. A restarted agent numbers its
//! requests from 1 again; the numbers here continue, because the controller takes an equal number
//! for the same request.
//!
//! Limits: at most [`NOTICES_MAX`] lines for the log wait for a tick; further ones are dropped.
//! Repeated lines are rate-limited. A line holds at most [`LINE_CHARS_MAX`] characters of guest
//! text; control characters in it are escaped.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ballast_agent_proto::host::{AgentEvent, HostFacts, agent_report, guest_stats};
use ballast_model::{
    AgentReport, Bytes, GuestSample, GuestStats, Measured, MemoryRequest, RequestKind, Timestamp,
};
use tokio::sync::Notify;

use crate::rate_limited::RateLimited;
use crate::worker::lock;

/// Balloon statistics older than this are replaced by the agent's: the balloon driver may be gone.
/// Statistics normally arrive every second, up to two seconds late under pressure.
const BALLOON_STATS_MAX_AGE: Duration = Duration::from_secs(4);
/// Most log lines that wait for the next tick.
const NOTICES_MAX: usize = 8;
/// Most characters of a log line, before those that cannot be printed are escaped.
const LINE_CHARS_MAX: usize = 300;

/// A line for the log about an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentNotice {
    /// Normal progress.
    Info(String),
    /// The agent failed or sent something implausible; logged once as a warning.
    Warning(String),
}

/// State shared by the task and the daemon.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Most memory the guest can have, in bytes; 0 if unknown.
    memory_max: AtomicU64,
    /// The process behind the guest's QMP socket; 0 if unknown.
    hypervisor: AtomicU32,
    /// Whether the agent called for a tick that has not begun yet.
    calls: AtomicBool,
    state: Mutex<SharedAgentState>,
}

#[derive(Debug, Default)]
struct SharedAgentState {
    /// The guest's page size; `None` until its agent answers.
    page: Option<Bytes>,
    report: Option<(AgentReport, GuestStats, Timestamp)>,
    request: Option<MemoryRequest>,
    /// Whether the guest has programs that can release memory on request.
    has_shrinkers: bool,
    /// Whether the last such request is unanswered.
    is_shrinking: bool,
    /// Added to this agent's request numbers.
    base: u64,
    notices: Vec<AgentNotice>,
    /// Rate limits, by kind, for lines that an agent can cause at will.
    limits: BTreeMap<&'static str, RateLimited>,
}

/// The latest state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentState {
    /// The agent's own report.
    pub(crate) report: Option<Measured<AgentReport>>,
    /// Statistics like a balloon's, for guests whose balloon has none.
    pub(crate) stats: Option<Measured<GuestStats>>,
    /// New lines for the log.
    pub(crate) notices: Vec<AgentNotice>,
}

impl AgentState {
    /// Adds the agent's report to a hypervisor's sample. Its statistics replace the balloon's where
    /// those are missing or old.
    pub(crate) fn add_to(&self, sample: &mut GuestSample) {
        sample.agent = self.report.map(Box::new);
        let is_old = |stats: &Measured<_>| stats.age >= BALLOON_STATS_MAX_AGE;
        sample.stats = match (sample.stats, self.stats) {
            (Some(balloon), Some(agent)) if is_old(&balloon) && agent.age < balloon.age => {
                Some(agent)
            }
            (balloon, agent) => balloon.or(agent),
        };
    }
}

impl Shared {
    /// Sets the most memory the guest can have, as the host knows it.
    pub(super) fn set_memory_max(&self, max: Option<Bytes>) {
        self.memory_max.store(max.map_or(0, Bytes::get), Ordering::Relaxed);
    }

    /// Sets the process behind the guest's QMP socket.
    pub(super) fn set_hypervisor(&self, pid: Option<u32>) {
        self.hypervisor.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// The process behind the guest's QMP socket; `None`: not known.
    pub(super) fn hypervisor(&self) -> Option<u32> {
        Some(self.hypervisor.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Whether process `peer`, at the other end of the socket at `path`, may speak for the guest's
    /// agent: it must be the guest's hypervisor. A warning names any other.
    pub(super) fn admits(&self, peer: Option<u32>, path: &Path, now: Timestamp) -> bool {
        let hypervisor = self.hypervisor.load(Ordering::Relaxed);
        if hypervisor == 0 || peer == Some(hypervisor) {
            return hypervisor != 0;
        }
        let by = peer.map_or("an unknown process".to_owned(), |pid| format!("process {pid}"));
        let text = format!(
            "refused its agent's socket {}: {by} is at its other end, not the hypervisor's process \
             {hypervisor}: remove the socket, and look who may write to its folder",
            path.display()
        );
        self.lock().warn(text, now);
        false
    }

    pub(super) fn host_facts(&self) -> HostFacts {
        let bytes = self.memory_max.load(Ordering::Relaxed);
        HostFacts { memory_max: (bytes > 0).then_some(Bytes::new(bytes)) }
    }

    /// Takes in an event; notifies `urgent` of an emergency.
    pub(super) fn handle(&self, event: AgentEvent, now: Timestamp, urgent: &Notify) {
        let mut state = self.lock();
        match event {
            AgentEvent::Up { agent, restarted } => {
                state.page = Some(agent.page);
                state.has_shrinkers = !agent.shrinkers.is_empty();
                state.is_shrinking = false;
                if restarted {
                    state.base = state.request.map_or(state.base, |request| request.number);
                    state.report = None;
                }
                let (kind, again) =
                    if restarted { ("restart", ", restarted") } else { ("start", "") };
                state.inform(kind, format!("agent {}, {}{again}", agent.agent, agent.system), now);
            }
            AgentEvent::Statistics { statistics, .. } => {
                let page = state.page.unwrap_or(Bytes::pages(1));
                let report = agent_report(&statistics, None);
                state.report = Some((report, guest_stats(&statistics, page), now));
            }
            AgentEvent::Request { mut request, why } => {
                request.number = request.number.saturating_add(state.base);
                state.request = Some(request);
                state.inform(request.kind.code(), format!("{request}: {}", why.text), now);
                if request.kind == RequestKind::Emergency {
                    self.call(urgent);
                }
            }
            AgentEvent::Shrunk { gave, .. } => {
                // The balloon waits for the answer to a request. Other answers wake nobody.
                if std::mem::take(&mut state.is_shrinking) {
                    self.call(urgent);
                }
                if gave > Bytes::ZERO {
                    state.inform("release", format!("its programs gave back {gave}"), now);
                }
            }
            AgentEvent::Silent => {
                state.inform("silence", "its agent has fallen silent".to_owned(), now);
            }
            AgentEvent::UnsupportedVersion { version, oldest } => state.warn(
                format!("unsupported agent: its protocol versions are {oldest} to {version}"),
                now,
            ),
            AgentEvent::Error(text) => state.warn(format!("its agent: {text}"), now),
            AgentEvent::Implausible(why) => {
                state.warn(format!("rejected an implausible message from its agent: {why}"), now);
            }
            AgentEvent::Unreadable(why) => {
                state.warn(format!("rejected an unreadable message from its agent: {why}"), now);
            }
            AgentEvent::MessagesLost(_) | AgentEvent::Ages(_) | AgentEvent::Shrinking { .. } => {}
        }
    }

    fn call(&self, urgent: &Notify) {
        self.calls.store(true, Ordering::Relaxed);
        urgent.notify_one();
    }

    /// Whether the agent has called for a tick since the last call of this function.
    pub(super) fn has_called(&self) -> bool {
        self.calls.swap(false, Ordering::Relaxed)
    }

    /// Keeps a warning for the log.
    pub(super) fn warn(&self, text: &str, now: Timestamp) {
        self.lock().warn(text.to_owned(), now);
    }

    /// The latest state. Removes the new log lines.
    pub(super) fn take(&self, now: Timestamp) -> AgentState {
        let mut state = self.lock();
        let request = state.request;
        let notices = std::mem::take(&mut state.notices);
        let Some((report, stats, at)) = state.report else {
            return AgentState { notices, ..AgentState::default() };
        };
        let age = now.saturating_since(at);
        AgentState {
            report: Some(Measured { value: AgentReport { request, ..report }, age }),
            stats: Some(Measured { value: stats, age }),
            notices,
        }
    }

    /// Notes that the guest's programs are asked to release memory. `false`: it has no such
    /// programs.
    pub(super) fn begin_shrinking(&self) -> bool {
        let mut state = self.lock();
        state.is_shrinking = state.has_shrinkers;
        state.is_shrinking
    }

    /// Whether that request is still unanswered.
    pub(super) fn is_shrinking(&self) -> bool {
        self.lock().is_shrinking
    }

    /// The number of the last request.
    pub(super) fn request(&self) -> Option<u64> {
        self.lock().request.map(|request| request.number)
    }

    fn lock(&self) -> MutexGuard<'_, SharedAgentState> {
        lock(&self.state)
    }
}

impl SharedAgentState {
    fn inform(&mut self, kind: &'static str, text: String, now: Timestamp) {
        self.notify(AgentNotice::Info, kind, text, now);
    }

    fn warn(&mut self, text: String, now: Timestamp) {
        self.notify(AgentNotice::Warning, "warning", text, now);
    }

    /// Keeps a line for the log, unless one of its kind was kept recently. All text from a guest
    /// passes here.
    fn notify(
        &mut self,
        notice: fn(String) -> AgentNotice,
        kind: &'static str,
        text: String,
        now: Timestamp,
    ) {
        let line = self.limits.entry(kind).or_default().line(text, now);
        if let Some(line) = line
            && self.notices.len() < NOTICES_MAX
        {
            self.notices.push(notice(printable(&line)));
        }
    }
}

/// The beginning of `text`, with unprintable characters escaped.
fn printable(text: &str) -> String {
    let mut line = String::new();
    for char in text.chars().take(LINE_CHARS_MAX) {
        match char {
            // Escaping these would only make the line harder to read.
            '\'' | '"' | '\\' => line.push(char),
            _ => line.extend(char.escape_debug()),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use ballast_agent_proto::host::{AgentIdentity, ImplausibleMessage};
    use ballast_agent_proto::wire::{RequestReason, RequestRule, Statistics};
    use futures_util::FutureExt;

    use super::*;

    fn up(restarted: bool) -> AgentEvent {
        let agent = AgentIdentity {
            version: 1,
            instance: 7,
            agent: "ballast-agent 0.1.0".to_owned(),
            system: "linux 6.1".to_owned(),
            page: Bytes::kib(16),
            capabilities: Vec::new(),
            shrinkers: Vec::new(),
        };
        AgentEvent::Up { agent, restarted }
    }

    fn statistics() -> AgentEvent {
        let mut statistics = Statistics::default();
        statistics.memory.committed_bytes = Some(5000);
        statistics.counters.swap_in_pages = Some(2);
        AgentEvent::Statistics { uptime_ms: 1, statistics: Box::new(statistics) }
    }

    fn asks(number: u64, kind: RequestKind) -> AgentEvent {
        let request = MemoryRequest { number, kind, amount: Bytes::mib(64) };
        let why = RequestReason { rule: RequestRule::FreeFalling, text: "free falls".to_owned() };
        AgentEvent::Request { request, why }
    }

    #[test]
    fn a_report_carries_its_age_and_notices_appear_once() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        assert_eq!(shared.take(Timestamp::from_millis(9)), AgentState::default());
        let at = Timestamp::from_millis(1000);
        shared.handle(up(false), at, &urgent);
        shared.handle(statistics(), at, &urgent);
        let state = shared.take(Timestamp::from_millis(1400));
        let report = state.report.unwrap();
        assert_eq!((report.value.committed, report.age.as_millis()), (Some(Bytes::new(5000)), 400));
        // Pages of 16 KiB.
        assert_eq!(state.stats.unwrap().value.swap_in, Some(Bytes::kib(32)));
        assert_eq!(
            state.notices,
            [AgentNotice::Info("agent ballast-agent 0.1.0, linux 6.1".to_owned())]
        );
        assert_eq!(shared.take(at).notices, []);
    }

    #[test]
    fn request_numbers_continue_after_restart_and_emergencies_wake_the_daemon() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        let number = |shared: &Shared| {
            shared.take(Timestamp::ZERO).report.unwrap().value.request.map(|it| it.number)
        };
        shared.handle(up(false), Timestamp::ZERO, &urgent);
        shared.handle(statistics(), Timestamp::ZERO, &urgent);
        shared.handle(asks(3, RequestKind::More), Timestamp::ZERO, &urgent);
        assert_eq!(number(&shared), Some(3));
        assert!(urgent.notified().now_or_never().is_none());
        shared.handle(up(true), Timestamp::ZERO, &urgent);
        assert!(shared.take(Timestamp::ZERO).report.is_none(), "its counters begin again");
        shared.handle(statistics(), Timestamp::ZERO, &urgent);
        shared.handle(asks(1, RequestKind::Emergency), Timestamp::ZERO, &urgent);
        assert_eq!(number(&shared), Some(4));
        assert!(urgent.notified().now_or_never().is_some());
    }

    #[test]
    fn only_the_hypervisors_process_speaks_for_an_agent() {
        let (shared, path) = (Shared::default(), Path::new("/run/a\n.sock"));
        let admits = |listener| shared.admits(listener, path, Timestamp::ZERO);
        assert!(!admits(Some(7)) && !admits(None), "the hypervisor is not known yet");
        assert_eq!(shared.take(Timestamp::ZERO).notices, []);
        shared.set_hypervisor(Some(7));
        assert!(admits(Some(7)) && !admits(Some(8)) && !admits(None));
        let notices = shared.take(Timestamp::ZERO).notices;
        let [AgentNotice::Warning(text)] = &notices[..] else { panic!("{notices:?}") };
        let expected =
            r"socket /run/a\n.sock: process 8 is at its other end, not the hypervisor's process 7";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn only_a_requested_shrink_wakes_the_daemon() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        let shrunk = |gave| AgentEvent::Shrunk { number: 1, gave, given: Vec::new() };
        shared.handle(up(false), Timestamp::ZERO, &urgent);
        assert!(!shared.begin_shrinking(), "it has no shrinkers");
        let AgentEvent::Up { agent, .. } = up(false) else { unreachable!() };
        let agent = AgentIdentity { shrinkers: vec!["page-cache".to_owned()], ..agent };
        shared.handle(AgentEvent::Up { agent, restarted: false }, Timestamp::ZERO, &urgent);
        shared.handle(shrunk(Bytes::ZERO), Timestamp::ZERO, &urgent);
        assert!(urgent.notified().now_or_never().is_none());
        assert!(shared.begin_shrinking() && shared.is_shrinking());
        shared.handle(shrunk(Bytes::mib(7)), Timestamp::ZERO, &urgent);
        assert!(urgent.notified().now_or_never().is_some() && !shared.is_shrinking());
        let notices = shared.take(Timestamp::ZERO).notices;
        assert_eq!(
            notices.last(),
            Some(&AgentNotice::Info("its programs gave back 7MiB".to_owned()))
        );
    }

    #[test]
    fn warnings_and_notices_of_an_agent_are_bounded() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        for seq in 0..100 {
            let why = ImplausibleMessage::Repeated { seq, last: 200 };
            shared.handle(AgentEvent::Implausible(why), Timestamp::ZERO, &urgent);
        }
        let notices = shared.take(Timestamp::ZERO).notices;
        let [AgentNotice::Warning(first)] = &notices[..] else { panic!("{notices:?}") };
        assert!(first.contains("message 0 after message 200"), "{first}");
        for number in 1..100 {
            let events = [asks(number, RequestKind::Less), up(true), up(false), AgentEvent::Silent];
            events.into_iter().for_each(|event| shared.handle(event, Timestamp::ZERO, &urgent));
        }
        let notices = shared.take(Timestamp::ZERO).notices;
        assert_eq!(notices.len(), 4, "one of each kind: {notices:?}");
        // Each kind may be logged again every minute: the queue is bounded all the same.
        for minute in 1..100 {
            let at = Timestamp::from_millis(minute * 60_000);
            shared.handle(AgentEvent::Silent, at, &urgent);
        }
        assert_eq!(shared.take(Timestamp::ZERO).notices.len(), NOTICES_MAX);
    }

    #[test]
    fn a_guests_text_cannot_forge_log_lines() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        let text = format!("x\n2026 ERROR\u{1b}[2J\u{202e}{}", "y".repeat(9_999));
        shared.handle(AgentEvent::Error(text), Timestamp::ZERO, &urgent);
        let notices = shared.take(Timestamp::ZERO).notices;
        let [AgentNotice::Warning(line)] = &notices[..] else { panic!("{notices:?}") };
        assert!(line.starts_with(r"its agent: x\n2026 ERROR\u{1b}[2J\u{202e}yy"), "{line}");
        assert!(line.chars().count() < 2 * LINE_CHARS_MAX);
    }
}
