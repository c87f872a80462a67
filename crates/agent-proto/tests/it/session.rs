//! Sessions in virtual time, against well-behaved and misbehaving agents.

use std::time::Duration;

use ballast_agent_proto::host::{
    AgentEvent, AgentLink, AgentSession, BYTES_PER_SECOND_MAX, HostFacts, ImplausibleMessage,
    SessionSettings,
};
use ballast_agent_proto::wire::message::{decode, encode};
use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage, RequestOutcome,
    RequestReason, RequestRule, Statistics, WireRequestKind,
};
use ballast_model::{Bytes, RequestKind, Timestamp};
use proptest::prelude::*;

const SETTINGS: SessionSettings = SessionSettings {
    statistics_period: Duration::from_secs(1),
    emergency_period: Duration::from_secs(5),
    host_facts: HostFacts { memory_max: Some(Bytes::gib(1)) },
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// An agent that sends whatever a test wants.
struct FakeAgent {
    instance: u64,
    seq: u64,
}

impl FakeAgent {
    fn new(instance: u64) -> FakeAgent {
        FakeAgent { instance, seq: 0 }
    }

    fn frame(&mut self, uptime_ms: u64, message: GuestMessage) -> Vec<u8> {
        self.seq += 1;
        encode(&GuestFrame { seq: self.seq, uptime_ms, message }).unwrap()
    }

    fn hello(&mut self, uptime_ms: u64, session: u64) -> Vec<u8> {
        let (instance, agent) = (self.instance, "fake 1".to_owned());
        let hello = GuestGreeting { session, instance, agent, ..GuestGreeting::default() };
        self.frame(uptime_ms, GuestMessage::Hello(hello))
    }

    fn statistics(&mut self, uptime_ms: u64, free: Bytes, major_faults: u64) -> Vec<u8> {
        let mut statistics = Statistics::default();
        statistics.memory.free_bytes = Some(free.get());
        statistics.counters.major_faults = Some(major_faults);
        self.frame(uptime_ms, GuestMessage::Statistics(Box::new(statistics)))
    }

    fn request(
        &mut self,
        uptime_ms: u64,
        number: u64,
        kind: WireRequestKind,
        bytes: Bytes,
    ) -> Vec<u8> {
        let why = RequestReason { rule: RequestRule::FreeFalling, text: "test".to_owned() };
        self.frame(uptime_ms, GuestMessage::Request { number, kind, bytes: bytes.get(), why })
    }
}

fn events(session: &mut AgentSession) -> Vec<AgentEvent> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

fn sent(session: &mut AgentSession) -> Vec<HostMessage> {
    let mut reader = FrameReader::new();
    std::iter::from_fn(|| session.poll_transmit()).for_each(|bytes| reader.push(&bytes));
    std::iter::from_fn(|| reader.next_frame())
        .map(|payload| decode::<HostFrame>(&payload.unwrap()).unwrap().message)
        .collect()
}

/// A session that is up at 0 ms, and its agent, whose guest booted 1 s earlier.
fn up() -> (AgentSession, FakeAgent) {
    let mut session = AgentSession::new(SETTINGS, at(0));
    session.connected(7, at(0));
    let mut agent = FakeAgent::new(1);
    session.handle_bytes(&agent.hello(1_000, 7), at(0));
    assert!(matches!(events(&mut session)[..], [AgentEvent::Up { restarted: false, .. }]));
    (session, agent)
}

#[test]
fn hello_is_repeated_until_it_is_answered() {
    let mut session = AgentSession::new(SETTINGS, at(0));
    assert_eq!(session.poll_timeout(), None);
    session.connected(7, at(0));
    for ms in [0, 500, 1_000] {
        session.handle_timeout(at(ms));
        let expected = HostMessage::Hello {
            version: 1,
            oldest: 1,
            session: 7,
            statistics_ms: 1_000,
            emergency_ms: 5_000,
        };
        assert_eq!(sent(&mut session), [expected], "{ms}");
        assert_eq!(session.poll_timeout(), Some(at(ms + 500)));
    }
    // Fragments of an earlier conversation and answers to another hello are ignored.
    let mut agent = FakeAgent::new(1);
    session.handle_bytes(b"half a fra", at(1_001));
    session.handle_bytes(&agent.statistics(1_000, Bytes::mib(1), 0), at(1_001));
    session.handle_bytes(&agent.hello(1_000, 6), at(1_001));
    assert_eq!((events(&mut session), session.link()), (vec![], AgentLink::Greeting));
    session.handle_bytes(&agent.hello(1_000, 7), at(1_002));
    assert_eq!((events(&mut session).len(), session.link()), (1, AgentLink::Up));
    // An answer to a repeated hello changes nothing.
    session.handle_bytes(&agent.hello(1_001, 7), at(1_003));
    assert_eq!((events(&mut session), session.link()), (vec![], AgentLink::Up));
}

#[test]
fn silence_is_reported_once_and_ends_with_an_answer() {
    let (mut session, mut agent) = up();
    sent(&mut session);
    session.handle_timeout(at(5_000));
    assert_eq!(sent(&mut session), [HostMessage::Heartbeat {}]);
    session.handle_timeout(at(9_999));
    assert_eq!(events(&mut session), []);
    session.handle_timeout(at(10_000));
    session.handle_timeout(at(10_500));
    assert_eq!(events(&mut session), [AgentEvent::Silent]);
    assert_eq!(session.link(), AgentLink::Silent);
    assert!(matches!(sent(&mut session)[..], [.., HostMessage::Hello { .. }]));
    session.handle_bytes(&agent.hello(12_000, 7), at(11_000));
    assert!(matches!(events(&mut session)[..], [AgentEvent::Up { restarted: false, .. }]));
}

#[test]
fn a_restarted_agent_is_greeted_at_once_and_reported() {
    let (mut session, mut old) = up();
    session.handle_bytes(&old.statistics(2_000, Bytes::mib(9), 5), at(1_000));
    sent(&mut session);
    let mut new = FakeAgent::new(2);
    session.handle_bytes(&new.hello(3_000, 0), at(2_000));
    assert!(matches!(sent(&mut session)[..], [HostMessage::Hello { .. }]));
    session.handle_bytes(&new.hello(3_000, 7), at(2_000));
    let reported = events(&mut session);
    assert!(matches!(reported[..], [_, AgentEvent::Up { restarted: true, .. }]), "{reported:?}");
}

#[test]
fn a_guest_restored_from_a_snapshot_is_accepted() {
    let (mut session, mut agent) = up();
    for second in 2..9 {
        let statistics = agent.statistics(second * 1_000, Bytes::mib(9), second);
        session.handle_bytes(&statistics, at(second * 1_000));
    }
    session.disconnected();
    events(&mut session);
    session.connected(8, at(9_000));
    let mut snapshot = FakeAgent { instance: 1, seq: 2 };
    session.handle_bytes(&snapshot.hello(3_000, 8), at(9_000));
    session.handle_bytes(&snapshot.statistics(4_000, Bytes::mib(9), 3), at(10_000));
    let reported = events(&mut session);
    assert!(
        matches!(
            reported[..],
            [AgentEvent::Up { restarted: true, .. }, AgentEvent::Statistics { .. }]
        ),
        "{reported:?}"
    );
}

#[test]
fn an_agent_of_an_unsupported_version_is_reported_and_ignored() {
    let mut session = AgentSession::new(SETTINGS, at(0));
    session.connected(7, at(0));
    let mut agent = FakeAgent::new(1);
    let hello = GuestGreeting { version: 9, oldest: 5, session: 7, ..GuestGreeting::default() };
    session.handle_bytes(&agent.frame(2, GuestMessage::Hello(hello)), at(0));
    assert_eq!(events(&mut session), [AgentEvent::UnsupportedVersion { version: 9, oldest: 5 }]);
    assert_eq!(session.poll_timeout(), None);
}

#[test]
fn lost_repeated_and_implausible_messages_are_reported() {
    let (mut session, mut agent) = up();
    agent.seq += 3;
    let good = agent.statistics(2_000, Bytes::mib(9), 5);
    session.handle_bytes(&good, at(1_000));
    let reported = events(&mut session);
    assert!(
        matches!(reported[..], [AgentEvent::MessagesLost(3), AgentEvent::Statistics { .. }]),
        "{reported:?}"
    );
    session.handle_bytes(&good, at(1_100));
    session.handle_bytes(&agent.statistics(3_000, Bytes::gib(2), 5), at(2_000));
    session.handle_bytes(&agent.statistics(4_000, Bytes::mib(9), 4), at(3_000));
    session.handle_bytes(&agent.statistics(3_999, Bytes::mib(9), 9), at(4_000));
    let reported = events(&mut session);
    assert!(
        matches!(
            reported[..],
            [
                AgentEvent::Implausible(ImplausibleMessage::Repeated { .. }),
                AgentEvent::Implausible(ImplausibleMessage::TooLarge { .. }),
                AgentEvent::Implausible(ImplausibleMessage::CounterBackwards { .. }),
                AgentEvent::Implausible(ImplausibleMessage::ClockBackwards { .. }),
            ]
        ),
        "{reported:?}"
    );
    session.handle_bytes(b"\xF5BAL\x01\x00\x02\x00abcd{}", at(4_000));
    assert!(matches!(events(&mut session)[..], [AgentEvent::Unreadable(_)]));
}

#[test]
fn requests_are_capped_and_emergencies_limited() {
    let (mut session, mut agent) = up();
    let mut say = |ms: u64, number, kind, amount| {
        session.handle_bytes(&agent.request(1_000 + ms, number, kind, amount), at(ms));
        events(&mut session).pop().unwrap()
    };
    let AgentEvent::Request { request, .. } = say(100, 1, WireRequestKind::More, Bytes::gib(900))
    else {
        panic!()
    };
    assert_eq!((request.kind, request.amount), (RequestKind::More, Bytes::gib(1)));
    let again = say(200, 1, WireRequestKind::More, Bytes::mib(1));
    assert_eq!(
        again,
        AgentEvent::Implausible(ImplausibleMessage::RequestRepeated { number: 1, last: 1 })
    );
    let mut emergency = |ms, number| {
        let reported = say(ms, number, WireRequestKind::Emergency, Bytes::mib(1));
        let AgentEvent::Request { request, .. } = reported else { panic!("{reported:?}") };
        request.kind
    };
    assert_eq!(emergency(300, 2), RequestKind::Emergency);
    // Too soon: treated as an ordinary request.
    assert_eq!(emergency(5_299, 3), RequestKind::More);
    assert_eq!(emergency(5_300, 4), RequestKind::Emergency);
    sent(&mut session);
    session.answer(RequestOutcome::Partly, Bytes::mib(3), Some("budget".to_owned()), at(6_000));
    let why = Some("budget".to_owned());
    let bytes = Bytes::mib(3).get();
    let expected = HostMessage::Answer { request: 4, outcome: RequestOutcome::Partly, bytes, why };
    assert_eq!(sent(&mut session), [expected]);
}

fn floods(session: &mut AgentSession) -> usize {
    let is_flood = |event: &AgentEvent| {
        matches!(event, AgentEvent::Implausible(ImplausibleMessage::Flood { .. }))
    };
    events(session).iter().filter(|event| is_flood(event)).count()
}

#[test]
fn a_flood_is_reported_and_not_read_for_a_second() {
    let (mut session, mut agent) = up();
    let flood = agent.statistics(1_500, Bytes::mib(1), 0).repeat(2_000);
    let mut read = 0;
    for chunk in flood.chunks(4096) {
        if session.readable_at() > at(500) {
            break;
        }
        session.handle_bytes(chunk, at(500));
        read += chunk.len() as u64;
    }
    assert!((BYTES_PER_SECOND_MAX - 4096..BYTES_PER_SECOND_MAX + 4096).contains(&read), "{read}");
    assert_eq!(floods(&mut session), 1);
    // Bytes that are passed in all the same are dropped.
    session.handle_bytes(&agent.statistics(1_600, Bytes::mib(1), 0), at(600));
    assert_eq!(events(&mut session), []);
    // In the next second messages are accepted again.
    assert!(session.readable_at() <= at(1_500));
    session.handle_bytes(&agent.statistics(2_500, Bytes::mib(1), 0), at(1_500));
    let reported = events(&mut session);
    assert!(
        reported.iter().any(|event| matches!(event, AgentEvent::Statistics { .. })),
        "{reported:?}"
    );
}

#[test]
fn a_restarted_agent_has_no_new_ration() {
    let (mut session, mut agent) = up();
    let kind = |session: &mut AgentSession, agent: &mut FakeAgent, ms: u64| {
        let emergency = agent.request(ms, 1, WireRequestKind::Emergency, Bytes::mib(1));
        session.handle_bytes(&emergency, at(ms));
        let requested = events(session).into_iter().find_map(|event| match event {
            AgentEvent::Request { request, .. } => Some(request.kind),
            _ => None,
        });
        requested.unwrap()
    };
    assert_eq!(kind(&mut session, &mut agent, 1_300), RequestKind::Emergency);
    let mut restarted = FakeAgent::new(2);
    session.handle_bytes(&restarted.hello(1_400, 7), at(1_400));
    assert_eq!(kind(&mut session, &mut restarted, 1_500), RequestKind::More);
    // Nor a new ration of bytes, even on a new connection.
    session.handle_bytes(&[b'x'; 70_000], at(1_500));
    let readable_at = session.readable_at();
    session.disconnected();
    session.connected(8, at(1_600));
    assert!(readable_at > at(1_600) && session.readable_at() == readable_at);
}

#[derive(Clone, Debug)]
enum Step {
    Bytes(Vec<u8>),
    Message { seq: u64, uptime_ms: u64, what: u8, value: u64 },
    Down,
    Up(u64),
    Answer,
    Shrink,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let message = (0..30u64, 0..90_000u64, 0..6u8, prop_oneof![0..1u64 << 31, 0..1u64 << 53]);
    let one = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Step::Bytes),
        9 => message.prop_map(|(seq, uptime_ms, what, value)| Step::Message { seq, uptime_ms, what, value }),
        1 => Just(Step::Down),
        2 => (0..4u64).prop_map(Step::Up),
        1 => Just(Step::Answer),
        1 => Just(Step::Shrink),
    ];
    prop::collection::vec((0..4_000u64, one), 0..80)
}

