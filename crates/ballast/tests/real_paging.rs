//! Real guests that ignore their balloons, paged out by the host under the real daemon.
//!
//! Limits: asserts states and counts, never times; needs QEMU, a built `lab-guest`, and root, for the host's swap.

mod harness;
mod real;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ballast_lab::GuestSpec;
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_mechanism::paging::OVERHEAD;
use ballast_model::{Bytes, Mechanism};
use ballast_reclaim::{GuestRam, Paging};
use ballast_store::{Range, Reader, What};
use harness::{Daemon, Ground, PATIENCE, guest, wait_for};
use real::journal::assert_file_intact;
use real::{Lab, allocation, swapping, wait_allocation, wait_settled};

/// Boot memory of each of two guests, what both have together, and what is asked of the one that does not give.
const BOOT: Bytes = Bytes::mib(512);
const BUDGET: Bytes = Bytes::mib(768);
const ASKED: Bytes = Bytes::mib(256);
/// What it held beyond that without using it.
const IDLE: Bytes = Bytes::mib(240);
/// What it works with where a tracker looks.
const WORKS_WITH: Bytes = Bytes::mib(160);
/// What a process may be above its bound: what is not worth paging, and what it touches between two looks.
const SLACK: Bytes = Bytes::mib(16);

/// Swap is the host's: one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two guests: `stubborn`, which has idle memory, something to do and a balloon that does nothing, and `needy`.
fn guests() -> Vec<GuestSpec> {
    ["stubborn", "needy"].map(|name| GuestSpec { agent: true, ..swapping(name, BOOT) }).into()
}

/// Until `needy` may have more, `stubborn` has all its memory.
fn configured(lab: &Lab, more: &str) -> Ground {
    let ground = Ground::new();
    let agents = lab.guest("needy").agent_socket().unwrap().parent().unwrap().to_owned();
    let settings = format!(
        "[host]\nbudget = \"{}\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [guard]\nstuck_after = \"3s\"\nrelease_grace = \"1s\"\n[agents]\nfolders = [{agents:?}]\n\
         [guests.needy]\nceiling = \"{}\"\n{more}",
        BUDGET,
        BUDGET.saturating_sub(BOOT),
    );
    ground.configure_for(lab.sockets(), "tick = \"250ms\"", &settings);
    ground
}

/// From here on `stubborn` gives nothing, and is asked to; it works with so much.
fn ask_in_vain(lab: &Lab, ground: &Ground, daemon: &Daemon<'_>, works_with: Bytes) {
    wait_allocation("its ceiling", daemon, "needy", |holds| holds <= BUDGET.saturating_sub(BOOT));
    wait_allocation("all of its memory", daemon, "stubborn", |holds| holds == BOOT);
    let once = WorkloadSpec::from(Pattern::Sequential { size: IDLE, passes: Some(1) });
    lab.guest("stubborn").start_workload("once", &once, PATIENCE).unwrap();
    lab.guest("stubborn").wait_done("once", PATIENCE).unwrap();
    lab.start_constant("stubborn", works_with);
    lab.shell("stubborn", "rmmod virtio_balloon");
    let ceiling = |name: &str, bytes: Bytes| {
        let (code, out, err) = ground.ballast(&["set", name, "--ceiling", &bytes.to_string()]);
        assert_eq!(code, Some(0), "{out}{err}");
    };
    ceiling("needy", BOOT);
    ceiling("stubborn", ASKED);
    wait_for("the guest to be found out", || {
        let status = daemon.status()?;
        let stubborn = guest(&status, "stubborn")?;
        (stubborn.compliance.as_ref()?.code == "stuck").then_some(())
    });
    assert_eq!(allocation(daemon, "stubborn"), Some(BOOT), "its balloon does nothing");
}

/// What its process occupies.
fn resident(daemon: &Daemon<'_>, name: &str) -> Option<Bytes> {
    guest(&daemon.status()?, name)?.resident_bytes.map(Bytes::new)
}

/// Swap of the host in use, and free.
fn swap() -> (Bytes, Bytes) {
    let host = ballast_host::HostReader::new("/proc".as_ref()).sample().0;
    let (total, free) = (host.swap_total.unwrap(), host.swap_free.unwrap());
    (total.saturating_sub(free), free)
}

/// Orders to page out that the journal has.
fn page_outs(ground: &Ground) -> usize {
    let reader = Reader::open(&ground.journal()).unwrap();
    let orders = |what: What| match what {
        What::Tick(tick) => {
            tick.plan.paging.iter().filter(|it| it.mechanism == Mechanism::PageOut).count()
        }
        What::Event(_) => 0,
    };
    reader.ticks(Range::default()).map(|entry| orders(entry.unwrap().what)).sum()
}

