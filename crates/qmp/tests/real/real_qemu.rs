//! A fleet with real QEMU processes. They need no guest system: a machine that never runs (`-S`)
//! has a balloon device and answers every command.

use std::time::{Duration, Instant, SystemTime};

use crate::qemu::Qemu;
use ballast_backend::GuestReading;
use ballast_model::{
    Action, Bytes, DiskReads, Generation, GuestId, HotplugKind, LinkDown, LinkState, OutcomeKind,
    RunState, Timestamp,
};
use ballast_qmp::client::{CallError, QmpClient};
use ballast_qmp::command::QmpCommand;
use ballast_qmp::fleet::{Fleet, FleetConfig, Notice};
use tempfile::TempDir;

/// A test fails if a state is not reached within this time.
const PATIENCE: Duration = Duration::from_secs(30);

const BALLOON: &[&str] = &["-device", "virtio-balloon-pci,id=balloon0,free-page-reporting=on"];

/// A fleet with one folder, and its clock.
struct TestHost {
    folder: TempDir,
    fleet: Fleet,
    origin: Instant,
}

impl TestHost {
    fn new() -> TestHost {
        let folder = tempfile::tempdir().unwrap();
        let mut config = FleetConfig::new(vec![folder.path().to_owned()]);
        config.command_timeout = Duration::from_millis(500);
        TestHost { folder, fleet: Fleet::new(config), origin: Instant::now() }
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Qemu {
        Qemu::start(&self.folder.path().join(format!("{name}.sock")), arguments)
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    async fn sample(&mut self) -> Vec<GuestReading> {
        let now = self.now();
        self.fleet.sample(now, SystemTime::now(), Duration::from_millis(300)).await
    }

    /// Samples until `wanted` is true for the only guest.
    async fn sample_until(&mut self, wanted: impl Fn(&GuestReading) -> bool) -> GuestReading {
        let begun = Instant::now();
        loop {
            let readings = self.sample().await;
            if let [one] = &readings[..]
                && wanted(one)
            {
                return one.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "not reached: {readings:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn action(&self, target: Bytes, generation: u64) -> Action {
        Action {
            guest: guest(),
            target,
            plug: None,
            generation: Generation(generation),
            deadline: self.now() + PATIENCE,
        }
    }
}

fn guest() -> GuestId {
    "a".parse().unwrap()
}

fn is_up(reading: &GuestReading) -> bool {
    reading.sample.link == LinkState::Up && reading.sample.allocation.is_some()
}

#[tokio::test]
async fn a_guest_is_found_probed_and_sampled() {
    let mut host = TestHost::new();
    let qemu = host.start("a", BALLOON);
    let GuestReading { sample, pid, .. } = host.sample_until(is_up).await;
    assert_eq!(pid, Some(qemu.pid()));
    assert_eq!(sample.boot_memory, Some(Bytes::mib(256)));
    assert_eq!(sample.allocation.map(|read| read.value), Some(Bytes::mib(256)));
    assert_eq!(sample.run_state, Some(RunState::Other("prelaunch".to_owned())));
    assert_eq!(sample.stats, None, "nothing runs that could send statistics");
    let can = sample.capabilities;
    assert_eq!(can.balloon, Some(true));
    assert_eq!(can.statistics, Some(true));
    assert_eq!(can.free_page_reporting, Some(true));
    assert_eq!(can.deflate_on_oom, Some(false));
    assert_eq!(can.memory_devices, Some(false));
    assert_eq!(can.discard_inhibited, Some(false));
}

/// Without a guest system nothing is read: this tests that QEMU's own replies can be.
#[tokio::test]
async fn the_counters_of_disks_are_read() {
    let (none, one): (&[&str], &[&str]) = (&[], &["-drive", "driver=null-co,if=virtio"]);
    for disks in [none, one] {
        let mut host = TestHost::new();
        let _qemu = host.start("a", disks);
        let reading = host.sample_until(|reading| reading.sample.disk_reads.is_some()).await;
        let reads = reading.sample.disk_reads.unwrap().value;
        assert_eq!(DiskReads { took: Duration::ZERO, ..reads }, DiskReads::default());
    }
}

/// QEMU's options for Ballast's socket in a guide for operators: the quoted text on its lines.
fn options_in(guide: &str) -> Vec<String> {
    let quoted = guide.lines().flat_map(|line| line.split(['\'', '"']));
    let options = quoted.filter_map(|text| {
        text.find("-qmp unix:").or(text.find("-chardev socket")).map(|at| &text[at..])
    });
    options.map(|text| text.replace("%i", "web-1")).collect()
}

#[tokio::test]
async fn sockets_that_the_guides_ask_for_are_found() {
    for (guide, count) in [
        (include_str!("../../../../docs/proxmox.md"), 1),
        (include_str!("../../../../docs/incus.md"), 1),
        (include_str!("../../../../docs/vmspawn.md"), 2),
    ] {
        let found = options_in(guide);
        assert_eq!(found.len(), count, "{found:?}");
        for options in found {
            let mut host = TestHost::new();
            let folder = host.folder.path().display().to_string();
            let options = options.replace("/run/ballast/qmp", &folder);
            let options: Vec<&str> = options.split(' ').chain(BALLOON.iter().copied()).collect();
            // The program that starts QEMU has its own monitor, outside of Ballast's folders.
            let own = tempfile::tempdir().unwrap();
            let qemu = Qemu::start(&own.path().join("own.qmp"), &options);
            let reading = host.sample_until(is_up).await;
            assert_eq!((reading.sample.id.as_str(), reading.pid), ("web-1", Some(qemu.pid())));
        }
    }
}

#[tokio::test]
async fn without_a_balloon_all_memory_is_allocated() {
    let mut host = TestHost::new();
    let _qemu = host.start("a", &[]);
    let sample = host.sample_until(is_up).await.sample;
    assert_eq!(sample.capabilities.balloon, Some(false));
    assert_eq!(sample.capabilities.statistics, Some(false));
    assert_eq!(sample.allocation.map(|read| read.value), Some(Bytes::mib(256)));
    let outcome = host.fleet.act(host.now(), &host.action(Bytes::mib(128), 1)).await;
    let OutcomeKind::Failed(how) = outcome.kind else { panic!("{outcome:?}") };
    assert!(how.contains("DeviceNotActive"), "{how}");
}

#[tokio::test]
async fn older_and_late_actions_are_not_sent() {
    let mut host = TestHost::new();
    let _qemu = host.start("a", BALLOON);
    host.sample_until(is_up).await;
    let late = Action { deadline: Timestamp::ZERO, ..host.action(Bytes::mib(128), 9) };
    let actions = [
        host.action(Bytes::mib(200), 5),
        host.action(Bytes::mib(200), 5),
        host.action(Bytes::mib(128), 4),
        late,
        host.action(Bytes::ZERO, 6),
    ];
    let outcomes = host.fleet.act_all(host.now(), &actions).await;
    let kinds: Vec<_> = outcomes.iter().map(|outcome| &outcome.kind).collect();
    assert!(
        matches!(
            kinds[..],
            [
                OutcomeKind::Accepted,
                OutcomeKind::Accepted,
                OutcomeKind::Superseded,
                OutcomeKind::Expired,
                OutcomeKind::Failed(_)
            ]
        ),
        "{kinds:?}"
    );
}

/// Without a guest system no memory moves: this tests what QEMU itself accepts, refuses and counts.
#[tokio::test]
async fn modules_are_limited_by_the_slots_that_others_leave() {
    let mut host = TestHost::new();
    let theirs = "memory-backend-ram,id=theirs,size=128M";
    let slots = ["-m", "256,maxmem=1G,slots=3", "-object", theirs];
    let _qemu = host.start("a", &[BALLOON, &slots, &["-device", "pc-dimm,memdev=theirs"]].concat());
    let sample = host.sample_until(is_up).await.sample;
    assert_eq!(
        sample.boot_memory,
        Some(Bytes::mib(256 + 128)),
        "a module of others counts as boot memory"
    );
    assert_eq!(sample.allocation.map(|read| read.value), Some(Bytes::mib(384)));
    let hotplug = sample.hotplug.unwrap();
    assert_eq!((hotplug.kind, hotplug.plugged), (HotplugKind::Dimm, Bytes::ZERO));
    assert_eq!(hotplug.max, Bytes::mib(256));

    let action = |host: &TestHost, target, plug, generation| Action {
        plug: Some(Bytes::mib(plug)),
        ..host.action(Bytes::mib(target), generation)
    };
    let outcome = host.fleet.act(host.now(), &action(&host, 640, 256, 1)).await;
    assert_eq!(outcome.kind, OutcomeKind::Accepted);
    let full = |read: &GuestReading| read.sample.allocation.unwrap().value == Bytes::mib(640);
    let hotplug = host.sample_until(full).await.sample.hotplug.unwrap();
    assert_eq!((hotplug.plugged, hotplug.requested), (Bytes::mib(256), Bytes::mib(256)));
    assert_eq!(hotplug.max, Bytes::mib(256));
    // No guest system releases the module: the request stays pending.
    for generation in [2, 3] {
        let outcome = host.fleet.act(host.now(), &action(&host, 512, 128, generation)).await;
        assert_eq!(outcome.kind, OutcomeKind::Accepted);
        let hotplug = host.sample_until(is_up).await.sample.hotplug.unwrap();
        assert_eq!((hotplug.plugged, hotplug.requested), (Bytes::mib(256), Bytes::mib(128)));
    }
}

#[tokio::test]
async fn a_nameless_virtio_mem_device_is_found_and_set() {
    let mut host = TestHost::new();
    let memory = "memory-backend-memfd,id=vm0,size=512M";
    let device = "virtio-mem-pci,memdev=vm0,requested-size=0,block-size=2M";
    let arguments = ["-m", "256,maxmem=1G", "-object", memory, "-device", device];
    let _qemu = host.start("a", &[BALLOON, &arguments].concat());
    let hotplug = host.sample_until(is_up).await.sample.hotplug.unwrap();
    assert_eq!(hotplug.kind, HotplugKind::VirtioMem);
    assert_eq!((hotplug.max, hotplug.block), (Bytes::mib(512), Bytes::mib(2)));
    let plug = Some(Bytes::mib(101));
    let action = Action { plug, ..host.action(Bytes::mib(300), 1) };
    let outcome = host.fleet.act(host.now(), &action).await;
    assert_eq!(outcome.kind, OutcomeKind::Accepted);
    let asked = |read: &GuestReading| read.sample.hotplug.unwrap().requested == Bytes::mib(100);
    let sample = host.sample_until(asked).await.sample;
    assert_eq!(sample.hotplug.unwrap().plugged, Bytes::ZERO, "no guest system accepts it");
    assert_eq!(sample.allocation.map(|read| read.value), Some(Bytes::mib(256)));
}

#[tokio::test]
async fn a_socket_is_taken_while_another_client_holds_it() {
    let mut host = TestHost::new();
    let qemu = host.start("a", BALLOON);
    let other = QmpClient::connect(qemu.socket(), PATIENCE).await.unwrap();
    let taken = LinkState::Down(LinkDown::Taken);
    host.sample_until(|reading| reading.sample.link == taken).await;
    drop(other);
    host.sample_until(is_up).await;
}

#[tokio::test]
async fn a_full_queue_is_taken_too() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = Qemu::start(&folder.path().join("a.sock"), &[]);
    let _first = QmpClient::connect(qemu.socket(), PATIENCE).await.unwrap();
    let mut queued = Vec::new();
    for _ in 0..100 {
        match ballast_qmp::client::connect(qemu.socket()).await {
            Ok(stream) => queued.push(stream),
            Err(why) => return assert_eq!(why, LinkDown::Taken),
        }
    }
    panic!("the queue took {} connections", queued.len());
}

#[tokio::test]
async fn a_kill_during_a_command_fails_it() {
    let mut host = TestHost::new();
    let mut qemu = host.start("a", BALLOON);
    host.sample_until(is_up).await;
    qemu.stop();
    let (now, action) = (host.now(), host.action(Bytes::mib(128), 1));
    let killed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        qemu.kill();
    };
    let (outcome, ()) = tokio::join!(host.fleet.act(now, &action), killed);
    assert!(matches!(outcome.kind, OutcomeKind::Failed(_)), "{outcome:?}");
    host.sample_until(|reading| matches!(reading.sample.link, LinkState::Down(_))).await;

    let again = host.start("a", BALLOON);
    let reading = host.sample_until(is_up).await;
    assert_eq!(reading.pid, Some(again.pid()));
}

#[tokio::test]
async fn a_hanging_guest_times_out_and_recovers() {
    let mut host = TestHost::new();
    let qemu = host.start("a", BALLOON);
    host.sample_until(is_up).await;
    qemu.stop();
    let timed_out = LinkState::Down(LinkDown::TimedOut);
    let late = host.sample_until(|reading| reading.sample.link == timed_out).await;
    let age = late.sample.allocation.expect("what was read is kept").age;
    assert!(age >= Duration::from_millis(500), "{age:?}");
    let outcome = host.fleet.act(host.now(), &host.action(Bytes::mib(128), 1)).await;
    assert!(matches!(outcome.kind, OutcomeKind::Failed(_)), "{outcome:?}");
    qemu.resume();
    host.sample_until(is_up).await;
}

#[tokio::test]
async fn a_guest_is_gone_once_it_removes_its_socket() {
    let mut host = TestHost::new();
    let mut qemu = host.start("a", BALLOON);
    host.sample_until(is_up).await;
    qemu.terminate();
    let begun = Instant::now();
    while !host.sample().await.is_empty() {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let notices = host.fleet.take_notices();
    assert!(matches!(notices[..], [Notice::Appeared { .. }, Notice::Gone { .. }]), "{notices:?}");
}

/// A killed QEMU leaves its socket behind.
#[tokio::test]
async fn a_killed_guest_is_unreachable_then_gone_and_may_return() {
    let mut host = TestHost::new();
    let mut qemu = host.start("a", BALLOON);
    host.sample_until(is_up).await;
    qemu.kill();
    let refused = LinkState::Down(LinkDown::Refused);
    host.sample_until(|reading| reading.sample.link == refused).await;
    let begun = Instant::now();
    while !host.sample().await.is_empty() {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(qemu.socket().exists() && host.fleet.is_empty());
    let notices = host.fleet.take_notices();
    assert!(
        matches!(notices[..], [Notice::Appeared { .. }, Notice::Deserted { .. }]),
        "{notices:?}"
    );

    let again = host.start("a", BALLOON);
    let begun = Instant::now();
    while !matches!(&host.sample().await[..], [reading] if reading.pid == Some(again.pid())) {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    host.sample_until(is_up).await;
}

#[tokio::test]
async fn the_run_state_follows_events() {
    let mut host = TestHost::new();
    let second = host.folder.path().join("second.qmp");
    let arg = format!("unix:{},server=on,wait=off", second.display());
    let _qemu = host.start("a", &[BALLOON, &["-qmp", &arg]].concat());
    host.sample_until(is_up).await;
    let mut operator = QmpClient::connect(&second, PATIENCE).await.unwrap();
    operator.call(&QmpCommand::Cont).await.unwrap();
    host.sample_until(|reading| reading.sample.run_state == Some(RunState::Running)).await;
    let refused = operator.call(&QmpCommand::QomList { path: "/nowhere" }).await;
    assert!(matches!(refused, Err(CallError::Refused { .. })), "{refused:?}");
    operator.call(&QmpCommand::Quit).await.unwrap();
    host.sample_until(|reading| reading.sample.run_state == Some(RunState::Shutdown)).await;
}

#[tokio::test]
async fn a_missing_or_deserted_socket_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let refused = QmpClient::connect(&path, PATIENCE).await;
    assert!(matches!(refused, Err(LinkDown::Refused)), "{refused:?}");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let refused = QmpClient::connect(&path, PATIENCE).await;
    assert!(matches!(refused, Err(LinkDown::Refused)), "{refused:?}");
}
