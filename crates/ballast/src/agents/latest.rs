//! What is known of one guest by its agent, shared between the task that listens and the daemon.
//!
//! Idea: the task puts events in, the tick takes the latest state out. Numbers of requests go on where an agent that
//! is started anew begins again at 1, since the same number is the same request to whoever decides.
//! Limits: [`NEWS_MAX`] lines for the log; what comes beyond is dropped, and what comes again and again is said rarely.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ballast_agent_host::{Event, Known, agent_report, guest_stats};
use ballast_model::{
    AgentReport, Bytes, GuestStats, Measured, MemoryRequest, RequestKind, Timestamp,
};
use tokio::sync::Notify;

use super::rare::Rare;

/// Lines for the log that wait for the next tick.
const NEWS_MAX: usize = 8;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// How the conversation goes.
    Told(String),
    /// What the guest said and is not believed, or could not do: worth a warning, and worth it once.
    Doubted(String),
}

/// What both sides see.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The most memory that the guest can have, in bytes; 0 where that is not known.
    memory_max: AtomicU64,
    /// Whether it has called for a tick that has not begun yet.
    calls: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The size of a page; of nobody who has not answered.
    page: Option<Bytes>,
    report: Option<(AgentReport, GuestStats, Timestamp)>,
    request: Option<MemoryRequest>,
    /// Whether it has programs that can be made to give memory back.
    has_shrinkers: bool,
    /// Whether they were told to, and have not answered.
    is_shrinking: bool,
    /// What is added to the numbers of this agent's requests.
    base: u64,
    news: Vec<News>,
    /// Lines that an agent can have come as often as it likes.
    doubts: Rare,
    asks: Rare,
    offers: Rare,
    cries: Rare,
    gifts: Rare,
}

/// The latest of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// What only an agent tells.
    pub(crate) report: Option<Measured<AgentReport>>,
    /// What balloons tell too, for guests whose balloon does not.
    pub(crate) stats: Option<Measured<GuestStats>>,
    /// For the log.
    pub(crate) news: Vec<News>,
}

impl Shared {
    /// The most memory that the guest can have, as the host knows it.
    pub(super) fn set_memory_max(&self, most: Option<Bytes>) {
        self.memory_max.store(most.map_or(0, Bytes::get), Ordering::Relaxed);
    }

    pub(super) fn known(&self) -> Known {
        let bytes = self.memory_max.load(Ordering::Relaxed);
        Known { memory_max: (bytes > 0).then_some(Bytes::new(bytes)) }
    }

    /// Takes in what has happened; `urgent` is told of an emergency.
    pub(super) fn handle(&self, event: Event, now: Timestamp, urgent: &Notify) {
        let mut state = self.lock();
        match event {
            Event::Up { agent, restarted } => {
                state.page = Some(agent.page);
                state.has_shrinkers = !agent.shrinkers.is_empty();
                state.is_shrinking = false;
                if restarted {
                    state.base = state.request.map_or(state.base, |request| request.number);
                    state.report = None;
                }
                let again = if restarted { ", started anew" } else { "" };
                state.tell(News::Told(format!("agent {}, {}{again}", agent.agent, agent.system)));
            }
            Event::Statistics { statistics, .. } => {
                let page = state.page.unwrap_or(Bytes::pages(1));
                let report = agent_report(&statistics, None);
                state.report = Some((report, guest_stats(&statistics, page), now));
            }
            Event::Request { mut request, why } => {
                request.number = request.number.saturating_add(state.base);
                state.request = Some(request);
                let text = format!("{request}: {}", why.text);
                let kind = match request.kind {
                    RequestKind::More => &mut state.asks,
                    RequestKind::Less => &mut state.offers,
                    RequestKind::Emergency => &mut state.cries,
                };
                if let Some(text) = kind.say(text, now) {
                    state.tell(News::Told(text));
                }
                if request.kind == RequestKind::Emergency {
                    self.call(urgent);
                }
            }
            Event::Shrunk { gave, .. } => {
                // Its balloon waits for that; what nobody ordered wakes nobody.
                if std::mem::take(&mut state.is_shrinking) {
                    self.call(urgent);
                }
                if gave > Bytes::ZERO
                    && let Some(text) =
                        state.gifts.say(format!("its programs gave back {gave}"), now)
                {
                    state.tell(News::Told(text));
                }
            }
            Event::Silent => state.tell(News::Told("its agent has fallen silent".to_owned())),
            Event::Foreign { version, oldest } => state.doubt(format!(
                "its agent speaks versions {oldest} to {version} of the protocol, none of them spoken here"
            ), now),
            Event::Error(text) => state.doubt(format!("its agent: {text}"), now),
            Event::Implausible(why) => {
                state.doubt(format!("what its agent says is not believed: {why}"), now);
            }
            Event::Unreadable(why) => {
                state.doubt(format!("its agent cannot be understood: {why}"), now);
            }
            Event::Missing(_) | Event::Ages(_) | Event::Shrinking { .. } => {}
        }
    }

    fn call(&self, urgent: &Notify) {
        self.calls.store(true, Ordering::Relaxed);
        urgent.notify_one();
    }

    /// Whether it has called for a tick since this was last asked.
    pub(super) fn has_called(&self) -> bool {
        self.calls.swap(false, Ordering::Relaxed)
    }