/// The host takes what it does not give, down to what it was asked for and no further; its neighbour gets that, and it
/// works on with what it had.
#[test]
fn a_guest_that_ignores_its_balloon_is_paged_out_and_its_neighbour_gets_the_memory() {
    let _turn = turn();
    let Some(lab) = Lab::boot_with_swap(guests(), Bytes::gib(1)) else { return };
    let data = lab.store_data("stubborn", 48);
    let ground = configured(&lab, "");
    let daemon = ground.start();
    ask_in_vain(&lab, &ground, &daemon, Bytes::mib(40));
    let before = resident(&daemon, "stubborn").unwrap();
    let bound = ASKED.saturating_add(OVERHEAD);
    wait_for("its process to be as small as it was asked to be", || {
        resident(&daemon, "stubborn").filter(|it| *it <= bound.saturating_add(SLACK))
    });
    let (used, _) = swap();
    eprintln!("{before} before, bound {bound}, {used} in swap");
    assert!(used >= Bytes::mib(16), "{used}");
    let (_, out, _) = ground.ballast(&["explain", "stubborn"]);
    assert!(out.contains("stuck"), "{out}");
    wait_allocation("what the other did not give", &daemon, "needy", |holds| {
        holds >= BUDGET.saturating_sub(bound).saturating_sub(Bytes::mib(32))
    });
    lab.start_constant("needy", Bytes::mib(200));
    assert!(lab.pace("needy").touches_per_s > 0.0);
    // What it had is there, and it works on; nobody was killed for lack of memory.
    lab.assert_intact(&data);
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    for name in ["stubborn", "needy"] {
        let report = lab.guest(name).latest_report().unwrap().unwrap();
        assert_eq!(report.vm.oom_kill, Some(0), "{name}");
    }
    assert_eq!(allocation(&daemon, "stubborn"), Some(BOOT));
    assert!(page_outs(&ground) > 0);
    assert_eq!(daemon.status().unwrap().daemon.unwrap().plans_refused, 0);
    assert!(daemon.stop().success());
    assert_file_intact(&ground.journal());
}

/// Where a tracker knows which pages are cold, these are taken: the guest misses next to nothing of what it works with.
#[test]
fn of_a_tracked_guest_the_cold_pages_go_first() {
    let _turn = turn();
    let tracked = |spec: GuestSpec| GuestSpec { tracked: spec.id.as_str() == "stubborn", ..spec };
    let guests = guests().into_iter().map(tracked).collect();
    let Some(lab) = Lab::boot_with_swap(guests, Bytes::gib(1)) else { return };
    let tracking = "[tracking]\ninterval = \"500ms\"\nevery = true\nintermittent = \"off\"";
    let ground = configured(&lab, tracking);
    let daemon = ground.start();
    let before = written();
    ask_in_vain(&lab, &ground, &daemon, WORKS_WITH);
    let bound = ASKED.saturating_add(OVERHEAD);
    wait_allocation("what the other did not give", &daemon, "needy", |holds| {
        holds >= BUDGET.saturating_sub(bound).saturating_sub(Bytes::mib(32))
    });
    assert_eq!(daemon.status().unwrap().daemon.unwrap().plans_refused, 0);
    assert!(daemon.stop().success());

    // What it works with it would have read back at once.
    let pid = lab.guest("stubborn").pid().unsigned_abs();
    let ram = GuestRam::AtLeast(Bytes::mib(64));
    let residency = Paging::open("/proc".as_ref(), pid, None, ram).unwrap().residency().unwrap();
    let (written, away) = (written() - before, residency.swapped.unwrap());
    eprintln!("{written} written to swap, {away} still there");
    assert!(away >= Bytes::mib(96), "{away}");
    assert!(written.get() * 5 <= away.get() * 6, "{written} for {away}");
}

/// What the host has written to swap since it was booted.
fn written() -> Bytes {
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap();
    let pages = vmstat.lines().find_map(|line| line.strip_prefix("pswpout ")).unwrap();
    Bytes::pages(pages.parse().unwrap())
}

/// A host whose swap is smaller than what is to be paged writes as much as it may, says so, and stops there.
#[test]
fn a_tiny_swap_is_used_up_to_its_bound_and_that_is_told() {
    let _turn = turn();
    let reserve = Bytes::mib(64);
    let Some(lab) = Lab::boot_with_swap(guests(), reserve + Bytes::mib(32)) else { return };
    let ground = configured(&lab, "");
    let daemon = ground.start();
    ask_in_vain(&lab, &ground, &daemon, Bytes::mib(40));
    wait_for("the log to say that there is no more", || {
        ground.log().contains("in use, expected less than").then_some(())
    });
    wait_settled(&daemon);
    let (used, free) = swap();
    eprintln!("{used} in swap, {free} free");
    assert!(used > Bytes::ZERO && free >= reserve.saturating_sub(Bytes::mib(8)), "{used} {free}");
    assert!(
        resident(&daemon, "stubborn").unwrap() > ASKED.saturating_add(OVERHEAD),
        "not to its bound"
    );
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    let status = daemon.status().unwrap();
    assert_eq!(status.daemon.unwrap().plans_refused, 0);
    assert!(daemon.stop().success());
}
