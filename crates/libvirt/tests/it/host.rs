//! Domains of a fake libvirt as guests, also while it misbehaves.

use std::time::{Duration, Instant, SystemTime};

use ballast_backend::{Backend, GuestReading, SampleRequest};
use ballast_libvirt::{LibvirtConfig, LibvirtHost, ask_version};
use ballast_model::{
    Action, Bytes, Capabilities, Generation, GuestChange, LinkDown, LinkState, OutcomeKind,
    Timestamp,
};

use crate::fake::{DISK_READS, FakeDomain, FakeLibvirt};

const PATIENCE: Duration = Duration::from_secs(30);
const PLAIN: &str = "<domain><devices><memballoon model='virtio'/></devices></domain>";
const SET_MEMORY: u32 = 204;
const UPDATE_DEVICE: u32 = 174;
const SET_METADATA: u32 = 264;
const WATCH: u32 = 316;
/// Procedures of events.
const LIFECYCLE: u32 = 318;
const BALLOON_CHANGED: u32 = 331;
const METADATA_CHANGED: u32 = 379;
const STATS_PERIOD: u32 = 308;
const ALL_STATS: u32 = 344;
/// A domain's memory.
const MEMORY_STATS: u32 = 159;

fn domain(name: &'static str, id: u32) -> FakeDomain {
    FakeDomain { name, id, holds: 512, xml: PLAIN, disks: &[] }
}

