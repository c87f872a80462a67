//! Fences: with cgroups of both versions as plain files, and with a real cgroup of the version that
//! the host has.
//!
//! Limits: plain files reclaim nothing. They need a file system with extended attributes; elsewhere
//! the tests print `SKIPPED`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::*;
use ballast_model::Bytes;
use ballast_reclaim::*;
use rustix::fs::{XattrFlags, removexattr, setxattr};

const SWAP: &str = "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n";

/// A host where this process is a guest, alone in a cgroup that is charged for 100 MiB.
struct FakeHost {
    root: tempfile::TempDir,
    group: PathBuf,
    version: CgroupVersion,
}

impl FakeHost {
    /// `None`, and a message, where files have no extended attributes.
    fn new(version: CgroupVersion) -> Option<FakeHost> {
        let pid = std::process::id();
        let one = version == CgroupVersion::One;
        let root = tree(&[
            (&format!("proc/{pid}/stat"), &format!("{pid} (qemu) S{}\n", " 1".repeat(30))),
            (&format!("proc/{pid}/cgroup"), if one { "4:memory:/vm\n" } else { "0::/vm\n" }),
            (
                "proc/self/mountinfo",
                match one {
                    true => "35 31 0:32 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n",
                    false => "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                },
            ),
            ("proc/meminfo", SWAP),
            ("sys/fs/cgroup/vm/cgroup.procs", &format!("{pid}\n")),
            ("sys/fs/cgroup/vm/memory.stat", "anon 1\ninactive_file 0\nactive_file 0\n"),
        ]);
        let group = root.path().join("sys/fs/cgroup/vm");
        if let Err(error) = setxattr(&group, MARK, b"1", XattrFlags::empty()) {
            println!("SKIPPED: {} has no extended attributes: {error}", group.display());
            return None;
        }
        removexattr(&group, MARK).unwrap();
        let host = FakeHost { root, group, version };
        host.charge(100);
        host.limit("max");
        Some(host)
    }

    fn charge(&self, mib: u64) {
        let name = match self.version {
            CgroupVersion::One => "memory.usage_in_bytes",
            CgroupVersion::Two => "memory.current",
        };
        fs::write(self.group.join(name), Bytes::mib(mib).get().to_string()).unwrap();
    }

    fn limit_file(&self) -> PathBuf {
        self.group.join(match self.version {
            CgroupVersion::One => "memory.limit_in_bytes",
            CgroupVersion::Two => "memory.high",
        })
    }

    /// Sets the limit as an operator does.
    fn limit(&self, text: &str) {
        fs::write(self.limit_file(), text).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.root.path().join(name), text).unwrap();
    }

    /// The text of the limit's file.
    fn found(&self) -> String {
        fs::read_to_string(self.limit_file()).unwrap()
    }

    fn open(&self) -> Result<Fence, ReclaimError> {
        Fence::open(self.root.path(), std::process::id(), None)
    }
}

fn mib(mib: u64) -> Option<Bytes> {
    Some(Bytes::mib(mib))
}

fn text(mib: u64) -> String {
    Bytes::mib(mib).get().to_string()
}

#[test]
fn a_fence_follows_its_height_and_is_lifted() {
    for (version, lifted) in [(CgroupVersion::One, "-1"), (CgroupVersion::Two, "max")] {
        let Some(host) = FakeHost::new(version) else { return };
        let mut fence = host.open().unwrap();
        assert_eq!((fence.limit(), host.found().as_str()), (None, "max"), "nothing is set yet");
        for height in [300, 200, 400] {
            fence.hold(Bytes::mib(height), false, &BOUNDS).unwrap();
            assert_eq!((fence.limit(), host.found()), (mib(height), text(height)));
        }
        fence.lift().unwrap();
        assert_eq!(host.found(), lifted);
        // As a kernel shows it.
        host.limit("max");
        let mut fence = host.open().unwrap();
        fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
        drop(fence);
        assert_eq!(host.found(), lifted, "dropping lifts it");
    }
}

#[test]
fn who_is_beyond_its_fence_stays_and_cannot_grow() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let mut fence = host.open().unwrap();
    for (charged, limit) in [(100, 102), (150, 102), (90, 92), (88, 92), (60, 64)] {
        host.charge(charged);
        fence.hold(Bytes::mib(64), false, &BOUNDS).unwrap();
        assert_eq!(fence.limit(), mib(limit), "{charged} MiB charged");
    }
}

#[test]
fn what_a_guest_owes_is_taken_by_steps() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let mut fence = host.open().unwrap();
    fence.hold(Bytes::mib(200), true, &BOUNDS).unwrap();
    assert_eq!(fence.limit(), mib(200));
    // Plain files reclaim nothing: the limit is not left where the guest would be throttled.
    fence.hold(Bytes::mib(40), true, &BOUNDS).unwrap();
    assert_eq!(fence.limit(), mib(102));
    // A step could lower the limit to 82 MiB, but here the height is above that.
    fence.hold(Bytes::mib(90), true, &BOUNDS).unwrap();
    assert_eq!(fence.limit(), mib(102));
    host.charge(95);
    fence.hold(Bytes::mib(97), true, &BOUNDS).unwrap();
    assert_eq!(fence.limit(), mib(97));
}

