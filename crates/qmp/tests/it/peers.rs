//! A fleet with well-behaved and misbehaving peers.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use ballast_backend::GuestReading;
use ballast_model::{
    Action, Bytes, Generation, GuestId, LinkDown, LinkState, OutcomeKind, RunState, Timestamp,
};
use ballast_qmp::client::{CallError, QmpClient};
use ballast_qmp::command::QmpCommand;
use ballast_qmp::fleet::{Fleet, FleetConfig, Notice};
use ballast_qmp_testing::{Misbehaviour, Peer, PeerConfig};

/// A test fails if a state is not reached within this time.
const PATIENCE: Duration = Duration::from_secs(30);

struct TestHost {
    folder: tempfile::TempDir,
    fleet: Fleet,
    origin: Instant,
}

impl TestHost {
    fn new() -> TestHost {
        TestHost::for_guests(usize::MAX)
    }

    fn for_guests(guests_max: usize) -> TestHost {
        let folder = tempfile::tempdir().unwrap();
        let mut config = FleetConfig::new(vec![folder.path().to_owned()]);
        config.guests_max = guests_max;
        config.command_timeout = Duration::from_millis(400);
        TestHost { folder, fleet: Fleet::new(config), origin: Instant::now() }
    }

    fn spawn(&self, name: &str, config: PeerConfig) -> Peer {
        Peer::spawn(&self.folder.path().join(format!("{name}.sock")), config).unwrap()
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    async fn sample(&mut self, deadline: Duration) -> Vec<GuestReading> {
        let now = self.now();
        self.fleet.sample(now, SystemTime::now(), deadline).await
    }

    async fn sample_until(
        &mut self,
        name: &str,
        wanted: impl Fn(&GuestReading) -> bool,
    ) -> GuestReading {
        let begun = Instant::now();
        loop {
            let readings = self.sample(Duration::from_millis(200)).await;
            let one = readings.iter().find(|reading| reading.sample.id.as_str() == name);
            if let Some(one) = one.filter(|one| wanted(one)) {
                return one.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "not reached: {one:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn keep(&mut self, name: &str, target: Bytes) -> OutcomeKind {
        let action = Action {
            guest: name.parse().unwrap(),
            target,
            plug: None,
            generation: Generation(1),
            deadline: self.now() + PATIENCE,
        };
        self.fleet.act(self.now(), &action).await.kind
    }
}

fn is_up(reading: &GuestReading) -> bool {
    reading.sample.link == LinkState::Up
}

#[tokio::test]
async fn the_first_sample_has_every_guest_statistics_follow() {
    let mut host = TestHost::new();
    let peers: Vec<Peer> =
        (0..20).map(|n| host.spawn(&format!("g{n:02}"), PeerConfig::default())).collect();
    let readings = host.sample(PATIENCE).await;
    assert_eq!(readings.len(), peers.len());
    for reading in &readings {
        assert_eq!(reading.sample.link, LinkState::Up);
        assert_eq!(reading.sample.run_state, Some(RunState::Running));
        assert_eq!(reading.sample.boot_memory, Some(Bytes::gib(1)));
        assert_eq!(reading.pid, Some(std::process::id()));
        let socket = host.folder.path().join(format!("{}.sock", reading.sample.id));
        assert_eq!(reading.listens_at.as_deref(), Some(socket.as_path()));
    }
    let sorted = readings.windows(2).all(|two| two[0].sample.id < two[1].sample.id);
    assert!(sorted);
    let reading = host.sample_until("g00", |reading| reading.sample.stats.is_some()).await;
    let stats = reading.sample.stats.unwrap();
    assert_eq!(stats.value.total, Some(Bytes::mib(984)));
    assert_eq!(stats.value.available, Some(Bytes::mib(784)));
}

#[tokio::test]
async fn readings_of_guests_not_sampled_age() {
    let mut host = TestHost::new();
    let _peers = ["a", "b"].map(|name| host.spawn(name, PeerConfig::default()));
    host.sample_until("b", is_up).await;
    host.sample(PATIENCE).await;
    let only_a = BTreeSet::from(["a".parse().unwrap()]);
    let (now, wall) = (host.now() + Duration::from_millis(700), SystemTime::now());
    let readings = host.fleet.sample_only(now, wall, PATIENCE, &only_a).await;
    let ages: Vec<_> = readings.iter().map(|read| read.sample.allocation.unwrap().age).collect();
    assert_eq!(readings.len(), 2);
    assert!(
        ages[0] < Duration::from_millis(700) && ages[1] >= Duration::from_millis(700),
        "{ages:?}"
    );
    assert_eq!(readings[0].sample.allocation.unwrap().value, Bytes::gib(1));
    assert_eq!(readings[1].sample.allocation.unwrap().value, Bytes::gib(1));
}

#[tokio::test]
async fn a_guest_follows_its_target() {
    let mut host = TestHost::new();
    let config = PeerConfig { rate_per_sec: Bytes::gib(4), ..PeerConfig::default() };
    let peer = host.spawn("a", config);
    host.sample_until("a", is_up).await;
    assert_eq!(host.keep("a", Bytes::mib(512)).await, OutcomeKind::Accepted);
    assert_eq!(peer.target(), Bytes::mib(512));
    let holds = |reading: &GuestReading| reading.sample.allocation.map(|read| read.value);
    host.sample_until("a", |reading| holds(reading) == Some(Bytes::mib(512))).await;
    peer.send_event("GUEST_PANICKED");
    host.sample_until("a", |read| read.sample.run_state == Some(RunState::Panicked)).await;
}

#[tokio::test]
async fn every_misbehaviour_has_its_link_state_and_recovers() {
    let protocol = |link: &LinkState| matches!(link, LinkState::Down(LinkDown::Protocol(_)));
    let closed = |link: &LinkState| matches!(link, LinkState::Down(LinkDown::Closed(_)));
    let late = |link: &LinkState| *link == LinkState::Down(LinkDown::TimedOut);
    type Expected<'a> = &'a dyn Fn(&LinkState) -> bool;
    let table: [(Misbehaviour, Expected<'_>); 7] = [
        (Misbehaviour::Garbage, &protocol),
        (Misbehaviour::NotUtf8, &protocol),
        (Misbehaviour::Deep, &protocol),
        (Misbehaviour::Oversize, &protocol),
        (Misbehaviour::WrongIds, &protocol),
        (Misbehaviour::ClosesMidMessage, &closed),
        (Misbehaviour::Silent, &late),
    ];
    for (misbehaviour, expected) in table {
        let mut host = TestHost::new();
        let peer = host.spawn("a", PeerConfig::default());
        let good = host.sample_until("a", is_up).await;
        peer.misbehave(misbehaviour);
        let bad = host.sample_until("a", |reading| expected(&reading.sample.link)).await;
        let (before, after) = (good.sample.allocation.unwrap(), bad.sample.allocation.unwrap());
        assert_eq!(after.value, before.value, "{misbehaviour:?}");
        // Half of a tick's replies may contain one complete reply, which counts.
        let may_be_fresh = misbehaviour == Misbehaviour::ClosesMidMessage;
        assert!(may_be_fresh || after.age >= before.age, "{misbehaviour:?}: {before:?} {after:?}");
        let outcome = host.keep("a", Bytes::mib(512)).await;
        assert!(matches!(outcome, OutcomeKind::Failed(_)), "{misbehaviour:?}: {outcome}");
        peer.misbehave(Misbehaviour::None);
        // A silent connection is dropped only much later; a closed one is replaced at once.
        if misbehaviour != Misbehaviour::Silent {
            host.sample_until("a", is_up).await;
        }
    }
}

#[tokio::test]
async fn missing_greeting_and_missing_balloon_are_reported() {
    let mut host = TestHost::new();
    let silent = Misbehaviour::NoGreeting;
    let _taken = host.spawn("taken", PeerConfig { misbehaviour: silent, ..PeerConfig::default() });
    let _bare = host.spawn("bare", PeerConfig { has_balloon: false, ..PeerConfig::default() });
    let taken = LinkState::Down(LinkDown::Taken);
    let taken = host.sample_until("taken", |reading| reading.sample.link == taken).await;
    assert!(taken.pid.is_some() && !taken.has_answered, "anybody can listen");
    let bare = host.sample_until("bare", is_up).await;
    assert!(bare.has_answered);
    assert_eq!(bare.sample.capabilities.balloon, Some(false));
    assert_eq!(bare.sample.allocation.map(|read| read.value), Some(Bytes::gib(1)));
}

#[tokio::test]
async fn a_client_distinguishes_taken_garbage_and_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let peer = Peer::spawn(&path, PeerConfig::default()).unwrap();
    let mut first = QmpClient::connect(&path, PATIENCE).await.unwrap();
    let second = QmpClient::connect(&path, Duration::from_millis(50)).await;
    assert!(matches!(second, Err(LinkDown::Taken)), "{second:?}");
    let balloon = first.call(&QmpCommand::QueryBalloon).await;
    assert_eq!(balloon, Ok(r#"{"actual":1073741824}"#.to_owned()));
    let refused = first.call(&QmpCommand::QomList { path: "/nowhere" }).await;
    assert!(matches!(refused, Err(CallError::Refused { .. })), "{refused:?}");
    peer.misbehave(Misbehaviour::Garbage);
    let garbage = first.call(&QmpCommand::QueryStatus).await;
    assert!(matches!(garbage, Err(CallError::Link(LinkDown::Protocol(_)))), "{garbage:?}");
}

#[tokio::test]
async fn a_slow_guest_does_not_delay_others() {
    let mut host = TestHost::new();
    let _quick = host.spawn("quick", PeerConfig::default());
    let slow = host.spawn("slow", PeerConfig::default());
    host.sample_until("quick", is_up).await;
    host.sample_until("slow", is_up).await;
    slow.misbehave(Misbehaviour::Slow(Duration::from_millis(300)));
    let deadline = Duration::from_millis(50);
    let (mut quick_ages, mut slow_ages) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..12 {
        let readings = host.sample(deadline).await;
        let age = |at: usize| readings[at].sample.allocation.unwrap().age;
        assert_eq!(readings[0].sample.link, LinkState::Up);
        quick_ages += age(0);
        slow_ages += age(1);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(quick_ages * 2 < slow_ages, "{quick_ages:?} and {slow_ages:?}");
}

#[tokio::test]
async fn frozen_statistics_age() {
    let mut host = TestHost::new();
    let peer = host.spawn("a", PeerConfig::default());
    host.sample_until("a", |reading| reading.sample.stats.is_some()).await;
    peer.misbehave(Misbehaviour::FrozenStatistics);
    let old = Duration::from_millis(1500);
    let is_old = |reading: &GuestReading| reading.sample.stats.unwrap().age > old;
    let reading = host.sample_until("a", is_old).await;
    assert!(reading.sample.allocation.unwrap().age < old, "only the statistics are old");
}

#[tokio::test]
async fn guests_come_and_go_and_problems_are_reported_once() {
    let mut host = TestHost::new();
    let folder = host.folder.path().to_owned();
    let _bad = host.spawn("-bad", PeerConfig::default());
    std::fs::write(folder.join("file.sock"), "").unwrap();
    std::fs::write(folder.join("a.pid"), "").unwrap();
    let peer = host.spawn("a", PeerConfig::default());
    host.sample_until("a", is_up).await;
    let notices = host.fleet.take_notices();
    let count = |wanted: fn(&Notice) -> bool| notices.iter().filter(|one| wanted(one)).count();
    assert_eq!(notices.len(), 3, "{notices:?}");
    assert_eq!(count(|one| matches!(one, Notice::InvalidName { .. })), 1);
    assert_eq!(count(|one| matches!(one, Notice::NotASocket { .. })), 1);
    drop(peer);
    while !host.fleet.is_empty() {
        host.sample(Duration::from_millis(50)).await;
    }
    let gone = Notice::Gone { guest: "a".parse().unwrap() };
    assert_eq!(host.fleet.take_notices(), [gone]);
    let _again = host.spawn("a", PeerConfig::default());
    host.sample_until("a", is_up).await;
}

#[tokio::test]
async fn unreadable_folders_and_duplicate_sockets_are_reported_once() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let missing = Path::new("/nonexistent/ballast").to_owned();
    let folders = vec![first.path().to_owned(), second.path().to_owned(), missing.clone()];
    let mut fleet = Fleet::new(FleetConfig::new(folders));
    let _used = Peer::spawn(&first.path().join("a.sock"), PeerConfig::default()).unwrap();
    let _other = Peer::spawn(&second.path().join("a.sock"), PeerConfig::default()).unwrap();
    for _ in 0..3 {
        fleet.sample(Timestamp::ZERO, SystemTime::now(), PATIENCE).await;
    }
    let notices = fleet.take_notices();
    let guest: GuestId = "a".parse().unwrap();
    assert!(
        matches!(&notices[..], [
            Notice::FolderUnreadable { folder, .. },
            Notice::Appeared { path, .. },
            Notice::Duplicate { guest: double, .. },
        ] if *folder == missing && path.starts_with(first.path()) && *double == guest),
        "{notices:?}"
    );
}

#[tokio::test]
async fn guests_beyond_the_limit_are_refused_with_a_note() {
    let mut host = TestHost::for_guests(2);
    let mut peers: Vec<Peer> =
        ["a", "b", "c", "d"].map(|name| host.spawn(name, PeerConfig::default())).into();
    let readings = host.sample(PATIENCE).await;
    assert_eq!((readings.len(), host.fleet.refused()), (2, 2));
    let notices: Vec<String> = host.fleet.take_notices().iter().map(ToString::to_string).collect();
    let refused = notices.iter().filter(|text| text.contains("files for 2 guests at most"));
    assert_eq!(refused.count(), 2, "{notices:?}");
    host.sample(PATIENCE).await;
    assert_eq!(host.fleet.take_notices(), [], "it is said once");
    // A refused guest takes the place of one that is gone.
    let first = readings[0].sample.id.clone();
    let place = ["a", "b", "c", "d"].iter().position(|name| *name == first.as_str()).unwrap();
    drop(peers.remove(place));
    let begun = Instant::now();
    while host.fleet.refused() > 1 {
        assert!(begun.elapsed() < PATIENCE);
        host.sample(Duration::from_millis(200)).await;
    }
    assert_eq!(host.fleet.len(), 2);
}

#[tokio::test]
async fn orders_to_many_silent_guests_end_together() {
    const GUESTS: usize = 20;
    let mut host = TestHost::new();
    let names: Vec<String> = (0..GUESTS).map(|n| format!("guest-{n}")).collect();
    let peers: Vec<Peer> =
        names.iter().map(|name| host.spawn(name, PeerConfig::default())).collect();
    for name in &names {
        host.sample_until(name, |reading| reading.sample.allocation.is_some()).await;
    }
    peers.iter().for_each(|peer| peer.misbehave(Misbehaviour::Silent));
    let action = |name: &String| Action {
        guest: name.parse().unwrap(),
        target: Bytes::mib(512),
        plug: None,
        generation: Generation(1),
        deadline: host.now() + PATIENCE,
    };
    let actions: Vec<Action> = names.iter().map(action).collect();
    let (now, begun) = (host.now(), Instant::now());
    let outcomes = host.fleet.act_all(now, &actions).await;
    // Each of them alone takes 400 ms.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let failed = outcomes.iter().filter(|it| matches!(it.kind, OutcomeKind::Failed(_)));
    assert_eq!(failed.count(), GUESTS, "{outcomes:?}");
}
