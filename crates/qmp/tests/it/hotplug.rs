//! Memory plugged in and pulled out of peers: what is sampled, what actions come to, and what goes wrong.

use std::time::{Duration, Instant, SystemTime};

use ballast_model::{
    Action, Bytes, Generation, GuestSample, Hotplug, HotplugKind, LinkState, OutcomeKind, Timestamp,
};
use ballast_qmp::fleet::{Fleet, FleetConfig};
use ballast_qmp::guest::MODULE;
use ballast_qmp::testing::{Peer, PeerConfig, PeerHotplug};

/// How long a state may take to be reached before a test fails; never waited for in full.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the peers boot with.
const BOOT: Bytes = Bytes::gib(1);

struct Host {
    fleet: Fleet,
    peer: Peer,
    origin: Instant,
    generation: u64,
    _folder: tempfile::TempDir,
}

impl Host {
    fn new(hotplug: PeerHotplug, has_balloon: bool) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let config = PeerConfig {
            has_balloon,
            rate_per_sec: Bytes::gib(64),
            hotplug: Some(hotplug),
            ..PeerConfig::default()
        };
        Host {
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

    /// Samples until the guest is as wanted.
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

    /// Samples until so much is plugged in and asked for.
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
async fn what_is_plugged_by_virtio_mem_is_part_of_what_the_guest_holds() {
    let mut host = Host::new(virtio_mem(), true);
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

    // Grown past its boot memory, with a part plugged ahead and held in the balloon.
    host.accept(Bytes::mib(1280), Some(Bytes::mib(512))).await;
    host.plugged(Bytes::mib(512), Bytes::mib(512)).await;
    host.sample_until(holds(Bytes::mib(1280))).await;
    assert_eq!((host.peer.target(), host.peer.allocation()), (Bytes::mib(768), Bytes::mib(1280)));

    // The balloon alone: what is plugged in stays.
    host.accept(Bytes::mib(1536), None).await;
    host.sample_until(holds(Bytes::mib(1536))).await;
    assert_eq!(host.peer.target(), BOOT);
    // It cannot give more than the boot memory has.
    host.accept(Bytes::gib(8), None).await;
    assert_eq!(host.peer.target(), BOOT);

    host.accept(Bytes::mib(900), Some(Bytes::ZERO)).await;
    host.sample_until(holds(Bytes::mib(900))).await;
    assert_eq!(host.peer.target(), Bytes::mib(900));
}

#[tokio::test]
async fn an_amount_of_no_whole_blocks_is_rounded_down_and_the_target_kept() {
    let mut host = Host::new(virtio_mem(), true);
    host.sample_until(is_up).await;
    host.accept(Bytes::mib(900), Some(Bytes::mib(301))).await;
    host.plugged(Bytes::mib(300), Bytes::mib(300)).await;
    host.sample_until(holds(Bytes::mib(900))).await;
    assert_eq!(host.peer.target(), Bytes::mib(600));
}

#[tokio::test]
async fn the_same_action_twice_changes_nothing_more() {
    for hotplug in [virtio_mem(), modules()] {
        let mut host = Host::new(hotplug, true);
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
async fn a_guest_that_keeps_its_memory_shows_what_it_was_asked_for() {
    let keeps = Bytes::mib(256);
    let mut host = Host::new(PeerHotplug { keeps, ..virtio_mem() }, true);
    host.sample_until(is_up).await;
    host.accept(Bytes::mib(1536), Some(Bytes::mib(512))).await;
    host.plugged(Bytes::mib(512), Bytes::mib(512)).await;
    host.accept(Bytes::mib(1024), Some(Bytes::ZERO)).await;
    let sample = host.plugged(keeps, Bytes::ZERO).await;
    assert_eq!(sample.allocation.unwrap().value, BOOT + keeps);
    // The balloon does not take what the guest owes otherwise.
    assert_eq!(host.peer.target(), BOOT);
}

#[tokio::test]
async fn a_guest_that_does_not_use_what_it_has_is_known_by_its_statistics() {
    let mut host = Host::new(PeerHotplug { onlines: false, ..virtio_mem() }, true);
    let total = |sample: &GuestSample| sample.stats.and_then(|stats| stats.value.total);
    let before = total(&host.sample_until(|sample| total(sample).is_some()).await);
    host.accept(Bytes::gib(2), Some(Bytes::gib(1))).await;
    let stamp = host.plugged(Bytes::gib(1), Bytes::gib(1)).await.stats.unwrap();
    let later = |sample: &GuestSample| {
        sample.stats.is_some_and(|stats| stats.age < stamp.age) && holds(Bytes::gib(2))(sample)
    };
    assert_eq!(total(&host.sample_until(later).await), before);
}

#[tokio::test]
async fn modules_come_and_go_and_their_memory_with_them() {
    let mut host = Host::new(modules(), true);
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

    // Numbers that are free again are used again.
    host.accept(Bytes::mib(1000), Some(Bytes::mib(512))).await;
    host.plugged(Bytes::mib(512), Bytes::mib(512)).await;
    assert_eq!(host.peer.module_memory_count(), 4);

    // The balloon takes from modules as well: they may be more than all that is left.
    host.accept(Bytes::mib(400), None).await;
    host.sample_until(holds(Bytes::mib(400))).await;
}

#[tokio::test]
async fn a_module_the_guest_keeps_is_seen_to_be_kept() {
    let mut host = Host::new(PeerHotplug { keeps: MODULE, ..modules() }, true);
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
async fn without_a_balloon_what_is_plugged_in_is_added() {
    for hotplug in [virtio_mem(), modules()] {
        let mut host = Host::new(hotplug, false);
        assert_eq!(host.sample_until(is_up).await.allocation.unwrap().value, BOOT);
        host.accept(Bytes::mib(1280), Some(Bytes::mib(256))).await;
        host.sample_until(holds(Bytes::mib(1280))).await;
    }
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_words_and_nothing_is_sent() {
    let mut host = Host::new(virtio_mem(), true);
    host.sample_until(is_up).await;
    host.refuse(Bytes::gib(4), Bytes::gib(3), "3GiB to be plugged in, and at most 2GiB can be")
        .await;
    let nothing = "1GiB plugged in leave nothing of 1GiB";
    host.refuse(Bytes::gib(1), Bytes::gib(1), nothing).await;
    assert_eq!(host.sample_until(is_up).await.hotplug.unwrap().requested, Bytes::ZERO);
    assert_eq!(host.peer.target(), BOOT);
}

/// Between two ticks the machine is another: the command is refused, and the balloon is not moved as
/// if it had not been.
#[tokio::test]
async fn a_device_that_vanishes_fails_the_action_and_is_seen_to_be_gone() {
    let mut host = Host::new(virtio_mem(), true);
    host.sample_until(is_up).await;
    host.peer.replace_hotplug(None);
    host.refuse(Bytes::mib(1100), Bytes::mib(512), "qom-set: DeviceNotFound").await;
    assert_eq!(host.peer.target(), BOOT);
    let sample = host.sample_until(|sample| sample.hotplug.is_none()).await;
    assert_eq!(sample.memory_max(), Some(BOOT));
    host.refuse(Bytes::mib(1100), Bytes::mib(512), "there is no device for it").await;
}

/// Memory whose module could not be plugged in does not stay behind.
#[tokio::test]
async fn a_module_that_is_refused_leaves_no_memory() {
    let mut host = Host::new(modules(), true);
    host.sample_until(is_up).await;
    host.peer.replace_hotplug(Some(PeerHotplug::new(HotplugKind::Dimm, MODULE)));
    host.refuse(Bytes::gib(1), Bytes::mib(384), "device_add: GenericError: no free slots").await;
    assert_eq!(host.peer.target(), BOOT);
    host.plugged(MODULE, MODULE).await;
    while host.peer.module_memory_count() > 1 {
        host.sample_until(is_up).await;
    }
}
