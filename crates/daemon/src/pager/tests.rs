//! Tests of the pager: of its threads, and with a real process in a real cgroup and real swap.
//!
//! Limits: the latter need root and a cgroup v1 memory controller; otherwise they print `SKIPPED`.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ballast_model::Generation;
use ballast_reclaim::{CgroupVersion, MemoryCgroup, VmmProcess, parse_mountinfo};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use ballast_reclaim::SwapBounds;

use super::*;

/// Memory the process holds: more than [`RAM_MIN`], so that it counts as guest memory.
const HELD: Bytes = Bytes::mib(160);
/// Memory to page out.
const OWED: Bytes = Bytes::mib(40);
/// Tolerance: the kernel batches its counts per CPU.
const SLACK: Bytes = Bytes::mib(2);
/// How much more than ordered a page-out may shrink the process. While swap is slow, the kernel
/// unmaps more pages until the first ones are written: 16 MiB more were seen on a loaded machine.
const BEYOND_MAX: Bytes = OWED;
/// Deadline of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Swap is shared by the host: run one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_tried(why: &str) {
    println!("SKIPPED: {why}");
}

/// A swap area, removed on drop.
struct SwapArea(tempfile::TempDir);

impl SwapArea {
    /// `None`, with a `SKIPPED` line, where swap cannot be added.
    fn new() -> Option<SwapArea> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("swap");
        // Other memory of the host may be swapped out as well.
        let len = Bytes::gib(4).get();
        let is_on = fs::File::create(&path).is_ok_and(|file| {
            let nothing = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, nothing, 0, len).is_ok()
                && rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR).is_ok()
                && ["mkswap", "swapon"].iter().all(|program| {
                    let output = Command::new(program).arg(&path).output();
                    output.is_ok_and(|output| output.status.success())
                })
        });
        if !is_on {
            not_tried("cannot add a swap area");
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
    /// `None`, with a `SKIPPED` line, where such a cgroup cannot be made.
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
        // dd reads everything into one buffer, then blocks on writing it, because nothing reads its
        // output.
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
        self.vmm().resident().unwrap()
    }

    fn vmm(&self) -> VmmProcess {
        VmmProcess::open(Path::new(PROC), self.child.id(), None).unwrap()
    }

    fn order(&self, resident: Bytes, generation: u64) -> Order {
        let paging = Paging {
            guest: "web".parse().unwrap(),
            mechanism: Mechanism::PageOut,
            resident,
            generation: Generation(generation),
            deadline: clock::now() + PATIENCE,
        };
        let process = ProcessId { pid: self.child.id(), start_ticks: self.vmm().start_time() };
        Order { paging, process, resident: self.resident(), coldness: None }
    }

    /// Whether its memory is unchanged.
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
        // The kernel frees the cgroup a moment after the process ends.
        let begun = Instant::now();
        while fs::remove_dir(&self.folder).is_err() && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::sleep(PAUSE);
    }
}

fn settings(way: PagingWay) -> PagerSettings {
    let swap = SwapBounds { use_max_percent: 100, reserve: Bytes::ZERO };
    PagerSettings { way, per_second: Bytes::gib(4), swap, host_reserve: Bytes::ZERO }
}

/// The final outcome of the next order that ends.
fn final_outcome(pager: &mut Pager) -> PagingOutcome {
    let mut end = None;
    wait_for("the order to end", || {
        end = pager.take_outcomes().into_iter().find(|paged| paged.end.is_some());
        end.is_some()
    });
    end.unwrap()
}

/// Repeats page-out orders, as ticks do, until the process is small enough; returns each outcome.
fn page_out(guest: &Guest, way: PagingWay) -> Vec<PagingOutcome> {
    let before = guest.resident();
    let to = before.saturating_sub(OWED);
    let mut pager = Pager::new(Some(settings(way)));
    let mut outcomes = Vec::new();
    wait_for("the process to shrink to its target", || {
        pager.obey(vec![guest.order(to, outcomes.len() as u64)]);
        outcomes.push(final_outcome(&mut pager));
        guest.resident() <= to.saturating_add(SLACK)
    });
    let left = guest.resident();
    println!("{before} before, {left} of {to} after {outcomes:?}");
    assert!(left >= to.saturating_sub(BEYOND_MAX), "{left} of {to}");
    assert!(
        outcomes.iter().all(|it| matches!(it.end, Some(PagingEnd::Finished(_)))),
        "{outcomes:?}"
    );
    assert!(
        outcomes.iter().map(|it| it.moved).sum::<Bytes>() >= OWED.saturating_sub(SLACK),
        "{outcomes:?}"
    );
    let group = MemoryCgroup::find(Path::new(ROOT), guest.child.id()).unwrap();
    assert_eq!(group.limit(), Ok(None), "no limit is left behind");
    outcomes
}

