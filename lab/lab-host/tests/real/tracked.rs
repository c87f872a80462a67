//! Tests of real guests with the page tracker.
//!
//! Limits: asserts states, counts and wide ratios, never times; needs QEMU, a built `lab-guest`,
//! and the page tracker as built for release.

use std::time::{Duration, Instant};

use crate::bare::{self, every, has_flag, wait_until};
use crate::host_side::{PATIENCE, folder, start};
use crate::qmp::qmp;
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_lab_host::{Balloon, DiskSpec, Guest, GuestSpec, GuestState, Speed, Truth};
use ballast_model::Bytes;
use ballast_tracker::{IntervalObservation, TrackerError, TrackingSession, WatchSettings};
use ballast_tracker_proto::{Granule, GranuleSample, HashKind, WatchMode};

fn guest(memory: Bytes) -> GuestSpec {
    GuestSpec { tracked: true, ..GuestSpec::new("a".parse().unwrap(), memory) }
}

fn track(guest: &Guest) -> TrackingSession {
    begin(guest).unwrap()
}

fn begin(guest: &Guest) -> Result<TrackingSession, TrackerError> {
    let pid = u32::try_from(guest.pid()).unwrap();
    TrackingSession::begin(pid, &guest.tracker().unwrap(), &[], None)
}

fn interval(
    tracking: &mut TrackingSession,
    watching: WatchSettings,
    length: Duration,
) -> IntervalObservation {
    try_interval(tracking, watching, length).unwrap()
}

fn try_interval(
    tracking: &mut TrackingSession,
    watching: WatchSettings,
    length: Duration,
) -> Result<IntervalObservation, TrackerError> {
    let observed = bare::interval(tracking, watching, length)?;
    eprintln!(
        "{} touched of {}, {} lost, cost {:?} of {:?}, trap {:?}, revoked in {:?}",
        observed.touches.len(),
        observed.granules,
        observed.lost,
        observed.cost,
        observed.length,
        observed.trap,
        observed.revoked_in,
    );
    Ok(observed)
}

/// The memory that the observed touches stand for.
fn touched(observed: &IntervalObservation, mode: WatchMode) -> Bytes {
    let mut granules: Vec<u64> = observed.touches.iter().map(|it| mode.granule.of(*it)).collect();
    granules.sort_unstable();
    granules.dedup();
    let pages = granules.len() as f64 * mode.granule.pages() as f64 / mode.sample.share();
    Bytes::pages(pages as u64)
}

/// The next interval length to try: with a trap for each page a guest takes seconds to go through
/// its memory, and many more on a slow machine.
fn longer(length: Duration) -> Duration {
    (length * 2).min(Duration::from_secs(16))
}

#[test]
fn the_working_set_of_a_real_guest() {
    if !crate::may_track() {
        return;
    }
    let folder = folder();
    let run = start(folder.path(), guest(Bytes::mib(512)));
    let guest = run.guest("a").unwrap();
    let set = Bytes::mib(200);
    guest.start_workload("w", &Pattern::Constant { size: set }.into(), PATIENCE).unwrap();
    let mut tracking = track(guest);
    let sampled = WatchMode {
        granule: Granule::PAGE,
        sample: GranuleSample::rate(HashKind::multiply_add(1), 1.0 / 64.0),
    };
    // The guest's kernel and its program use some memory, too; the longer the interval, the more.
    let most = Bytes::mib(232);
    for watching in [every(32), WatchSettings { mode: sampled, hot_granules: 0 }, every(1)] {
        let mut length = Duration::from_secs(1);
        wait_until("an interval that shows the working set", || {
            length = longer(length);
            let observed = interval(&mut tracking, watching, length);
            let wss = touched(&observed, watching.mode);
            eprintln!("{wss}");
            observed.lost == 0 && wss >= set.fraction(97, 100) && wss <= most
        });
    }
    guest.stop_workload("w").unwrap();
    wait_until("an interval without it", || {
        let observed = interval(&mut tracking, every(32), Duration::from_secs(1));
        touched(&observed, every(32).mode) < Bytes::mib(64)
    });
    // Rest, and continue.
    tracking.begin_interval(None).unwrap();
    tracking.track_for(Duration::from_millis(300)).unwrap();
    assert_eq!(tracking.end_interval().unwrap(), None);
    assert!(!interval(&mut tracking, every(1), Duration::from_millis(500)).touches.is_empty());
}

