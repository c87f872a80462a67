//! Tests of memory plugged into real guests and unplugged again: Ballast's account of what QEMU
//! reports, against what the guest's kernel reports.
//!
//! Idea: at boot a kernel reserves some memory that is not in its `MemTotal`. However much is
//! ballooned, plugged in, or both, that amount must come out the same. An allocation that forgets
//! the balloon or the plugged memory, or counts one twice, is off by hundreds of MiB.
//! Limits: states and counts, never times; needs QEMU and a built `lab-guest`.

use std::time::{Duration, Instant, SystemTime};

use crate::host_side::{PATIENCE, folder, start};
use ballast_lab_guest::protocol::ProcessEnd;
use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::{GuestSpec, Hotplug, HotplugKind, Run};
use ballast_model::{Action, Bytes, Generation, GuestSample, OutcomeKind, Timestamp};
use ballast_qmp::fleet::{Fleet, FleetConfig};
use tokio::runtime::{Builder, Runtime};

/// The guests' boot memory.
const BOOT: Bytes = Bytes::mib(384);
/// By how much two figures of one time may differ; the amounts moved are a hundred times as large.
const SLACK: Bytes = Bytes::mib(1);
/// After this many samples without a change, none is expected any more.
const STILL_SAMPLES: u32 = 40;

/// One guest, and a fleet that manages it.
struct Host {
    run: Run,
    fleet: Fleet,
    runtime: Runtime,
    origin: Instant,
    generation: u64,
    /// Memory that the kernel reserves at boot.
    kept: Bytes,
    _folder: tempfile::TempDir,
}