#[test]
fn a_configured_cgroup_pages_the_guest_out() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    for outcome in page_out(&guest, PagingWay::Cgroup) {
        assert_eq!((outcome.way, outcome.not_by_process), (Some("cgroup-limit"), None));
    }
    assert!(guest.is_intact());
}

#[test]
fn the_cgroup_is_used_only_without_permission_for_the_process() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    let all = capabilities(None).unwrap();
    if !all.effective.contains(CapabilitySet::SYS_NICE | CapabilitySet::SYS_PTRACE) {
        return not_tried("CAP_SYS_NICE and CAP_SYS_PTRACE are missing");
    }
    for outcome in page_out(&guest, PagingWay::Auto) {
        assert_eq!((outcome.way, outcome.not_by_process), (Some("page-out"), None));
    }

    // Drops the capability of this thread and the threads it starts.
    let effective = all.effective - CapabilitySet::SYS_NICE;
    let permitted = all.permitted - CapabilitySet::SYS_NICE;
    set_capabilities(None, rustix::thread::CapabilitySets { effective, permitted, ..all }).unwrap();
    // Pages already written still sit in the swap cache, charged to the cgroup; these go first.
    for outcome in page_out(&guest, PagingWay::Auto) {
        assert_eq!(outcome.way, Some("cgroup-limit"));
        let why = outcome.not_by_process.unwrap();
        assert!(why.to_string().contains("CAP_SYS_NICE"), "{why}");
    }

    // Configured to page by process, the pager never falls back to the cgroup.
    let mut pager = Pager::new(Some(settings(PagingWay::Process)));
    pager.obey(vec![guest.order(Bytes::ZERO, 2)]);
    let refused = final_outcome(&mut pager);
    assert_eq!((refused.moved, refused.way), (Bytes::ZERO, Some("page-out")));
    assert!(
        matches!(refused.end, Some(PagingEnd::Refused(ReclaimError::Permission { .. }))),
        "{refused:?}"
    );
    assert!(guest.is_intact());
}

#[test]
fn an_order_with_an_old_size_pages_out_nothing_more() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    let effective = capabilities(None).unwrap().effective;
    if !effective.contains(CapabilitySet::SYS_NICE | CapabilitySet::SYS_PTRACE) {
        return not_tried("CAP_SYS_NICE and CAP_SYS_PTRACE are missing");
    }
    let to = guest.resident().saturating_sub(OWED);
    let order = guest.order(to, 1);
    let mut pager = Pager::new(Some(settings(PagingWay::Process)));
    wait_for("the process to shrink to its target", || {
        pager.obey(vec![order.clone()]);
        final_outcome(&mut pager);
        guest.resident() <= to.saturating_add(SLACK)
    });
    pager.obey(vec![order]);
    let again = final_outcome(&mut pager);
    assert!(matches!(again.end, Some(PagingEnd::Finished(_))), "{again:?}");
    assert!(again.moved <= SLACK, "{again:?}");
    assert!(guest.is_intact());
}

#[test]
fn an_old_size_never_raises_what_is_paged_out() {
    let mut order = order_of("web");
    (order.resident, order.paging.resident) = (Bytes::mib(100), Bytes::mib(60));
    for (now, expected) in [(130, 40), (100, 40), (75, 15), (60, 0), (20, 0)] {
        assert_eq!(page_out_amount(&order, Bytes::mib(now)), Bytes::mib(expected), "{now}");
    }
}

#[test]
fn what_a_process_occupies_is_read_when_asked() {
    let ram = GuestRam::AtLeast(RAM_MIN);
    let held = vec![1_u8; HELD.get() as usize];
    let own = GuestMemory::open(Path::new(PROC), std::process::id(), None, ram).unwrap();
    assert!(occupied_now(&own).unwrap() >= HELD);
    std::hint::black_box(&held);
}

#[test]
fn a_shared_cgroup_is_left_alone() {
    let _turn = turn();
    let Some(guest) = Guest::new() else { return };
    let procs = guest.folder.join("cgroup.procs");
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    fs::write(procs, other.id().to_string()).unwrap();
    let mut pager = Pager::new(Some(settings(PagingWay::Cgroup)));
    pager.obey(vec![guest.order(Bytes::ZERO, 1)]);
    let refused = final_outcome(&mut pager);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!((refused.moved, refused.way), (Bytes::ZERO, None));
    let Some(PagingEnd::Refused(why)) = refused.end else { panic!("{:?}", refused.end) };
    assert_eq!(why.code(), "shared-cgroup", "{why}");
    assert!(guest.resident() >= HELD);
}