#[test]
fn devices_work_while_every_page_is_revoked() {
    if !crate::may_track() {
        return;
    }
    let folder = folder();
    let mut spec = guest(Bytes::mib(384));
    spec.data = Some(DiskSpec { size: Bytes::mib(128), speed: Speed::Nvme });
    spec.swap = Some(DiskSpec { size: Bytes::mib(256), speed: Speed::Nvme });
    let run = start(folder.path(), spec);
    let guest = run.guest("a").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let revocations = std::thread::scope(|scope| {
        let revoking = scope.spawn(|| {
            let mut tracking = track(guest);
            let mut count = 0_u32;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let granule = [1, 32, 8, 512][count as usize % 4];
                let watching = WatchSettings { hot_granules: count % 3 * 100, ..every(granule) };
                tracking.begin_interval(Some(watching)).unwrap();
                tracking.track_for(Duration::from_millis(50)).unwrap();
                assert!(tracking.end_interval().unwrap().is_some());
                count += 1;
            }
            count
        });
        // Written past the page cache and read back after dropping it, so that each byte goes
        // through guest memory by the disk's own system calls. The serial line carries the
        // checksums.
        let script = "set -e; disk=/dev/$(grep -l data /sys/block/*/serial | cut -d/ -f4); \
            head -c 33554432 /dev/urandom > /tmp/x; a=$(md5sum < /tmp/x); \
            for i in 1 2; do dd if=/tmp/x of=$disk bs=1M 2>/dev/null; sync; \
            echo 3 > /proc/sys/vm/drop_caches; \
            b=$(dd if=$disk bs=1M count=32 2>/dev/null | md5sum); \
            echo \"$a $b\" > /dev/ttyS0; [ \"$a\" = \"$b\" ]; done";
        let executed = guest.exec(&["/bin/sh", "-c", script].map(str::to_owned), PATIENCE);
        // The balloon takes memory that is being tracked, and gives it back.
        for mib in [128_u64, 384, 160, 384] {
            let target = mib << 20;
            let set = format!("{{\"execute\":\"balloon\",\"arguments\":{{\"value\":{target}}}}}");
            assert!(qmp(guest, &set).contains("return"));
            wait_until("the balloon has moved", || {
                std::thread::sleep(Duration::from_millis(100));
                let actual = qmp(guest, "{\"execute\":\"query-balloon\"}");
                let digits: String = actual.chars().filter(char::is_ascii_digit).collect();
                digits.parse::<u64>().unwrap().abs_diff(target) < 8 << 20
            });
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let executed = executed.unwrap();
        assert!(executed.end.is_success(), "{executed:?}");
        revoking.join().unwrap()
    });
    eprintln!("{revocations} revocations");
    assert!(revocations > 10);
    let console = std::fs::read_to_string(guest.console()).unwrap();
    let sums: Vec<&str> = console.lines().filter(|line| line.ends_with(" -")).collect();
    assert_eq!(sums.len(), 2, "{console}");
    // After detaching, the next client finds everything as it was.
    assert!(begin(guest).is_ok());
    drop(run);
    assert_eq!(
        std::fs::read_dir(folder.path().join("runs")).map_or(0, |entries| entries.count()),
        0
    );
}

fn execute(guest: &Guest, name: &str, arguments: &str) {
    let answer = qmp(guest, &format!("{{\"execute\":\"{name}\",\"arguments\":{{{arguments}}}}}"));
    assert!(answer.contains("\"return\""), "{name} {arguments}: {answer}");
}

/// Whether memory of the guest's process is registered with a userfaultfd for minor faults.
fn is_registered(guest: &Guest) -> bool {
    has_flag(guest.pid().unsigned_abs(), "ui")
}