#[test]
fn page_cache_does_not_raise_a_fence() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    host.write(
        "sys/fs/cgroup/vm/memory.stat",
        "anon 1\ninactive_file 20971520\nactive_file 10485760\n",
    );
    let mut fence = host.open().unwrap();
    fence.hold(Bytes::mib(72), false, &BOUNDS).unwrap();
    // 30 MiB of the 100 could be dropped; in plain files they are not.
    assert_eq!(fence.limit(), mib(102));
    host.charge(70);
    host.write("sys/fs/cgroup/vm/memory.stat", "anon 1\n");
    fence.hold(Bytes::mib(72), false, &BOUNDS).unwrap();
    assert_eq!(fence.limit(), mib(72));
}

#[test]
fn a_limit_of_the_operator_is_never_touched() {
    for version in [CgroupVersion::One, CgroupVersion::Two] {
        let Some(host) = FakeHost::new(version) else { return };
        host.limit(&text(500));
        let error = host.open().unwrap_err();
        assert_eq!(error.code(), "others-limit");
        assert!(
            error.to_string().contains("a limit of 500MiB that Ballast did not set"),
            "{error}"
        );
        // The operator sets a limit while a fence stands.
        host.limit("max");
        let mut fence = host.open().unwrap();
        fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
        for limit in [600, 200] {
            host.limit(&text(limit));
            let error = fence.hold(Bytes::mib(300), true, &BOUNDS).unwrap_err();
            assert_eq!((error.code(), fence.limit()), ("others-limit", None));
        }
        drop(fence);
        assert_eq!(host.found(), text(200));
        assert_eq!(host.open().unwrap_err().code(), "others-limit");
    }
}

#[test]
fn the_fence_of_a_killed_daemon_is_taken_over() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let mut fence = host.open().unwrap();
    fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
    fence.hold(Bytes::mib(250), false, &BOUNDS).unwrap();
    // As after SIGKILL: nothing is lifted.
    std::mem::forget(fence);
    let fence = host.open().unwrap();
    assert_eq!((fence.limit(), host.found()), (mib(250), text(250)));
    fence.lift().unwrap();
    assert_eq!(host.found(), "max");
    // A daemon killed after it noted the next limit and before it set that limit.
    host.limit(&text(300));
    setxattr(&host.group, MARK, b"262144000 314572800", XattrFlags::empty()).unwrap();
    assert_eq!(host.open().unwrap().limit(), mib(300));
    // The note does not cover any other limit.
    host.limit(&text(301));
    assert_eq!(host.open().unwrap_err().code(), "others-limit");
}

#[test]
fn a_fence_that_must_not_stand_is_lifted() {
    let pid = std::process::id();
    let full = "SwapTotal: 1048576 kB\nSwapFree: 0 kB\n";
    let procs = "sys/fs/cgroup/vm/cgroup.procs";
    let shared = format!("{pid}\n8\n");
    for (version, name, text, code, is_lifted) in [
        (CgroupVersion::Two, "proc/meminfo", "MemTotal: 1 kB\n", "no-swap", true),
        (CgroupVersion::Two, procs, &shared, "shared-cgroup", true),
        (CgroupVersion::One, "proc/meminfo", full, "swap-full", true),
        (CgroupVersion::Two, "proc/meminfo", "rubbish", "no-swap", true),
        (CgroupVersion::Two, "proc/meminfo", "SwapFree: rubbish\n", "unreadable", false),
    ] {
        let Some(host) = FakeHost::new(version) else { return };
        let mut fence = host.open().unwrap();
        fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
        host.write(name, text);
        let error = fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap_err();
        assert_eq!((error.code(), fence.limit().is_none()), (code, is_lifted), "{error}");
        let unlimited = ["max", "-1"].contains(&host.found().as_str());
        assert_eq!(unlimited, is_lifted, "{code}");
    }
}

#[test]
fn with_version_two_a_fence_stays_while_swap_is_full() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let mut fence = host.open().unwrap();
    fence.hold(Bytes::mib(120), false, &BOUNDS).unwrap();
    host.write("proc/meminfo", "SwapTotal: 1048576 kB\nSwapFree: 0 kB\n");
    fence.hold(Bytes::mib(64), true, &BOUNDS).unwrap();
    assert_eq!(fence.limit(), mib(102), "nothing is taken");
}