/// A host, and its clock.
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

    /// A sample at a time of the test's own.
    async fn sample_at(&mut self, seconds: u64) -> Vec<GuestReading> {
        let (now, wall) = (Timestamp::from_millis(seconds * 1000), SystemTime::now());
        self.host.sample(SampleRequest { now, wall, deadline: PATIENCE, only: None }).await
    }

    async fn act(&mut self, guest: &str, mib: u64, generation: u64) -> OutcomeKind {
        self.order(guest, mib, None, generation).await
    }

    async fn plug(&mut self, guest: &str, mib: u64, plug: u64, generation: u64) -> OutcomeKind {
        self.order(guest, mib, Some(Bytes::mib(plug)), generation).await
    }

    async fn order(
        &mut self,
        guest: &str,
        mib: u64,
        plug: Option<Bytes>,
        generation: u64,
    ) -> OutcomeKind {
        let action = Action {
            guest: guest.parse().unwrap(),
            target: Bytes::mib(mib),
            plug,
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
async fn a_version_is_told_or_why_there_is_none() {
    const LIB_VERSION: u32 = 157;
    const OPEN: u32 = 1;
    let mut libvirt = FakeLibvirt::start(vec![]);
    let socket = libvirt.socket();
    let reported = ask_version(&socket, PATIENCE).await.unwrap();
    assert_eq!((reported.number, reported.to_string()), (9_010_011, "9.10.11".to_owned()));
    libvirt.state().silent.push(LIB_VERSION);
    assert_eq!(ask_version(&socket, Duration::from_millis(50)).await, Err(LinkDown::TimedOut));
    for refused in [LIB_VERSION, OPEN] {
        libvirt.state().silent.clear();
        libvirt.state().failing = vec![refused];
        let why = ask_version(&socket, PATIENCE).await.unwrap_err();
        assert!(matches!(&why, LinkDown::Closed(_)), "{why:?}");
    }
    libvirt.stop();
    assert_eq!(ask_version(&socket, PATIENCE).await, Err(LinkDown::Refused));
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
async fn a_late_answer_is_as_old_as_its_question() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    libvirt.state().late.push(ALL_STATS);
    let held_back = Duration::from_millis(50);
    host.sample_within(held_back).await;
    libvirt.release().await;
    let readings = host.sample().await;
    assert_eq!(readings[0].sample.link, LinkState::Up);
    let age = readings[0].sample.allocation.unwrap().age;
    assert!(age >= held_back, "{age:?}");
}

#[tokio::test]
async fn a_moving_domain_is_asked_itself() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    let asked = || libvirt.state().called.iter().filter(|it| **it == MEMORY_STATS).count();
    host.sample().await;
    assert_eq!(asked(), 0, "nobody ordered anything");
    let before = libvirt.state().domains[0].holds;
    libvirt.state().reported = Some(before);
    assert_eq!(host.act("a", 512, 1).await, OutcomeKind::Accepted);
    let held = |readings: &[GuestReading]| readings[0].sample.allocation.unwrap().value;
    assert_eq!(held(&host.sample().await), Bytes::mib(512));
    libvirt.state().reported = None;
    host.sample().await;
    let before = asked();
    assert_eq!(held(&host.sample().await), Bytes::mib(512));
    assert_eq!(asked(), before, "libvirt knows it by now");
}

#[tokio::test]
async fn a_busy_domain_delays_one_sample_only() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    libvirt.state().silent.push(MEMORY_STATS);
    libvirt.state().reported = Some(1024);
    assert_eq!(host.act("a", 512, 1).await, OutcomeKind::Accepted);
    host.sample_within(Duration::from_millis(30)).await;
    let hours = Duration::from_secs(7200);
    let readings = host.sample_within(hours).await;
    assert_eq!(readings[0].sample.allocation.unwrap().value, Bytes::gib(1));
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
    // The first call finds the connection closed; the next finds no listener.
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

/// What a guest has read from its disks, and in how many requests.
fn disk_sum(reading: &GuestReading) -> Option<(Bytes, u64)> {
    reading.sample.disk_reads.map(|it| (it.value.read, it.value.requests))
}

/// How often disk reads were requested.
fn disk_calls(libvirt: &FakeLibvirt) -> usize {
    libvirt.state().called.iter().filter(|it| **it == DISK_READS).count()
}

#[tokio::test]
async fn disk_reads_are_queried_every_five_seconds() {
    let disks: &'static [(u64, u64)] = &[(4096, 1), (8192, 2)];
    let domains = vec![FakeDomain { disks, ..domain("a", 1) }, domain("b", 2)];
    let libvirt = FakeLibvirt::start(domains);
    let mut host = TestHost::of(&libvirt);
    // Answers come in the order of the calls: a sample has what the one before it requested.
    host.sample_at(0).await;
    let readings = host.sample_at(1).await;
    let both = (Bytes::kib(12), 3);
    assert_eq!(disk_sum(&readings[0]), Some(both));
    assert_eq!(readings[1].sample.disk_reads, None, "it has no disk");
    host.sample_at(2).await;
    assert_eq!(disk_calls(&libvirt), 1);
    libvirt.state().domains[0].disks = &[];
    host.sample_at(20).await;
    let readings = host.sample_at(21).await;
    assert_eq!(disk_calls(&libvirt), 2);
    assert_eq!(disk_sum(&readings[0]), Some(both));
    let kept = readings[0].sample.disk_reads.unwrap();
    assert!(kept.age > Duration::from_secs(5), "{kept:?}");
}

#[tokio::test]
async fn no_sample_waits_for_disk_reads() {
    let libvirt = FakeLibvirt::start(vec![FakeDomain { disks: &[(1, 1)], ..domain("a", 1) }]);
    let mut host = TestHost::of(&libvirt);
    libvirt.state().silent.push(DISK_READS);
    let hours = Duration::from_secs(7200);
    let sample = host.sample_within(hours).await.remove(0).sample;
    assert_eq!((sample.link, sample.disk_reads), (LinkState::Up, None));
    for seconds in [100, 110, 120] {
        assert_eq!(host.sample_at(seconds).await[0].sample.link, LinkState::Up);
    }
    assert_eq!(disk_calls(&libvirt), 2, "one that hangs, and one more");
}

#[tokio::test]
async fn a_call_that_hangs_stops_no_later_ones() {
    let libvirt = FakeLibvirt::start(vec![FakeDomain { disks: &[(4096, 1)], ..domain("a", 1) }]);
    let mut host = TestHost::of(&libvirt);
    libvirt.state().late.push(DISK_READS);
    for seconds in [0, 10, 11] {
        host.sample_at(seconds).await;
    }
    assert_eq!(disk_calls(&libvirt), 1, "it may still be answered");
    libvirt.state().late.clear();
    libvirt.state().domains[0].disks = &[(8192, 2)];
    host.sample_at(20).await;
    let later = Some((Bytes::kib(8), 2));
    assert_eq!(disk_sum(&host.sample_at(21).await[0]), later);
    libvirt.release().await;
    assert_eq!(disk_sum(&host.sample_at(22).await[0]), later, "the earlier call's answer is older");
    host.sample_at(26).await;
    host.sample_at(27).await;
    assert_eq!(disk_calls(&libvirt), 3, "every five seconds again");
}

#[tokio::test]
async fn a_late_answer_says_how_long_it_took() {
    let libvirt = FakeLibvirt::start(vec![FakeDomain { disks: &[(4096, 1)], ..domain("a", 1) }]);
    let mut host = TestHost::of(&libvirt);
    libvirt.state().late.push(DISK_READS);
    host.sample().await;
    let wait = Duration::from_millis(100);
    tokio::time::sleep(wait).await;
    libvirt.release().await;
    let reads = host.sample().await[0].sample.disk_reads.unwrap().value;
    assert!(reads.took >= wait, "{reads:?}");
}

#[tokio::test]
async fn refused_disk_reads_are_reported_once() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    libvirt.state().failing.push(DISK_READS);
    for seconds in [0, 20, 40, 60] {
        assert_eq!(host.sample_at(seconds).await[0].sample.link, LinkState::Up);
    }
    assert!(disk_calls(&libvirt) >= 3, "it is tried again");
    let notices = host.host.take_notices();
    let notices: Vec<_> = notices.iter().filter(|it| it.contains("read from disks")).collect();
    assert!(matches!(&notices[..], [notice] if notice.contains("error 38")), "{notices:?}");
}