/// Runs in the sandbox that libvirt uses for QEMU, in which a forbidden system call kills the
/// process.
#[test]
fn plugging_migration_and_exit_work_while_tracked() {
    if !crate::may_track() {
        return;
    }
    let folder = folder();
    let mut spec = guest(Bytes::mib(256));
    spec.balloon = Some(Balloon { free_page_reporting: true, ..Balloon::default() });
    let sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    spec.extra_args = ["-sandbox", sandbox, "-m", "slots=4,maxmem=1G"].map(str::to_owned).to_vec();
    let run = start(folder.path(), spec);
    let guest = run.guest("a").unwrap();
    let mut tracking = track(guest);
    let lens = |tracking: &mut TrackingSession| {
        let observed = interval(tracking, every(8), Duration::from_millis(1200));
        // The guest sends a report every second, so it touches something.
        assert!(!observed.touches.is_empty());
        tracking.regions().iter().map(|region| region.len >> 20).collect::<Vec<_>>()
    };
    assert_eq!(lens(&mut tracking), [256]);

    // A backend as large as the boot memory, added again after it was removed.
    let backend = |id: &str| {
        format!(
            "\"qom-type\":\"memory-backend-memfd\",\"id\":\"{id}\",\"size\":268435456,\"share\":true"
        )
    };
    execute(guest, "object-add", &backend("spare"));
    assert_eq!(lens(&mut tracking), [256, 256]);
    execute(guest, "object-del", "\"id\":\"spare\"");
    // QEMU unmaps it a moment later.
    wait_until("the memory to be unmapped", || lens(&mut tracking) == [256]);
    execute(guest, "object-add", &backend("dimm"));
    execute(guest, "device_add", "\"driver\":\"pc-dimm\",\"id\":\"d0\",\"memdev\":\"dimm\"");
    let has_grown =
        ["/bin/sh", "-c", "[ $(awk '/MemTotal/ {print $2}' /proc/meminfo) -gt 400000 ]"];
    assert_eq!(lens(&mut tracking), [256, 256]);
    // The guest's answer takes longer than a client may be silent.
    drop(tracking);
    wait_until("the guest to have the memory", || {
        guest.exec(&has_grown.map(str::to_owned), PATIENCE).unwrap().end.is_success()
    });
    // More than half of the guest's memory, so that both halves are touched, whichever is used
    // first.
    let size = Bytes::mib(320);
    guest.start_workload("w", &Pattern::Constant { size }.into(), PATIENCE).unwrap();
    let mut tracking = track(guest);
    let second = tracking.regions()[1].first_page;
    wait_until("touches in both halves of the memory", || {
        let observed = interval(&mut tracking, every(8), Duration::from_secs(1));
        let behind = observed.touches.iter().filter(|page| **page >= second).count();
        behind.min(observed.touches.len() - behind) > 1000
    });

    // Migration reads all memory while its permissions are revoked.
    let socket = folder.path().join("m");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    drop(tracking);
    guest.stop_workload("w").unwrap();
    let mut tracking = track(guest);
    execute(guest, "migrate", &format!("\"uri\":\"unix:{}\"", socket.display()));
    wait_until("the migration to be over", || {
        tracking.begin_interval(Some(every(8))).unwrap();
        tracking.track_for(Duration::from_millis(100)).unwrap();
        tracking.end_interval().unwrap();
        let status = qmp(guest, "{\"execute\":\"query-migrate\"}");
        assert!(!status.contains("\"failed\""), "{status}");
        status.contains("\"completed\"")
    });
    assert!(receiving.join().unwrap() > 50 << 20);
    drop(tracking);
    execute(guest, "cont", "");
    assert!(guest.exec(&["/bin/true".to_owned()], PATIENCE).unwrap().end.is_success());

    // A client that hangs: the guest goes on without it.
    let mut tracking = track(guest);
    tracking.begin_interval(Some(every(1))).unwrap();
    assert!(is_registered(guest));
    wait_until("all permissions are restored", || !is_registered(guest));
    let refused = tracking.track_for(Duration::from_millis(300)).unwrap_err();
    assert!(refused.to_string().contains("was silent for a second"), "{refused}");

    // The guest ends while it is tracked.
    let mut tracking = track(guest);
    tracking.begin_interval(Some(every(1))).unwrap();
    qmp(guest, "{\"execute\":\"quit\"}");
    let end = Instant::now() + PATIENCE;
    while tracking.track_for(Duration::from_millis(50)).is_ok() {
        assert!(Instant::now() < end, "the end is noticed");
    }
    wait_until("it is gone", || !matches!(guest.state(), GuestState::Ready));
    assert!(!folder.path().join("runs/t/lab/a.track").exists(), "its socket goes with it");
}

