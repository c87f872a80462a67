//! Tests of the fencer's threads, over cgroups made of plain files.
//!
//! Limits: they need a file system with extended attributes, and print `SKIPPED` elsewhere.

use std::fs;
use std::time::Instant;

use ballast_model::Bytes;
use ballast_reclaim::MARK;
use rustix::fs::{XattrFlags, removexattr, setxattr};

use super::*;

/// Deadline of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SWAP: SwapBounds = SwapBounds { use_max_percent: 100, reserve: Bytes::ZERO };
/// The start time in `stat`.
const START_TICKS: u64 = 1;

/// A host where this process is the guest `web`, alone in a cgroup.
struct FakeHost(tempfile::TempDir);

impl FakeHost {
    /// `None`, and a message, where files have no extended attributes.
    fn new() -> Option<FakeHost> {
        let host = FakeHost(tempfile::tempdir().unwrap());
        let pid = std::process::id();
        for (name, text) in [
            (format!("proc/{pid}/stat"), format!("{pid} (qemu) S{}\n", " 1".repeat(30))),
            (format!("proc/{pid}/cgroup"), "0::/vm\n".to_owned()),
            (
                "proc/self/mountinfo".to_owned(),
                "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n".to_owned(),
            ),
            ("proc/meminfo".to_owned(), "SwapTotal: 1024 kB\nSwapFree: 1024 kB\n".to_owned()),
            ("sys/fs/cgroup/vm/cgroup.procs".to_owned(), format!("{pid}\n")),
            ("sys/fs/cgroup/vm/memory.stat".to_owned(), String::new()),
            ("sys/fs/cgroup/vm/memory.current".to_owned(), "1048576".to_owned()),
            ("sys/fs/cgroup/vm/memory.high".to_owned(), "max".to_owned()),
        ] {
            let path = host.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let group = host.0.path().join("sys/fs/cgroup/vm");
        if let Err(error) = setxattr(&group, MARK, b"1", XattrFlags::empty()) {
            println!("SKIPPED: {} has no extended attributes: {error}", group.display());
            return None;
        }
        removexattr(&group, MARK).unwrap();
        Some(host)
    }

    fn fencer(&self) -> Fencer {
        Fencer::below(self.0.path().to_owned(), SWAP)
    }

    fn limit(&self) -> String {
        fs::read_to_string(self.0.path().join("sys/fs/cgroup/vm/memory.high")).unwrap()
    }

    fn share_cgroup(&self) {
        let pid = std::process::id();
        let path = self.0.path().join("sys/fs/cgroup/vm/cgroup.procs");
        fs::write(path, format!("{pid}\n8\n")).unwrap();
    }

    /// Leaves a fence behind, as a killed daemon does.
    fn leave(&self, mib: u64) {
        let process = process();
        let mut fence = Fence::open(self.0.path(), process.pid, Some(START_TICKS)).unwrap();
        fence.hold(Bytes::mib(mib), false, &SWAP).unwrap();
        std::mem::forget(fence);
        assert_eq!(self.limit(), text(mib));
    }
}

fn text(mib: u64) -> String {
    Bytes::mib(mib).get().to_string()
}

fn web() -> GuestId {
    "web".parse().unwrap()
}

fn process() -> ProcessId {
    ProcessId { pid: std::process::id(), start_ticks: START_TICKS }
}

fn at(mib: u64) -> Fences {
    let (guest, process, height) = (web(), process(), Bytes::mib(mib));
    Fences::Set(vec![FenceOrder { guest, process, height, takes: false }])
}

/// Repeats the order, as ticks do, until `is_so`.
fn until(fencer: &mut Fencer, fences: &Fences, mut is_so: impl FnMut(&Fencer) -> bool) {
    let begun = Instant::now();
    let web = web();
    loop {
        fencer.obey(fences.clone(), [(&web, process())].into_iter());
        if is_so(fencer) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{fencer:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_fence_stands_as_long_as_it_is_ordered() {
    let Some(host) = FakeHost::new() else { return };
    let mut fencer = host.fencer();
    assert_eq!(fencer.state(&web()), None);
    for mib in [300, 200] {
        until(&mut fencer, &at(mib), |_| host.limit() == text(mib));
        let state = FenceState { limit: Some(Bytes::mib(mib)), trouble: None };
        until(&mut fencer, &at(mib), |fencer| fencer.state(&web()) == Some(state.clone()));
    }
    fencer.obey(Fences::Keep, [].into_iter());
    assert_eq!(host.limit(), text(200));
    until(&mut fencer, &Fences::Set(vec![]), |fencer| fencer.state(&web()).is_none());
    assert_eq!(host.limit(), "max");
}

#[test]
fn all_fences_are_lifted_when_the_daemon_ends() {
    let Some(host) = FakeHost::new() else { return };
    let mut fencer = host.fencer();
    until(&mut fencer, &at(300), |_| host.limit() == text(300));
    drop(fencer);
    assert_eq!(host.limit(), "max");
}

#[test]
fn a_fence_that_was_left_is_lifted_or_taken_over() {
    let Some(host) = FakeHost::new() else { return };
    host.leave(300);
    let mut fencer = host.fencer();
    until(&mut fencer, &Fences::Set(vec![]), |_| host.limit() == "max");
    // This daemon has checked the process already, and lifts nothing more around it.
    host.leave(310);
    until(&mut fencer, &Fences::Set(vec![]), |fencer| fencer.check.is_none());
    assert_eq!(host.limit(), text(310));
    let mut next = host.fencer();
    until(&mut next, &at(250), |_| host.limit() == text(250));
    assert_eq!(next.state(&web()).unwrap().trouble, None);
}

#[test]
fn what_keeps_a_fence_from_standing_is_told() {
    let Some(host) = FakeHost::new() else { return };
    host.share_cgroup();
    let mut fencer = host.fencer();
    let trouble = |fencer: &Fencer| fencer.state(&web()).and_then(|state| state.trouble);
    until(&mut fencer, &at(300), |fencer| trouble(fencer).is_some());
    let told = trouble(&fencer).unwrap();
    assert!(told.contains("expected a cgroup for the guest alone"), "{told}");
    // Trouble found since the last order is logged with the next one.
    fencer.obey(at(300), [(&web(), process())].into_iter());
    assert!(fencer.warnings.clear("web (fence)"), "it was warned of");
    assert_eq!(host.limit(), "max");
}

#[test]
fn another_process_gets_a_fence_of_its_own() {
    let Some(host) = FakeHost::new() else { return };
    let mut fencer = host.fencer();
    until(&mut fencer, &at(300), |_| host.limit() == text(300));
    // Under the same name there is now a process that has ended: the old fence is lifted, and no
    // new one is set.
    let other = ProcessId { start_ticks: 2, ..process() };
    let (guest, height) = (web(), Bytes::mib(300));
    let order = FenceOrder { guest, process: other, height, takes: false };
    let reused = |fencer: &Fencer| {
        let trouble = fencer.state(&web()).and_then(|state| state.trouble);
        trouble.is_some_and(|trouble| trouble.contains("the PID was reused"))
    };
    until(&mut fencer, &Fences::Set(vec![order]), reused);
    assert_eq!(host.limit(), "max");
}
