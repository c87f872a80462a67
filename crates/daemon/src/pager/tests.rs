//! The pager with a real process in a real cgroup, and real swap.
//!
//! Limits: root only, and where version 1 of cgroups counts memory; elsewhere it is said that nothing was tried.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ballast_model::Generation;
use ballast_reclaim::{CgroupVersion, MemoryCgroup, Vmm, parse_mountinfo};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;

/// What the process holds: more than guest memory is known by.
const HELD: Bytes = Bytes::mib(96);
/// What is taken of it.
const OWED: Bytes = Bytes::mib(40);
/// What a process may be off its bound: counts of the kernel that are kept for each processor, and its batches.
const SLACK: Bytes = Bytes::mib(2);
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Swap is the host's: one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_tried(why: &str) {
    println!("not tried: {why}");
}

/// A swap area for as long as it lives.
struct SwapArea(tempfile::TempDir);

impl SwapArea {
    /// `None`, and a word of it, where there can be none.
    fn new() -> Option<SwapArea> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("swap");
        let len = Bytes::mib(160).get();
        let is_on = fs::File::create(&path).is_ok_and(|file| {
            let nothing = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, nothing, 0, len).is_ok()
                && rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR).is_ok()
                && ["mkswap", "swapon"].iter().all(|program| {
                    let told = Command::new(program).arg(&path).output();
                    told.is_ok_and(|told| told.status.success())
                })
        });
        if !is_on {
            not_tried("no swap area to be had");
        }
        is_on.then_some(SwapArea(folder))
    }
}

impl Drop for SwapArea {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(self.0.path().join("swap")).status();
    }
}

/// A process that holds [`HELD`] in a cgroup of its own.
struct Guest {
    folder: PathBuf,
    child: Child,
    held: Vec<u8>,
}

impl Guest {
    /// `None`, and a word of it, where there is no such group to be had.
    fn new() -> Option<Guest> {
        let mounts = parse_mountinfo(&fs::read("/proc/self/mountinfo").unwrap()).unwrap();
        let Some(mount) = mounts.into_iter().find(|it| it.version == CgroupVersion::One) else {
            not_tried("no memory controller of version 1 is mounted");
            return None;
        };
        let folder = mount.point.join(format!("ballast-pager-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            not_tried(&format!("{}: {error}", folder.display()));
            return None;
        }
        // It takes all of it into one piece of memory, and is stopped when it writes that out, as nobody reads.
        let procs = folder.join("cgroup.procs");
        let script = format!(
            "echo $$ > {} && exec dd bs={} count=1 iflag=fullblock status=none",
            procs.display(),
            HELD.get()
        );
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let held: Vec<u8> = (0..HELD.get() / 8)
            .flat_map(|word| (word | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_ne_bytes())
            .collect();
        child.stdin.as_mut().unwrap().write_all(&held).unwrap();
        let guest = Guest { folder, child, held };
        wait_for("the process to hold what it was given", || guest.resident() >= HELD);
        Some(guest)
    }

    fn resident(&self) -> Bytes {
        Vmm::open(Path::new(PROC), self.child.id(), None).unwrap().resident().unwrap()
    }

    fn order(&self, resident: Bytes, generation: u64) -> Order {
        let paging = Paging {
            guest: "web".parse().unwrap(),
            mechanism: Mechanism::PageOut,
            resident,
            generation: Generation(generation),
            deadline: clock::now() + PATIENCE,
        };
        Order { paging, pid: self.child.id(), resident: self.resident(), coldness: None }
    }

    /// Whether it has its memory as it was.
    fn is_intact(&mut self) -> bool {
        let mut given = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut given).unwrap();
        given == self.held
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What it had is given back a moment after its end.
        let begun = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(PAUSE);
    }
}

fn settings(way: PagingWay) -> PagerSettings {
    let swap = SwapBounds { use_max_percent: 100, reserve: Bytes::ZERO };
    PagerSettings { way, per_second: Bytes::gib(4), swap, host_reserve: Bytes::ZERO }
}

/// What is told last of the next order that comes to its end.
fn told_at_end(pager: &mut Pager) -> Paged {
    let mut end = None;
    wait_for("the order to end", || {
        end = pager.paged().into_iter().find(|paged| paged.end.is_some());
        end.is_some()
    });
    end.unwrap()
}

/// Orders, as ticks do, what it owes until it has no more than that; what was told at the end of each order.
fn page_out(guest: &Guest, way: PagingWay) -> Vec<Paged> {
    let before = guest.resident();
    let to = before.saturating_sub(OWED);
    let mut pager = Pager::start(settings(way)).unwrap();
    let mut told = Vec::new();
    wait_for("the process to have no more than it was to", || {
        pager.obey(vec![guest.order(to, told.len() as u64)]);
        told.push(told_at_end(&mut pager));
        guest.resident() <= to.saturating_add(SLACK)
    });
    let left = guest.resident();
    println!("{before} before, {left} of {to} after {told:?}");
    assert!(left >= to.saturating_sub(SLACK), "{left} of {to}");
    assert!(told.iter().all(|it| matches!(it.end, Some(Ended::Finished(_)))), "{told:?}");
    assert!(
        told.iter().map(|it| it.moved).sum::<Bytes>() >= OWED.saturating_sub(SLACK),
        "{told:?}"
    );
    let group = MemoryCgroup::find(Path::new(ROOT), guest.child.id()).unwrap();
    assert_eq!(group.limit(), Ok(None), "no bound is left behind");
    told
}

#[test]
fn a_guest_is_paged_out_by_its_cgroup_where_that_is_configured() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    for told in page_out(&guest, PagingWay::Cgroup) {
        assert_eq!((told.way, told.not_by_process), (Some("cgroup-limit"), None));
    }
    assert!(guest.is_intact());
}