/// A domain with a virtio-mem device of 512 MiB: `requested` MiB are requested, and `current` MiB
/// are plugged in.
fn with_virtio_mem(requested: u64, current: u64) -> &'static str {
    let xml = format!(
        "<domain><devices><memballoon model='virtio'/><memory model='virtio-mem'><target>\
         <size unit='MiB'>512</size><block unit='MiB'>2</block>\
         <requested unit='MiB'>{requested}</requested><current unit='MiB'>{current}</current>\
         </target></memory></devices></domain>"
    );
    xml.leak()
}

#[tokio::test]
async fn memory_is_plugged_before_the_balloon_and_out_after() {
    // Libvirt counts what could be plugged in: the domain was booted with 512 MiB.
    let libvirt =
        FakeLibvirt::start(vec![FakeDomain { xml: with_virtio_mem(0, 0), ..domain("a", 1) }]);
    let mut host = TestHost::of(&libvirt);
    let sample = host.sample().await.remove(0).sample;
    assert_eq!(sample.boot_memory, Some(Bytes::mib(512)));
    let hotplug = sample.hotplug.unwrap();
    let mib = [hotplug.plugged, hotplug.requested, hotplug.max].map(|it| it.get() >> 20);
    assert_eq!(mib, [0, 0, 512]);

    let orders = || -> Vec<u32> {
        let called = std::mem::take(&mut libvirt.state().called);
        called.into_iter().filter(|it| [SET_MEMORY, UPDATE_DEVICE].contains(it)).collect()
    };
    assert_eq!(host.plug("a", 640, 128, 1).await, OutcomeKind::Accepted);
    assert_eq!(orders(), [UPDATE_DEVICE, SET_MEMORY]);
    assert!(libvirt.state().updated[0].contains("<requested unit='KiB'>131072</requested>"));
    assert_eq!(libvirt.state().domains[0].holds, 512, "the balloon's part");

    // Half of it is plugged in. The hypervisor's figure is without it, and libvirt's figure is old.
    libvirt.state().domains[0].xml = with_virtio_mem(128, 64);
    libvirt.state().reported = Some(512);
    let held = |readings: &[GuestReading]| readings[0].sample.allocation.unwrap().value;
    host.sample().await;
    assert_eq!(held(&host.sample().await), Bytes::mib(576));
    libvirt.state().domains[0].xml = with_virtio_mem(128, 128);
    libvirt.state().reported = Some(640);
    host.sample().await;
    assert_eq!(held(&host.sample().await), Bytes::mib(640));

    orders();
    assert_eq!(host.plug("a", 300, 0, 2).await, OutcomeKind::Accepted);
    assert_eq!(orders(), [SET_MEMORY, UPDATE_DEVICE]);
    assert_eq!(libvirt.state().domains[0].holds, 300);
    for (target, plug, expected) in [(1200, 600, "cannot plug"), (128, 128, "leave nothing")] {
        let refused = host.plug("a", target, plug, 3).await;
        let is_expected = matches!(&refused, OutcomeKind::Failed(why) if why.contains(expected));
        assert!(is_expected, "{refused:?}");
    }
    assert!(orders().is_empty());
}