#[test]
fn virtio_mem_is_plugged_and_unplugged_while_it_is_tracked() {
    if !crate::may_track() {
        return;
    }
    let folder = folder();
    let mut spec = guest(Bytes::mib(256));
    spec.extra_args = [
        "-m",
        "slots=1,maxmem=1G",
        "-object",
        "memory-backend-memfd,id=vm,size=256M,share=on",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=vm,requested-size=0",
    ]
    .map(str::to_owned)
    .to_vec();
    let run = start(folder.path(), spec);
    let guest = run.guest("a").unwrap();
    let look = |tracking: &mut Option<TrackingSession>| {
        // On a busy machine the tracker may not hear from this test for a second.
        let next = tracking.take().or_else(|| begin(guest).ok()).and_then(|mut tracking| {
            tracking.begin_interval(Some(every(1))).ok()?;
            tracking.track_for(Duration::from_millis(200)).ok()?;
            tracking.end_interval().ok()?;
            Some(tracking)
        });
        *tracking = next;
    };
    let mut tracking = None;
    let mut resize = |mib: u64| {
        let set = format!(
            "\"path\":\"/machine/peripheral/vm0\",\"property\":\"requested-size\",\"value\":{}",
            mib << 20
        );
        execute(guest, "qom-set", &set);
        let get = "{\"execute\":\"qom-get\",\"arguments\":{\"path\":\"/machine/peripheral/vm0\",\"property\":\"size\"}}";
        wait_until("the guest to plug or unplug", || {
            look(&mut tracking);
            let size = qmp(guest, get);
            let digits: String = size.chars().filter(char::is_ascii_digit).collect();
            digits.parse::<u64>().unwrap() == mib << 20
        });
    };
    for _ in 0..2 {
        resize(256);
        resize(128);
        resize(0);
    }
    resize(256);
    drop(tracking);
    // All memory is there and can be used.
    let size = Bytes::mib(320);
    guest.start_workload("w", &Pattern::Constant { size }.into(), PATIENCE).unwrap();
    let mut tracking = None;
    let mut length = Duration::from_secs(1);
    wait_until("touches of more than the boot memory", || {
        look(&mut tracking);
        length = longer(length);
        let Some(tracking) = &mut tracking else { return false };
        tracking.regions().len() == 2 && {
            let seen = tracking.begin_interval(Some(every(8))).and_then(|()| {
                tracking.track_for(length)?;
                tracking.end_interval()
            });
            seen.is_ok_and(|seen| {
                seen.is_some_and(|seen| touched(&seen, every(8).mode) > Bytes::mib(300))
            })
        }
    });
    assert!(guest.exec(&["/bin/true".to_owned()], PATIENCE).unwrap().end.is_success());
}

/// Compared with the emulator's own record of every load and store, second by second.
#[test]
fn what_is_seen_is_the_truth() {
    if !crate::may_track() {
        return;
    }
    let folder = folder();
    let run =
        start(folder.path(), GuestSpec { truth: Some(Truth::default()), ..guest(Bytes::mib(384)) });
    let guest = run.guest("a").unwrap();
    let sampled = GranuleSample::rate(HashKind::multiply_add(7), 1.0 / 16.0);
    // The tracker also sees memory touched by devices and instruction fetches.
    let beside = Bytes::mib(4);
    // The tracker's seconds are not aligned with the record's, so a phase at the larger size may be
    // in three seconds of one and partly in four seconds of the other.
    for (name, least, part, pattern) in [
        ("constant", Bytes::mib(64), 20, Pattern::Constant { size: Bytes::mib(64) }),
        (
            "flux",
            Bytes::mib(32),
            4,
            Pattern::Flux {
                low: Bytes::mib(32),
                high: Bytes::mib(96),
                period: Duration::from_secs(6),
            },
        ),
    ] {
        // Twice the largest working set a second; at full speed it would take a core.
        let spec = WorkloadSpec { touches_per_s: Some(50_000), ..pattern.into() };
        guest.start_workload(name, &spec, PATIENCE).unwrap();
        wait_until("the workload to have its memory", || {
            std::thread::sleep(Duration::from_millis(100));
            guest.truth().unwrap().last().is_some_and(|row| row.wss >= least)
        });
        for sample in [GranuleSample::ALL, sampled] {
            let mode = WatchMode { granule: Granule::PAGE, sample };
            let (seen, truth) = seen_and_truth(guest, mode);
            eprintln!("{name}, {:.4} of the pages: seen {seen}, truth {truth}", sample.share());
            let apart = seen.get().abs_diff(truth.get());
            assert!(apart <= truth.get() / part + beside.get(), "{name}: {seen} {truth}");
        }
        guest.stop_workload(name).unwrap();
    }
}

/// The mean working set of twelve seconds, which are whole periods of the workloads: from the
/// tracker, and from the emulator's record. Starts over if the tracker drops this test, which may
/// not run for a second on a busy machine.
fn seen_and_truth(guest: &Guest, mode: WatchMode) -> (Bytes, Bytes) {
    let watching = WatchSettings { mode, hot_granules: 0 };
    let measure = || -> Result<(Bytes, Bytes), TrackerError> {
        let mut tracking = begin(guest)?;
        let before = guest.truth().unwrap().len();
        let mut seen = Vec::new();
        for _ in 0..12 {
            let observed = try_interval(&mut tracking, watching, Duration::from_secs(1))?;
            seen.push(touched(&observed, mode));
        }
        let truth: Vec<Bytes> =
            guest.truth().unwrap()[before..].iter().map(|row| row.wss).collect();
        Ok((mean(&seen), mean(&truth)))
    };
    let mut measured = None;
    wait_until("twelve seconds without an interruption", || {
        measured = measure().inspect_err(|error| eprintln!("tracking ended: {error}")).ok();
        measured.is_some()
    });
    measured.unwrap()
}

fn mean(sizes: &[Bytes]) -> Bytes {
    Bytes::new(sizes.iter().map(|size| size.get()).sum::<u64>() / sizes.len() as u64)
}