    /// The latest, and what is new for the log.
    pub(super) fn take(&self, now: Timestamp) -> Heard {
        let mut state = self.lock();
        let request = state.request;
        let at = |measured: Timestamp| now.saturating_since(measured);
        Heard {
            report: state.report.map(|(report, _, measured)| Measured {
                value: AgentReport { request, ..report },
                age: at(measured),
            }),
            stats: state
                .report
                .map(|(_, stats, measured)| Measured { value: stats, age: at(measured) }),
            news: std::mem::take(&mut state.news),
        }
    }

    /// Its programs are told to give memory back; `false`: it has none that could.
    pub(super) fn begin_shrinking(&self) -> bool {
        let mut state = self.lock();
        state.is_shrinking = state.has_shrinkers;
        state.is_shrinking
    }

    /// Whether they were told to, and have not answered.
    pub(super) fn is_shrinking(&self) -> bool {
        self.lock().is_shrinking
    }

    /// The number of the last request.
    pub(super) fn request(&self) -> Option<u64> {
        self.lock().request.map(|request| request.number)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn doubt(&mut self, text: String, now: Timestamp) {
        if let Some(text) = self.doubts.say(text, now) {
            self.tell(News::Doubted(text));
        }
    }

    fn tell(&mut self, news: News) {
        if self.news.len() < NEWS_MAX {
            self.news.push(news);
        }
    }
}

#[cfg(test)]
mod tests {
    use ballast_agent_host::{Agent, Implausible};
    use ballast_agent_wire::{Rule, Statistics, Why};
    use futures_util::FutureExt;

    use super::*;

    fn up(restarted: bool) -> Event {
        let agent = Agent {
            version: 1,
            instance: 7,
            agent: "ballast-agent 0.1.0".to_owned(),
            system: "linux 6.1".to_owned(),
            page: Bytes::kib(16),
            capabilities: Vec::new(),
            shrinkers: Vec::new(),
        };
        Event::Up { agent, restarted }
    }

    fn statistics() -> Event {
        let mut statistics = Statistics::default();
        statistics.memory.committed_bytes = Some(5000);
        statistics.counters.swap_in_pages = Some(2);
        Event::Statistics { uptime_ms: 1, statistics: Box::new(statistics) }
    }

    fn asks(number: u64, kind: RequestKind) -> Event {
        let request = MemoryRequest { number, kind, amount: Bytes::mib(64) };
        let why = Why { rule: Rule::FreeFalling, text: "free falls".to_owned() };
        Event::Request { request, why }
    }

    #[test]
    fn the_latest_is_told_with_its_age_and_news_once() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        assert_eq!(shared.take(Timestamp::from_millis(9)), Heard::default());
        let at = Timestamp::from_millis(1000);
        shared.handle(up(false), at, &urgent);
        shared.handle(statistics(), at, &urgent);
        let heard = shared.take(Timestamp::from_millis(1400));
        let report = heard.report.unwrap();
        assert_eq!((report.value.committed, report.age.as_millis()), (Some(Bytes::new(5000)), 400));
        // Pages of 16 KiB.
        assert_eq!(heard.stats.unwrap().value.swap_in, Some(Bytes::kib(32)));
        assert_eq!(heard.news, [News::Told("agent ballast-agent 0.1.0, linux 6.1".to_owned())]);
        assert_eq!(shared.take(at).news, []);
    }

    #[test]
    fn requests_of_an_agent_started_anew_are_new_and_emergencies_wake_the_daemon() {
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
    fn only_programs_that_were_told_to_shrink_wake_the_daemon() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        let shrunk = |gave| Event::Shrunk { number: 1, gave, given: Vec::new() };
        shared.handle(up(false), Timestamp::ZERO, &urgent);
        assert!(!shared.begin_shrinking(), "it has nobody who could");
        let Event::Up { agent, .. } = up(false) else { unreachable!() };
        let agent = Agent { shrinkers: vec!["page-cache".to_owned()], ..agent };
        shared.handle(Event::Up { agent, restarted: false }, Timestamp::ZERO, &urgent);
        shared.handle(shrunk(Bytes::ZERO), Timestamp::ZERO, &urgent);
        assert!(urgent.notified().now_or_never().is_none());
        assert!(shared.begin_shrinking() && shared.is_shrinking());
        shared.handle(shrunk(Bytes::mib(7)), Timestamp::ZERO, &urgent);
        assert!(urgent.notified().now_or_never().is_some() && !shared.is_shrinking());
        let news = shared.take(Timestamp::ZERO).news;
        assert_eq!(news.last(), Some(&News::Told("its programs gave back 7MiB".to_owned())));
    }

    #[test]
    fn what_is_not_believed_is_said_and_bounded() {
        let (shared, urgent) = (Shared::default(), Notify::new());
        for seq in 0..100 {
            let why = Implausible::Repeated { seq, last: 200 };
            shared.handle(Event::Implausible(why), Timestamp::ZERO, &urgent);
        }
        let news = shared.take(Timestamp::ZERO).news;
        let [News::Doubted(first)] = &news[..] else { panic!("{news:?}") };
        assert!(first.contains("message 0 after message 200"), "{first}");
        for number in 1..100 {
            let events = [asks(number, RequestKind::Less), up(true)];
            events.into_iter().for_each(|event| shared.handle(event, Timestamp::ZERO, &urgent));
        }
        assert_eq!(shared.take(Timestamp::ZERO).news.len(), NEWS_MAX);
    }
}
