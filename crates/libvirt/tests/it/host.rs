//! A libvirt's domains as guests, whatever it does.

use std::time::{Duration, Instant, SystemTime};

use ballast_backend::{Backend, GuestReading, SampleRequest};
use ballast_libvirt::{LibvirtConfig, LibvirtHost};
use ballast_model::{
    Action, Bytes, Capabilities, Generation, LinkDown, LinkState, OutcomeKind, Timestamp,
};

use crate::fake::{FakeDomain, FakeLibvirt};

const PATIENCE: Duration = Duration::from_secs(30);
const PLAIN: &str = "<domain><devices><memballoon model='virtio'/></devices></domain>";
const SET_MEMORY: u32 = 204;
const STATS_PERIOD: u32 = 308;
const ALL_STATS: u32 = 344;

fn domain(name: &'static str, id: u32) -> FakeDomain {
    FakeDomain { name, id, holds: 512, xml: PLAIN }
}

/// A host, and what it is asked.
struct TestHost {
    host: LibvirtHost,
    began: Instant,
}

impl TestHost {
    fn of(libvirt: &FakeLibvirt) -> TestHost {
        let config =
            LibvirtConfig { socket: libvirt.socket(), command_timeout: PATIENCE, guests_max: 3 };
        TestHost { host: LibvirtHost::new(config), began: Instant::now() }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    async fn sample_within(&mut self, deadline: Duration) -> Vec<GuestReading> {
        let (now, wall) = (self.now(), SystemTime::now());
        self.host.sample(SampleRequest { now, wall, deadline, only: None }).await
    }

    async fn sample(&mut self) -> Vec<GuestReading> {
        self.sample_within(PATIENCE).await
    }

    async fn act(&mut self, guest: &str, mib: u64, generation: u64) -> OutcomeKind {
        let action = Action {
            guest: guest.parse().unwrap(),
            target: Bytes::mib(mib),
            plug: None,
            generation: Generation(generation),
            deadline: self.now() + PATIENCE,
        };
        let now = self.now();
        self.host.act_all(now, &[action]).await.remove(0).kind
    }
}

fn names(readings: &[GuestReading]) -> Vec<&str> {
    readings.iter().map(|reading| reading.sample.id.as_str()).collect()
}

#[tokio::test]
async fn domains_are_found_set_and_lost() {
    let libvirt = FakeLibvirt::start(vec![domain("b", 1), domain("a", 2)]);
    let mut host = TestHost::of(&libvirt);
    let readings = host.sample().await;
    assert_eq!(names(&readings), ["a", "b"]);
    let sample = &readings[0].sample;
    assert_eq!((&sample.link, sample.boot_memory), (&LinkState::Up, Some(Bytes::gib(1))));
    assert_eq!(sample.allocation.map(|it| it.value), Some(Bytes::mib(512)));
    assert_eq!(sample.capabilities.balloon, Some(true));
    assert_eq!(sample.stats, None, "its balloon has not reported yet");

    assert_eq!(host.act("a", 300, 1).await, OutcomeKind::Accepted);
    assert_eq!(host.act("a", 400, 0).await, OutcomeKind::Superseded);
    let unknown = host.act("x", 300, 1).await;
    assert!(matches!(&unknown, OutcomeKind::Failed(why) if why.contains("gone")), "{unknown:?}");
    let readings = host.sample().await;
    assert_eq!(readings[0].sample.allocation.map(|it| it.value), Some(Bytes::mib(300)));
    let periods = libvirt.state().called.iter().filter(|it| **it == STATS_PERIOD).count();
    assert_eq!(periods, 2, "once for each");

    libvirt.state().domains.remove(0);
    assert_eq!(names(&host.sample().await), ["a"]);
    let notices = host.host.take_notices().join("\n");
    for part in ["connected to libvirt", "guest a appeared", "guest b is gone", "every second now"]
    {
        assert!(notices.contains(part), "{part} in {notices}");
    }
}

#[tokio::test]
async fn a_restarted_domain_is_another_one() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    assert_eq!(host.act("a", 300, 7).await, OutcomeKind::Accepted);
    let none = "<domain><devices><memballoon model='none'/></devices></domain>";
    libvirt.state().domains[0] = FakeDomain { xml: none, ..domain("a", 2) };
    let readings = host.sample().await;
    assert_eq!(readings[0].sample.capabilities.balloon, Some(false), "its XML is read anew");
}