fn encoded(seq: u64, uptime_ms: u64, what: u8, value: u64) -> Vec<u8> {
    let mut agent = FakeAgent { instance: value % 2, seq };
    match what {
        0 => agent.hello(uptime_ms, value % 4),
        1 => agent.request(uptime_ms, value % 9, WireRequestKind::More, Bytes::new(value)),
        2 => agent.request(uptime_ms, value % 9, WireRequestKind::Emergency, Bytes::new(value)),
        3 => {
            let shrunk = GuestMessage::Shrunk { number: 1, gave_bytes: value, given: vec![] };
            agent.frame(uptime_ms, shrunk)
        }
        _ => agent.statistics(uptime_ms, Bytes::new(value), value % 100),
    }
}

proptest! {
    /// Whatever an agent does, no accepted amount exceeds what the host knows, queues stay bounded,
    /// and the next timeout is never far in the past.
    #[test]
    fn no_agent_gets_past_the_validator(steps in steps()) {
        let mut session = AgentSession::new(SETTINGS, at(0));
        session.connected(1, at(0));
        let (mut now, mut emergency_at) = (0, None);
        for (step, it) in steps {
            now += step;
            session.handle_timeout(at(now));
            match it {
                Step::Bytes(bytes) => session.handle_bytes(&bytes, at(now)),
                Step::Message { seq, uptime_ms, what, value } => {
                    session.handle_bytes(&encoded(seq, uptime_ms, what, value), at(now));
                }
                Step::Down => session.disconnected(),
                Step::Up(number) => session.connected(number, at(now)),
                Step::Answer => session.answer(RequestOutcome::Granted, Bytes::MAX, None, at(now)),
                Step::Shrink => { session.shrink(Bytes::mib(1), Duration::MAX, at(now)); }
            }
            if let Some(next) = session.poll_timeout() {
                prop_assert!(next.as_millis() + 10_000 > now);
            }
            prop_assert!(sent(&mut session).len() <= 33);
            for event in events(&mut session) {
                match event {
                    AgentEvent::Up { restarted: true, .. } => emergency_at = None,
                    AgentEvent::Request { request, .. } => {
                        prop_assert!(request.amount <= Bytes::gib(1));
                        if request.kind == RequestKind::Emergency {
                            let since = emergency_at.map_or(u64::MAX, |at: u64| now - at);
                            prop_assert!(since >= 5_000, "{since}");
                            emergency_at = Some(now);
                        }
                    }
                    AgentEvent::Shrunk { gave, .. } => prop_assert!(gave <= Bytes::gib(1)),
                    AgentEvent::Statistics { statistics, .. } => {
                        let free = statistics.memory.free_bytes.unwrap();
                        prop_assert!(free <= Bytes::gib(1).get());
                    }
                    _ => {}
                }
            }
        }
    }
}
