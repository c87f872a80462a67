//! Memory hotplug with peers: samples, outcomes of actions, and failures.

use std::time::{Duration, Instant, SystemTime};

use ballast_model::{
    Action, Bytes, Generation, GuestSample, Hotplug, HotplugKind, LinkState, OutcomeKind, Timestamp,
};
use ballast_qmp::fleet::{Fleet, FleetConfig};
use ballast_qmp::guest::MODULE;
use ballast_qmp_testing::{Peer, PeerConfig, PeerHotplug};

/// A test fails if a state is not reached within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Boot memory of the peers.
const BOOT: Bytes = Bytes::gib(1);

struct TestHost {
    fleet: Fleet,
    peer: Peer,
    origin: Instant,
    generation: u64,
    _folder: tempfile::TempDir,
}

impl TestHost {
    fn new(hotplug: PeerHotplug, has_balloon: bool) -> TestHost {
        let folder = tempfile::tempdir().unwrap();
        let config = PeerConfig {
            has_balloon,
            rate_per_sec: Bytes::gib(64),
            hotplug: Some(hotplug),
            ..PeerConfig::default()
        };
        TestHost {
            peer: Peer::spawn(&folder.path().join("a.sock"), config).unwrap(),
            fleet: Fleet::new(FleetConfig::new(vec![folder.path().to_owned()])),
            origin: Instant::now(),
            generation: 0,
            _folder: folder,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Samples until `wanted` is true.
    async fn sample_until(&mut self, wanted: impl Fn(&GuestSample) -> bool) -> GuestSample {
        let begun = Instant::now();
        loop {
            let now = self.now();
            let readings = self.fleet.sample(now, SystemTime::now(), PATIENCE).await;
            if let Some(reading) = readings.iter().find(|reading| wanted(&reading.sample)) {
                return reading.sample.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "not reached: {readings:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Samples until these amounts are plugged and requested.
    async fn plugged(&mut self, plugged: Bytes, requested: Bytes) -> GuestSample {
        self.sample_until(|sample| {
            sample.hotplug.is_some_and(|it| (it.plugged, it.requested) == (plugged, requested))
        })
        .await
    }

    async fn act(&mut self, target: Bytes, plug: Option<Bytes>) -> OutcomeKind {
        self.generation += 1;
        let generation = Generation(self.generation);
        let deadline = self.now() + PATIENCE;
        let action = Action { guest: "a".parse().unwrap(), target, plug, generation, deadline };
        self.fleet.act(self.now(), &action).await.kind
    }

    async fn accept(&mut self, target: Bytes, plug: Option<Bytes>) {
        assert_eq!(self.act(target, plug).await, OutcomeKind::Accepted);
    }

    async fn refuse(&mut self, target: Bytes, plug: Bytes, expected: &str) {
        let outcome = self.act(target, Some(plug)).await;
        let OutcomeKind::Failed(how) = outcome else { panic!("{outcome:?}") };
        assert!(how.contains(expected), "{how:?} does not say {expected:?}");
    }
}

fn is_up(sample: &GuestSample) -> bool {
    sample.link == LinkState::Up && sample.allocation.is_some()
}

fn holds(bytes: Bytes) -> impl Fn(&GuestSample) -> bool {
    move |sample| sample.allocation.is_some_and(|read| read.value == bytes)
}

fn virtio_mem() -> PeerHotplug {
    PeerHotplug::new(HotplugKind::VirtioMem, Bytes::gib(2))
}

fn modules() -> PeerHotplug {
    PeerHotplug::new(HotplugKind::Dimm, Bytes::mib(512))
}

#[tokio::test]
async fn memory_plugged_by_virtio_mem_counts_as_allocated() {
    let mut host = TestHost::new(virtio_mem(), true);
    let sample = host.sample_until(is_up).await;
    let hotplug = Hotplug {
        kind: HotplugKind::VirtioMem,
        plugged: Bytes::ZERO,
        requested: Bytes::ZERO,
        max: Bytes::gib(2),
        block: Bytes::mib(2),
    };
    assert_eq!(sample.hotplug, Some(hotplug));
    assert_eq!(sample.capabilities.memory_devices, Some(true));
    assert_eq!(sample.memory_max(), Some(Bytes::gib(3)));

    // Above boot memory, with a part of the plugged memory in the balloon.
    host.accept(Bytes::mib(1280), Some(Bytes::mib(512))).await;
    host.plugged(Bytes::mib(512), Bytes::mib(512)).await;
    host.sample_until(holds(Bytes::mib(1280))).await;
    assert_eq!((host.peer.target(), host.peer.allocation()), (Bytes::mib(768), Bytes::mib(1280)));

    // Without an amount to plug only the balloon moves.
    host.accept(Bytes::mib(1536), None).await;
    host.sample_until(holds(Bytes::mib(1536))).await;
    assert_eq!(host.peer.target(), BOOT);
    // The balloon cannot grow a guest beyond boot memory.
    host.accept(Bytes::gib(8), None).await;
    assert_eq!(host.peer.target(), BOOT);

    host.accept(Bytes::mib(900), Some(Bytes::ZERO)).await;
    host.sample_until(holds(Bytes::mib(900))).await;
    assert_eq!(host.peer.target(), Bytes::mib(900));
}

#[tokio::test]
async fn the_plugged_amount_is_rounded_down_the_target_kept() {
    let mut host = TestHost::new(virtio_mem(), true);
    host.sample_until(is_up).await;
    host.accept(Bytes::mib(900), Some(Bytes::mib(301))).await;
    host.plugged(Bytes::mib(300), Bytes::mib(300)).await;
    host.sample_until(holds(Bytes::mib(900))).await;
    assert_eq!(host.peer.target(), Bytes::mib(600));
}

#[tokio::test]
async fn repeating_an_action_changes_nothing() {
    for hotplug in [virtio_mem(), modules()] {
        let mut host = TestHost::new(hotplug, true);
        host.sample_until(is_up).await;
        for _ in 0..2 {
            host.accept(Bytes::mib(1200), Some(Bytes::mib(256))).await;
            host.plugged(Bytes::mib(256), Bytes::mib(256)).await;
            host.sample_until(holds(Bytes::mib(1200))).await;
        }
        for _ in 0..2 {
            host.accept(Bytes::mib(1000), Some(Bytes::mib(128))).await;
            host.plugged(Bytes::mib(128), Bytes::mib(128)).await;
            host.sample_until(holds(Bytes::mib(1000))).await;
        }
    }
}

#[tokio::test]
async fn an_uncooperative_guest_shows_requested_and_plugged_amounts() {
    let keeps = Bytes::mib(256);
    let mut host = TestHost::new(PeerHotplug { keeps, ..virtio_mem() }, true);
    host.sample_until(is_up).await;
    host.accept(Bytes::mib(1536), Some(Bytes::mib(512))).await;
    host.plugged(Bytes::mib(512), Bytes::mib(512)).await;
    host.accept(Bytes::mib(1024), Some(Bytes::ZERO)).await;
    let sample = host.plugged(keeps, Bytes::ZERO).await;
    assert_eq!(sample.allocation.unwrap().value, BOOT + keeps);
    // The balloon does not take the memory that the guest fails to unplug.
    assert_eq!(host.peer.target(), BOOT);
}

#[tokio::test]
async fn statistics_show_that_plugged_memory_is_offline() {
    let mut host = TestHost::new(PeerHotplug { onlines: false, ..virtio_mem() }, true);
    let total = |sample: &GuestSample| sample.stats.and_then(|stats| stats.value.total);
    let before = total(&host.sample_until(|sample| total(sample).is_some()).await);
    host.accept(Bytes::gib(2), Some(Bytes::gib(1))).await;
    // Moments of statistics are whole seconds.
    let made = |sample: &GuestSample| sample.stats.map(|stats| SystemTime::now() - stats.age);
    let first = made(&host.plugged(Bytes::gib(1), Bytes::gib(1)).await).unwrap();
    let later = |sample: &GuestSample| {
        let is_later = |at: SystemTime| at > first + Duration::from_millis(500);
        made(sample).is_some_and(is_later) && holds(Bytes::gib(2))(sample)
    };
    assert_eq!(total(&host.sample_until(later).await), before);
}

#[tokio::test]
async fn removing_a_module_removes_its_memory_object() {
    let mut host = TestHost::new(modules(), true);
    let sample = host.sample_until(is_up).await;
    let hotplug = sample.hotplug.unwrap();
    assert_eq!((hotplug.kind, hotplug.block), (HotplugKind::Dimm, MODULE));
    assert_eq!((hotplug.plugged, hotplug.max), (Bytes::ZERO, Bytes::mib(512)));
    assert_eq!(sample.capabilities.memory_devices, Some(false));

    host.accept(Bytes::mib(1280), Some(Bytes::mib(400))).await;
    let sample = host.plugged(Bytes::mib(384), Bytes::mib(384)).await;
    assert_eq!(sample.hotplug.unwrap().max, Bytes::mib(512));
    host.sample_until(holds(Bytes::mib(1280))).await;
    assert_eq!(host.peer.target(), Bytes::mib(896));
    assert_eq!(host.peer.module_memory_count(), 3);

    host.accept(Bytes::mib(1000), Some(MODULE)).await;
    host.plugged(MODULE, MODULE).await;
    host.sample_until(holds(Bytes::mib(1000))).await;
    assert_eq!(host.peer.target(), Bytes::mib(872));
    while host.peer.module_memory_count() > 1 {
        host.sample_until(is_up).await;
    }

    // Free numbers are reused.
    host.accept(Bytes::mib(1000), Some(Bytes::mib(512))).await;
    host.plugged(Bytes::mib(512), Bytes::mib(512)).await;
    assert_eq!(host.peer.module_memory_count(), 4);

    // The balloon takes from modules too: the target may be less than they have.
    host.accept(Bytes::mib(400), None).await;
    host.sample_until(holds(Bytes::mib(400))).await;
}

#[tokio::test]
async fn a_module_the_guest_keeps_counts_as_plugged() {
    let mut host = TestHost::new(PeerHotplug { keeps: MODULE, ..modules() }, true);
    host.sample_until(is_up).await;
    host.accept(Bytes::mib(1280), Some(Bytes::mib(256))).await;
    host.plugged(Bytes::mib(256), Bytes::mib(256)).await;
    for _ in 0..2 {
        host.accept(Bytes::mib(1024), Some(Bytes::ZERO)).await;
        host.plugged(MODULE, MODULE).await;
        host.sample_until(holds(BOOT + MODULE)).await;
    }
    assert_eq!(host.peer.module_memory_count(), 1);
}

#[tokio::test]
async fn without_a_balloon_plugged_memory_adds_to_the_allocation() {
    for hotplug in [virtio_mem(), modules()] {
        let mut host = TestHost::new(hotplug, false);
        assert_eq!(host.sample_until(is_up).await.allocation.unwrap().value, BOOT);
        host.accept(Bytes::mib(1280), Some(Bytes::mib(256))).await;
        host.sample_until(holds(Bytes::mib(1280))).await;
    }
}

#[tokio::test]
async fn an_impossible_action_is_not_sent() {
    let mut host = TestHost::new(virtio_mem(), true);
    host.sample_until(is_up).await;
    host.refuse(Bytes::gib(4), Bytes::gib(3), "cannot plug 3GiB: expected at most 2GiB").await;
    let nothing = "1GiB of plugged memory leave nothing of 1GiB for boot memory";
    host.refuse(Bytes::gib(1), Bytes::gib(1), nothing).await;
    assert_eq!(host.sample_until(is_up).await.hotplug.unwrap().requested, Bytes::ZERO);
    assert_eq!(host.peer.target(), BOOT);
}

/// The device disappears between two ticks: QEMU refuses to plug, and the balloon does not move.
#[tokio::test]
async fn an_action_on_a_vanished_device_fails() {
    let mut host = TestHost::new(virtio_mem(), true);
    host.sample_until(is_up).await;
    host.peer.replace_hotplug(None);
    host.refuse(Bytes::mib(1100), Bytes::mib(512), "qom-set: DeviceNotFound").await;
    assert_eq!(host.peer.target(), BOOT);
    let sample = host.sample_until(|sample| sample.hotplug.is_none()).await;
    assert_eq!(sample.memory_max(), Some(BOOT));
    host.refuse(Bytes::mib(1100), Bytes::mib(512), "the guest has no device for it").await;
}

#[tokio::test]
async fn the_memory_object_of_a_refused_module_is_removed() {
    let mut host = TestHost::new(modules(), true);
    host.sample_until(is_up).await;
    host.peer.replace_hotplug(Some(PeerHotplug::new(HotplugKind::Dimm, MODULE)));
    host.refuse(Bytes::gib(1), Bytes::mib(384), "device_add: GenericError: no free slots").await;
    assert_eq!(host.peer.target(), BOOT);
    host.plugged(MODULE, MODULE).await;
    while host.peer.module_memory_count() > 1 {
        host.sample_until(is_up).await;
    }
}