#[test]
fn processes_of_cgroups_below_share_a_cgroup() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let pid = std::process::id();
    let below = host.group.join("libvirt/emulator");
    fs::create_dir_all(&below).unwrap();
    fs::write(host.group.join("libvirt/cgroup.procs"), "").unwrap();
    fs::write(below.join("cgroup.procs"), format!("{pid}\n")).unwrap();
    assert!(host.open().is_ok());
    fs::write(below.join("cgroup.procs"), format!("{pid}\n8\n9\n")).unwrap();
    let error = host.open().unwrap_err();
    assert!(error.to_string().contains("2 processes other than"), "{error}");
}

#[test]
fn a_moved_process_takes_its_fence_along() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let mut fence = host.open().unwrap();
    fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
    let pid = std::process::id();
    let other = host.root.path().join("sys/fs/cgroup/other");
    fs::create_dir(&other).unwrap();
    for (name, text) in [
        ("cgroup.procs", format!("{pid}\n")),
        ("memory.current", "0".to_owned()),
        ("memory.high", "max".to_owned()),
        ("memory.stat", String::new()),
    ] {
        fs::write(other.join(name), text).unwrap();
    }
    host.write(&format!("proc/{pid}/cgroup"), "0::/other\n");
    fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
    assert_eq!(host.found(), "max");
    assert_eq!(fs::read_to_string(other.join("memory.high")).unwrap(), text(300));
}

#[test]
fn a_squeeze_restores_the_fence_that_stands() {
    let Some(host) = FakeHost::new(CgroupVersion::Two) else { return };
    let mut fence = host.open().unwrap();
    fence.hold(Bytes::mib(300), false, &BOUNDS).unwrap();
    let group = MemoryCgroup::find(host.root.path(), std::process::id()).unwrap();
    let mut squeeze = Squeeze::new(group).unwrap();
    squeeze.step(Bytes::mib(110), &BOUNDS).unwrap();
    assert_eq!(host.found(), text(110));
    // The fence waits for the lock, and does not mistake the limit of a squeeze's step for the
    // operator's.
    let raised = std::thread::spawn(move || {
        fence.hold(Bytes::mib(400), false, &BOUNDS).map(|()| fence.limit())
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(host.found(), text(110));
    drop(squeeze);
    assert_eq!(raised.join().unwrap(), Ok(mib(400)));
}

/// What the fence of a real cgroup may leave above its height: the kernel counts in batches for
/// each processor.
const SLACK: Bytes = Bytes::mib(4);

#[test]
fn a_real_cgroups_fence_takes_only_what_is_owed() {
    let Some(_swap) = SwapFile::new() else { return };
    let Some(group) = TestCgroup::new() else { return };
    let child = Child::new(32, 48);
    group.add(&child);
    child.fill();
    let found = MemoryCgroup::find(Path::new("/"), child.pid()).unwrap();
    let before = found.usage().unwrap();
    assert!(before >= Bytes::mib(80));

    let mut fence = Fence::open(Path::new("/"), child.pid(), None).unwrap();
    fence.hold(Bytes::mib(200), true, &BOUNDS).unwrap();
    assert_eq!(found.limit(), Ok(mib(200)), "it owes nothing below its height");
    assert!(found.usage().unwrap() >= before.saturating_sub(SLACK));
    // The guest owes nothing: no memory is taken, and it cannot grow.
    fence.hold(Bytes::mib(40), false, &BOUNDS).unwrap();
    assert!(fence.limit().unwrap() >= before.saturating_sub(SLACK));
    assert!(found.usage().unwrap() >= before.saturating_sub(SLACK));

    let steps = (0..20).take_while(|_| {
        fence.hold(Bytes::mib(50), true, &BOUNDS).unwrap();
        fence.limit() != mib(50)
    });
    println!("{} steps from {before}", steps.count() + 1);
    assert_eq!(found.limit(), Ok(mib(50)));
    assert!(found.usage().unwrap() <= Bytes::mib(50));

    // The fence of a killed daemon: the next daemon takes it over, and lifts it.
    std::mem::forget(fence);
    let mut fence = Fence::open(Path::new("/"), child.pid(), None).unwrap();
    assert_eq!(fence.limit(), mib(50));
    // 32 MiB are locked: the kernel refuses a lower limit (version 1), or the fence raises the
    // limit again (version 2). The guest survives.
    assert_eq!(child.run(ChildCommand::Lock, child.shared), 0);
    for _ in 0..10 {
        fence.hold(Bytes::mib(8), true, &BOUNDS).unwrap();
    }
    assert!(fence.limit().unwrap() >= Bytes::mib(31), "{:?}", fence.limit());
    assert_eq!(found.limit(), Ok(fence.limit()));
    fence.lift().unwrap();
    assert_eq!(found.limit(), Ok(None));
    assert!(child.is_intact(child.shared) && child.is_intact(child.private));
    // Dropped before the cgroup: only an empty cgroup can be removed.
    drop(child);
}