#[test]
fn dropped_orders_and_a_stopped_daemon_leave_no_limit() {
    let _turn = turn();
    let Some(_swap) = SwapArea::new() else { return };
    let Some(mut guest) = Guest::new() else { return };
    let group = MemoryCgroup::find(Path::new(ROOT), guest.child.id()).unwrap();
    let slow = PagerSettings { per_second: Bytes::mib(4), ..settings(PagingWay::Cgroup) };
    let mut pager = Pager::new(Some(slow));
    pager.obey(vec![guest.order(Bytes::mib(8), 1)]);
    wait_for("something to be moved", || {
        pager.take_outcomes().iter().any(|it| it.moved > Bytes::ZERO)
    });
    pager.obey(Vec::new());
    wait_for("more to be moved", || {
        pager.obey(vec![guest.order(Bytes::mib(8), 2)]);
        pager.take_outcomes().iter().any(|it| it.moved > Bytes::ZERO)
    });
    drop(pager);
    assert_eq!(group.limit(), Ok(None));
    assert!(
        guest.resident() >= Bytes::mib(40),
        "{}: the rate limit was exceeded",
        guest.resident()
    );
    assert!(guest.is_intact());
}

/// Stands in for a step: for guest `hangs` it never ends, for guest `panics` it panics.
fn misbehave(inbox: &Inbox<Assignment>, outcomes: &SyncSender<PagingOutcome>) {
    while let Letter::Order(Assignment { order, .. }) = inbox.wait(None) {
        let guest = order.paging.guest;
        match guest.as_str() {
            "hangs" => loop {
                std::thread::park();
            },
            "panics" => panic!("a fault"),
            _ => {}
        }
        let (mechanism, moved, end) = (order.paging.mechanism, Bytes::mib(1), None);
        let paged = PagingOutcome { guest, mechanism, way: None, not_by_process: None, moved, end };
        outcomes.send(paged).unwrap();
    }
}

fn order_of(guest: &str) -> Order {
    let paging = Paging {
        guest: guest.parse().unwrap(),
        mechanism: Mechanism::PageOut,
        resident: Bytes::ZERO,
        generation: Generation(1),
        deadline: Timestamp::ZERO,
    };
    let process = ProcessId { pid: 1, start_ticks: 0 };
    Order { paging, process, resident: Bytes::ZERO, coldness: None }
}

#[test]
fn a_process_that_has_a_reused_pid_is_not_paged() {
    let process = ProcessId { pid: std::process::id(), start_ticks: 0 };
    for mechanism in [Mechanism::PageOut, Mechanism::PageIn] {
        for way in [PagingWay::Auto, PagingWay::Process, PagingWay::Cgroup] {
            let mut order = Order { process, ..order_of("web") };
            order.paging.mechanism = mechanism;
            let mut pager = Pager::new(Some(settings(way)));
            pager.obey(vec![order]);
            let refused = final_outcome(&mut pager);
            assert_eq!((refused.moved, refused.way), (Bytes::ZERO, None));
            let Some(PagingEnd::Refused(why)) = refused.end else { panic!("{:?}", refused.end) };
            assert_eq!(why.code(), "reused", "{why} ({mechanism}, {way:?})");
        }
    }
}

#[test]
fn a_guest_whose_paging_hangs_holds_up_no_other() {
    let mut pager = Pager::doing(misbehave, Some(settings(PagingWay::Auto)));
    let orders = || vec![order_of("hangs"), order_of("panics"), order_of("works")];
    let mut moved = 0;
    wait_for("the others", || {
        pager.obey(orders());
        let paged = pager.take_outcomes();
        assert!(paged.iter().all(|paged| paged.guest.as_str() == "works"));
        moved += paged.len();
        moved >= 20
    });
    // A guest never has more than one thread, and the thread that panicked is replaced.
    assert!(pager.workers.len() <= 3, "{:?}", pager.workers.keys());
    wait_for("the thread that panicked to be seen and started again", || {
        pager.obey(orders());
        let panics: GuestId = "panics".parse().unwrap();
        pager.warnings.clear("panics (pager)") && pager.workers.contains_key(&panics)
    });
    pager.obey(vec![order_of("hangs")]);
    wait_for("the idle threads to end", || {
        pager.obey(Vec::new());
        pager.workers.len() == 1
    });
    let begun = Instant::now();
    drop(pager);
    assert!(begun.elapsed() < PATIENCE, "the end waits for a bounded time");
}