#[test]
fn its_cgroup_is_asked_only_where_its_process_may_not_be() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    let all = capabilities(None).unwrap();
    if !all.effective.contains(CapabilitySet::SYS_NICE | CapabilitySet::SYS_PTRACE) {
        return not_tried("without CAP_SYS_NICE and CAP_SYS_PTRACE");
    }
    for told in page_out(&guest, PagingWay::Auto) {
        assert_eq!((told.way, told.not_by_process), (Some("page-out"), None));
    }

    // Of this thread, and those it starts.
    let effective = all.effective - CapabilitySet::SYS_NICE;
    let permitted = all.permitted - CapabilitySet::SYS_NICE;
    set_capabilities(None, rustix::thread::CapabilitySets { effective, permitted, ..all }).unwrap();
    // What was written and waits in memory for its place to be needed is the group's still, and goes first.
    for told in page_out(&guest, PagingWay::Auto) {
        assert_eq!(told.way, Some("cgroup-limit"));
        let why = told.not_by_process.unwrap();
        assert!(why.to_string().contains("CAP_SYS_NICE"), "{why}");
    }

    // Where its process was to be it stays so.
    let mut pager = Pager::start(settings(PagingWay::Process)).unwrap();
    pager.obey(vec![guest.order(Bytes::ZERO, 2)]);
    let refused = told_at_end(&mut pager);
    assert_eq!((refused.moved, refused.way), (Bytes::ZERO, Some("page-out")));
    assert!(matches!(refused.end, Some(Ended::Refused(Refusal::Permission { .. }))), "{refused:?}");
    assert!(guest.is_intact());
}

#[test]
fn a_guest_that_shares_its_cgroup_is_left_alone() {
    let _turn = turn();
    let Some(guest) = Guest::new() else { return };
    let procs = guest.folder.join("cgroup.procs");
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(procs, other.id().to_string()).unwrap();
    let mut pager = Pager::start(settings(PagingWay::Cgroup)).unwrap();
    pager.obey(vec![guest.order(Bytes::ZERO, 1)]);
    let refused = told_at_end(&mut pager);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!((refused.moved, refused.way), (Bytes::ZERO, None));
    let Some(Ended::Refused(why)) = refused.end else { panic!("{:?}", refused.end) };
    assert_eq!(why.code(), "shared-cgroup", "{why}");
    assert!(guest.resident() >= HELD);
}

#[test]
fn orders_that_are_dropped_and_a_daemon_that_stops_leave_no_bound_behind() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    let group = MemoryCgroup::find(Path::new(ROOT), guest.child.id()).unwrap();
    let slow = PagerSettings { per_second: Bytes::mib(4), ..settings(PagingWay::Cgroup) };
    let mut pager = Pager::start(slow).unwrap();
    pager.obey(vec![guest.order(Bytes::mib(8), 1)]);
    wait_for("something to be moved", || pager.paged().iter().any(|it| it.moved > Bytes::ZERO));
    pager.obey(Vec::new());
    pager.obey(vec![guest.order(Bytes::mib(8), 2)]);
    wait_for("more to be moved", || pager.paged().iter().any(|it| it.moved > Bytes::ZERO));
    drop(pager);
    assert_eq!(group.limit(), Ok(None));
    assert!(guest.resident() >= Bytes::mib(40), "{}: it was a slow one", guest.resident());
    assert!(guest.is_intact());
}