#[tokio::test]
async fn what_the_xml_does_not_say_is_not_known() {
    let libvirt = FakeLibvirt::start(vec![FakeDomain { xml: "<domain>", ..domain("a", 2) }]);
    let mut host = TestHost::of(&libvirt);
    assert_eq!(host.sample().await[0].sample.capabilities, Capabilities::default());
}

#[tokio::test]
async fn settings_live_with_domains_and_mistakes_are_named() {
    let xml = "<domain><metadata><guest xmlns='urn:ballast:guest:1'><floor>256MiB</floor>\
               <shares>many</shares></guest></metadata>\
               <devices><memballoon model='virtio'/></devices></domain>";
    let libvirt = FakeLibvirt::start(vec![FakeDomain { xml, ..domain("a", 1) }, domain("b", 2)]);
    let mut host = TestHost::of(&libvirt);
    let readings = host.sample().await;
    let settings = readings[0].settings.clone().unwrap();
    let expected = GuestChange { floor: Some(Bytes::mib(256)), ..GuestChange::default() };
    assert_eq!((&*settings, &readings[1].settings), (&expected, &None));
    let notices = host.host.take_notices().join("\n");
    for part in ["domain a", "urn:ballast:guest:1", "<shares> is `many`: expected a number"] {
        assert!(notices.contains(part), "{part} in {notices}");
    }
    libvirt.state().domains[0].xml = PLAIN;
    libvirt.send_event(METADATA_CHANGED, &domain("a", 1)).await;
    host.host.wait_for_event().await;
    assert_eq!(host.sample().await[0].settings, None);
}

#[tokio::test]
async fn settings_are_written_where_the_domain_is_stored() {
    let libvirt = FakeLibvirt::start(vec![domain("a", 1)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    let settings = GuestChange {
        ceiling: Some(Bytes::gib(2)),
        shares: Some(7),
        managed: Some(true),
        ..GuestChange::default()
    };
    let guest = "a".parse().unwrap();
    for is_persistent in [false, true] {
        libvirt.state().is_persistent = is_persistent;
        host.host.persist(&guest, &settings).await.unwrap();
        let (element, stored) = libvirt.state().written.pop().unwrap();
        assert_eq!(
            element,
            "<guest><ceiling>2GiB</ceiling><shares>7</shares><managed>true</managed></guest>"
        );
        assert_eq!(stored, is_persistent);
    }
    libvirt.state().failing.push(SET_METADATA);
    let refused = host.host.persist(&guest, &settings).await.unwrap_err();
    assert!(refused.contains("error 38"), "{refused}");
    let gone = host.host.persist(&"x".parse().unwrap(), &settings).await.unwrap_err();
    assert!(gone.contains("gone"), "{gone}");
}

#[tokio::test]
async fn news_ends_a_wait_and_moves_by_order_do_not() {
    let mut libvirt = FakeLibvirt::start(vec![domain("a", 1), domain("b", 2)]);
    let mut host = TestHost::of(&libvirt);
    host.sample().await;
    let watched =
        |libvirt: &FakeLibvirt| libvirt.state().called.iter().filter(|it| **it == WATCH).count();
    assert_eq!(watched(&libvirt), 4, "once for each kind");
    libvirt.send_event(LIFECYCLE, &domain("new", 3)).await;
    host.host.wait_for_event().await;
    libvirt.send_event(BALLOON_CHANGED, &domain("b", 2)).await;
    host.host.wait_for_event().await;
    assert_eq!(host.act("b", 300, 1).await, OutcomeKind::Accepted);
    libvirt.send_event(BALLOON_CHANGED, &domain("b", 2)).await;
    let nothing = tokio::time::timeout(Duration::from_millis(50), host.host.wait_for_event()).await;
    assert!(nothing.is_err(), "what was ordered is no news");
    libvirt.stop();
    host.host.wait_for_event().await;
    libvirt.start_again();
    host.sample().await;
    assert_eq!(watched(&libvirt), 8, "a new connection asks for events, too");
}