#[tokio::test]
async fn names_and_numbers_of_domains_are_bounded() {
    let all = [("good", 1), ("über", 2), ("more", 3), ("also", 4), ("last", 5)];
    let libvirt = FakeLibvirt::start(all.map(|(name, id)| domain(name, id)).to_vec());
    let mut host = TestHost::of(&libvirt);
    assert_eq!(names(&host.sample().await), ["also", "good", "more"]);
    assert_eq!(host.host.refused(), 2);
    let notices = host.host.take_notices().join("\n");
    assert!(notices.contains("is not a guest name") && notices.contains("last: there are 3"));
    host.sample().await;
    let notices = host.host.take_notices().join("\n");
    assert!(!notices.contains("ignoring"), "it is said once: {notices}");
}

#[tokio::test]
async fn a_silent_libvirt_is_asked_once_and_waited_for() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    libvirt.state().silent.push(ALL_STATS);
    let asked = || libvirt.state().called.iter().filter(|it| **it == ALL_STATS).count();
    let before = asked();
    for _ in 0..3 {
        let readings = host.sample_within(Duration::from_millis(30)).await;
        let age = readings[0].sample.allocation.unwrap().age;
        assert!(age >= Duration::from_millis(30), "{age:?}");
    }
    assert_eq!(asked(), before + 1);
}

#[tokio::test]
async fn a_refused_order_fails_and_nothing_else() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    libvirt.state().failing.push(SET_MEMORY);
    let outcome = host.act("a", 300, 1).await;
    assert!(
        matches!(&outcome, OutcomeKind::Failed(why) if why.contains("error 38")),
        "{outcome:?}"
    );
    assert_eq!(host.sample().await[0].sample.link, LinkState::Up);
}

#[tokio::test]
async fn domains_outlive_their_libvirt() {
    let mut libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    libvirt.stop();
    // The first call finds the connection closed, the next nobody who listens.
    host.sample().await;
    let readings = host.sample().await;
    assert_eq!(readings[0].sample.link, LinkState::Down(LinkDown::Refused));
    assert_eq!(readings[0].sample.allocation.map(|it| it.value), Some(Bytes::mib(512)));
    let unsent = host.act("a", 300, 1).await;
    assert!(
        matches!(&unsent, OutcomeKind::Failed(why) if why.starts_with("not sent")),
        "{unsent:?}"
    );
    libvirt.start_again();
    assert_eq!(host.sample().await[0].sample.link, LinkState::Up);
    assert_eq!(host.act("a", 300, 2).await, OutcomeKind::Accepted);
}

#[tokio::test]
async fn a_domain_with_virtio_mem_is_left_alone() {
    let xml = "<domain><devices><memballoon model='virtio'/><memory model='virtio-mem'>\
               <target><size unit='MiB'>512</size></target></memory></devices></domain>";
    let libvirt = FakeLibvirt::start(vec![FakeDomain { xml, ..domain("a", 1) }]);
    let mut host = TestHost::of(&libvirt);
    let capabilities = host.sample().await[0].sample.capabilities;
    assert_eq!((capabilities.balloon, capabilities.memory_devices), (Some(false), Some(true)));
    assert!(host.host.take_notices().join("\n").contains("virtio-mem"));
    let broken = "<domain>";
    libvirt.state().domains[0] = FakeDomain { xml: broken, ..domain("a", 2) };
    assert_eq!(host.sample().await[0].sample.capabilities, Capabilities::default());
}