impl Host {
    fn boot(hotplug: Option<Hotplug>) -> Host {
        let folder = folder();
        let spec = GuestSpec { hotplug, ..GuestSpec::new("a".parse().unwrap(), BOOT) };
        let run = start(folder.path(), spec);
        let sockets = run.guest("a").unwrap().qmp_socket().parent().unwrap().to_owned();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut host = Host {
            run,
            fleet: Fleet::new(FleetConfig::new(vec![sockets])),
            runtime,
            origin: Instant::now(),
            generation: 0,
            kept: Bytes::ZERO,
            _folder: folder,
        };
        host.wait("the whole boot memory", |sample| allocation(sample) == Some(BOOT));
        host.kept = BOOT.saturating_sub(host.total());
        assert!(host.kept > Bytes::mib(16) && host.kept < Bytes::mib(256), "{}", host.kept);
        host
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    fn sample(&mut self) -> GuestSample {
        let now = self.now();
        let asked = self.fleet.sample(now, SystemTime::now(), PATIENCE);
        let mut readings = self.runtime.block_on(asked);
        assert_eq!(readings.len(), 1);
        readings.remove(0).sample
    }

    fn wait(&mut self, what: &str, reached: impl Fn(&GuestSample) -> bool) -> GuestSample {
        let end = Instant::now() + PATIENCE;
        loop {
            let sample = self.sample();
            if reached(&sample) {
                return sample;
            }
            assert!(Instant::now() < end, "did not come about: {what}: {sample:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the plugged memory stays the same, and returns it.
    fn wait_still(&mut self) -> Bytes {
        let end = Instant::now() + PATIENCE;
        let (mut last, mut still) = (self.sample().hotplug.unwrap().plugged, 0);
        while still < STILL_SAMPLES {
            assert!(Instant::now() < end, "still moving: {last}");
            std::thread::sleep(Duration::from_millis(50));
            let plugged = self.sample().hotplug.unwrap().plugged;
            still = if plugged == last { still + 1 } else { 0 };
            last = plugged;
        }
        last
    }

    fn act(&mut self, target: Bytes, plug: Option<Bytes>) {
        self.generation += 1;
        let action = Action {
            guest: "a".parse().unwrap(),
            target,
            plug,
            generation: Generation(self.generation),
            deadline: self.now() + PATIENCE,
        };
        let outcome = self.runtime.block_on(self.fleet.act(self.now(), &action));
        assert_eq!(outcome.kind, OutcomeKind::Accepted, "{action:?}");
    }

    /// Gives the order, waits until it is carried out, and compares the result with what the guest
    /// reports.
    fn reach(&mut self, target: Bytes, plug: Option<Bytes>, plugged: Bytes) {
        self.act(target, plug);
        let sample = self.wait("what was asked for", |sample| {
            let is_plugged = sample.hotplug.is_none_or(|it| it.plugged == plugged);
            allocation(sample) == Some(target) && is_plugged
        });
        assert_eq!(sample.present_memory(), Some(BOOT + plugged));
        self.wait_total(target);
        eprintln!("holds {target}, {plugged} of it plugged in: MemTotal is {}", self.total());
    }

    /// Waits until the guest's `MemTotal` is that of a guest that holds `target`.
    fn wait_total(&self, target: Bytes) {
        let end = Instant::now() + PATIENCE;
        let expected = target.saturating_sub(self.kept);
        // A section is onlined a moment after it is plugged in.
        while self.total().abs_diff(expected) > SLACK {
            let total = self.total();
            assert!(Instant::now() < end, "MemTotal is {total}, expected {expected} of {target}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Touches of its workloads so far.
    fn touches(&self) -> u64 {
        let report = self.run.guest("a").unwrap().latest_report().unwrap();
        report.map_or(0, |report| report.workloads.iter().map(|one| one.touches).sum())
    }

    fn wait_touches(&self, count: u64) {
        let end = Instant::now() + PATIENCE;
        while self.touches() < count {
            assert!(Instant::now() < end, "the workload does not get on: {}", self.touches());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The guest's own `MemTotal`.
    fn total(&self) -> Bytes {
        let argv = ["/bin/sh", "-c", "grep MemTotal /proc/meminfo"].map(str::to_owned);
        let output = self.run.guest("a").unwrap().exec(&argv, PATIENCE).unwrap();
        let kib = output.stdout.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        Bytes::kib(kib.unwrap_or_else(|| panic!("{output:?}")))
    }
}

fn allocation(sample: &GuestSample) -> Option<Bytes> {
    sample.allocation.map(|read| read.value)
}

/// Balloon alone, virtio-mem alone, and both; then memory in use, which the guest keeps until it no
/// longer uses it.
#[test]
fn virtio_mem_grows_a_guest_past_boot_memory_and_back() {
    let mut host = Host::boot(Some(Hotplug::virtio_mem(Bytes::mib(512))));
    let none = Bytes::ZERO;
    host.reach(Bytes::mib(256), None, none);
    host.reach(BOOT, None, none);
    host.reach(BOOT + Bytes::mib(512), Some(Bytes::mib(512)), Bytes::mib(512));
    // The balloon takes as much boot memory as is plugged ahead, and then more.
    host.reach(Bytes::mib(640), None, Bytes::mib(512));
    host.reach(Bytes::mib(700), Some(Bytes::mib(384)), Bytes::mib(384));
    host.reach(BOOT + Bytes::mib(512), Some(Bytes::mib(512)), Bytes::mib(512));

    // 600 MiB of the 896 MiB are in use, and there is no swap: 512 MiB cannot be given.
    let spec = Pattern::Constant { size: Bytes::mib(600) }.into();
    host.run.guest("a").unwrap().start_workload("w", &spec, PATIENCE).unwrap();
    let pages = Bytes::mib(600).to_pages();
    host.wait_touches(2 * pages);
    host.act(Bytes::mib(512), Some(Bytes::mib(128)));
    let stuck = host.wait_still();
    eprintln!("of 512MiB, 128MiB were to stay, and {stuck} stay while 600MiB are in use");
    assert!(stuck > Bytes::mib(128), "it gave what it uses: {stuck}");
    let sample = host.sample();
    assert_eq!(sample.hotplug.unwrap().requested, Bytes::mib(128));
    assert_eq!(allocation(&sample), Some(BOOT + stuck));
    // The workload is not killed for that.
    host.wait_touches(host.touches() + pages);
    let (ended, _) = host.run.guest("a").unwrap().stop_workload("w").unwrap();
    assert_eq!(ended, ProcessEnd::Stopped {});
    // Asked again, the guest gives what it did not give before.
    host.reach(Bytes::mib(512), Some(Bytes::mib(128)), Bytes::mib(128));
    host.reach(Bytes::mib(320), Some(none), none);
}

#[test]
fn modules_grow_a_guest_past_boot_memory_and_back() {
    let kind = HotplugKind::Dimm;
    let mut host = Host::boot(Some(Hotplug { max: Bytes::mib(512), kind, online: true }));
    host.reach(Bytes::mib(640), Some(Bytes::mib(256)), Bytes::mib(256));
    host.reach(Bytes::mib(600), Some(Bytes::mib(384)), Bytes::mib(384));
    // The balloon also takes memory of modules.
    host.reach(Bytes::mib(320), None, Bytes::mib(384));
    host.reach(Bytes::mib(500), Some(Bytes::mib(128)), Bytes::mib(128));
    host.reach(Bytes::mib(320), Some(Bytes::ZERO), Bytes::ZERO);
}

/// The kernel has the memory and does not use it: QEMU reports that the guest holds more,
/// `MemTotal` does not.
#[test]
fn memory_not_onlined_is_not_in_mem_total() {
    let hotplug = Hotplug { online: false, ..Hotplug::virtio_mem(Bytes::mib(512)) };
    let mut host = Host::boot(Some(hotplug));
    let before = host.total();
    host.act(BOOT + Bytes::mib(256), Some(Bytes::mib(256)));
    let all = Some(BOOT + Bytes::mib(256));
    host.wait("it is plugged in", |sample| allocation(sample) == all);
    let plugged = host.wait_still();
    assert_eq!((plugged, host.total()), (Bytes::mib(256), before));
    host.reach(BOOT, Some(Bytes::ZERO), Bytes::ZERO);
}
