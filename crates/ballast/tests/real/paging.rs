//! The host pages real guests out under the real daemon: guests that ignore their balloons, and the
//! richest guests when the host is short.
//!
//! A host is short when its available memory is well below its reserve. To make it short without
//! using up memory, the tests configure a reserve larger than what the host has available.
//!
//! Limits: asserts states and counts, never times; needs QEMU, a built `lab-guest`, and root, for
//! the host's swap.

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::journal::assert_file_intact;
use crate::support::monitor::Monitor;
use crate::support::moved::Destination;
use crate::support::own_cgroup::OwnCgroup;
use crate::support::{
    IMPATIENT, Lab, SWAP, allocation, assert_unrefused, resident, set_ceiling, swapped, swapping,
    ticks, touch_once, turn, wait_allocation, wait_guests, wait_settled, wait_stuck,
};
use ballast_actuation::paging::OVERHEAD;
use ballast_lab_host::GuestSpec;
use ballast_model::{Bytes, Mechanism, MechanismReason, PressureLevel};
use ballast_reclaim::{GuestMemory, GuestRam};
use ballast_store::TickEntry;
use rustix::process::Signal;

/// Boot memory of each of two guests, the budget of both, and the size to which the guest that does
/// not give is asked to shrink.
const BOOT: Bytes = Bytes::mib(512);
const BUDGET: Bytes = Bytes::mib(768);
const ASKED: Bytes = Bytes::mib(256);
/// Memory that it touched once and does not use.
const IDLE: Bytes = Bytes::mib(240);
/// Two sizes of its workload.
const WORKS_LITTLE: Bytes = Bytes::mib(40);
const WORKS_WITH: Bytes = Bytes::mib(160);
/// What a process may occupy above its bound: what is not worth paging, and what it touches between
/// two samples.
const SLACK: Bytes = Bytes::mib(16);
/// The dead band: the policy `static` makes no smaller change.
const DEAD_BAND: Bytes = Bytes::mib(10);
/// Two guests: `stubborn`, which has idle memory, a workload and a balloon that does nothing, and
/// `needy`. Their QEMUs reboot when the guests do, instead of ending.
fn guests() -> Vec<GuestSpec> {
    let spec = |name| {
        let extra_args = ["-action", "reboot=reset"].map(str::to_owned).to_vec();
        GuestSpec { agent: true, extra_args, ..swapping(name, BOOT) }
    };
    ["stubborn", "needy"].map(spec).into()
}

/// Writes a configuration for these guests; `host` is more for the table `[host]`, `more` are other
/// tables.
fn configure(lab: &Lab, testbed: &Testbed, host: &str, more: &str) {
    let agents = lab.guest("needy").agent_socket().unwrap().parent().unwrap().to_owned();
    let settings = format!(
        "[host]\nbudget = \"{BUDGET}\"\n{host}\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [agents]\nfolders = [{agents:?}]\n{more}\n",
    );
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", &settings);
}

/// A testbed under which `stubborn` has all of its memory until `needy` may have more.
fn configured(lab: &Lab, more: &str) -> Testbed {
    let testbed = Testbed::new();
    let ceiling = BUDGET.saturating_sub(BOOT);
    let more = format!("{IMPATIENT}\n[guests.needy]\nceiling = \"{ceiling}\"\n{more}");
    configure(lab, &testbed, "", &more);
    testbed
}

/// Asks `stubborn` for memory and makes it give none; its workload uses `works_with`.
fn ask_in_vain(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>, works_with: Bytes) {
    ask_in_vain_for(ASKED, lab, testbed, daemon, works_with);
}

/// The same; it is asked to shrink to `asked`.
fn ask_in_vain_for(
    asked: Bytes,
    lab: &Lab,
    testbed: &Testbed,
    daemon: &Daemon<'_>,
    works_with: Bytes,
) {
    wait_allocation("its ceiling", daemon, "needy", |holds| holds <= BUDGET.saturating_sub(BOOT));
    wait_allocation("all of its memory", daemon, "stubborn", |holds| holds == BOOT);
    touch_once(lab, "stubborn", IDLE);
    lab.start_constant("stubborn", works_with);
    lab.shell("stubborn", "rmmod virtio_balloon");
    set_ceiling(testbed, "needy", BOOT);
    set_ceiling(testbed, "stubborn", asked);
    wait_stuck(daemon, "stubborn");
    assert_eq!(allocation(daemon, "stubborn"), Some(BOOT), "its balloon does nothing");
}

/// What all other processes have in swap: their memory may be swapped out while guests are paged
/// out.
fn swapped_by_others(lab: &Lab) -> Bytes {
    let host = ballast_host::HostReader::new("/proc".as_ref()).sample().0;
    let used = host.swap_total.unwrap().saturating_sub(host.swap_free.unwrap());
    let guests = ["stubborn", "needy"].iter().filter_map(|name| swapped(lab, name)).sum();
    used.saturating_sub(guests)
}

/// The orders of a tick to page by this mechanism.
fn orders(tick: &TickEntry, mechanism: Mechanism) -> impl Iterator<Item = &ballast_model::Paging> {
    tick.plan.paging.iter().filter(move |it| it.mechanism == mechanism)
}

/// The host pages the guest out down to the size it was asked for, and no further. Its neighbour
/// gets that memory, and the guest keeps working with its data intact.
#[test]
fn a_guest_ignoring_its_balloon_is_paged_for_its_neighbour() {
    let _turn = turn();
    let Some(lab) = Lab::boot_with_swap(guests(), SWAP) else { return };
    let data = lab.store_data("stubborn", 48);
    let testbed = configured(&lab, "");
    let daemon = testbed.start();
    ask_in_vain(&lab, &testbed, &daemon, WORKS_LITTLE);
    let before = resident(&daemon, "stubborn").unwrap();
    let bound = ASKED.saturating_add(OVERHEAD);
    wait_for("its process to be as small as it was asked to be", || {
        resident(&daemon, "stubborn").filter(|it| *it <= bound.saturating_add(SLACK))
    });
    let used = swapped(&lab, "stubborn").unwrap();
    eprintln!("{before} before, bound {bound}, {used} in swap");
    assert!(used >= Bytes::mib(16), "{used}");
    let (_, out, _) = testbed.ballast(&["explain", "stubborn"]);
    assert!(out.contains("stuck"), "{out}");
    wait_allocation("what the other did not give", &daemon, "needy", |holds| {
        holds >= BUDGET.saturating_sub(bound).saturating_sub(Bytes::mib(32))
    });
    lab.start_constant("needy", Bytes::mib(200));
    assert!(lab.pace("needy").touches_per_s > 0.0);
    // Its data is intact and it keeps working; no process was killed for lack of memory.
    lab.assert_intact(&data);
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    for name in ["stubborn", "needy"] {
        let report = lab.guest(name).latest_report().unwrap().unwrap();
        assert_eq!(report.vm.oom_kill, Some(0), "{name}");
    }
    assert_eq!(allocation(&daemon, "stubborn"), Some(BOOT));
    assert!(ticks(&testbed).iter().any(|tick| orders(tick, Mechanism::PageOut).count() > 0));
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    assert_file_intact(&testbed.journal());
}

/// Without paging by process, the fence takes what the guest does not give, and no more. The fence
/// of a killed daemon stays; the next daemon takes it over and removes it when it ends.
#[test]
fn a_fence_takes_what_a_stuck_guest_owes() {
    let _turn = turn();
    let Some(lab) = Lab::boot_with_swap(guests(), SWAP) else { return };
    // Memory that it touches from now on is charged to this cgroup.
    let Some(group) = OwnCgroup::around(lab.guest("stubborn").pid().unsigned_abs()) else { return };
    let data = lab.store_data("stubborn", 48);
    let fenced = "[guests.stubborn]\nfence = true\n[mechanisms.paging]\nenabled = false";
    let testbed = configured(&lab, fenced);
    let daemon = testbed.start();
    // Its floor, which is less than it is charged for.
    let asked = Bytes::mib(128);
    ask_in_vain_for(asked, &lab, &testbed, &daemon, WORKS_WITH);
    let most = asked.saturating_add(OVERHEAD).saturating_add(BOOT.fraction(1, 8));
    // Final limits are multiples of 4 MiB; a limit on the way there equals what is charged.
    let is_height = |limit: &Bytes| limit.get().is_multiple_of(Bytes::mib(4).get());
    let charged = || group.charged();
    let before = charged();
    let height = wait_for("its fence to be as high as it was asked to be large", || {
        let limit = group.limit().filter(is_height)?;
        (limit <= most.saturating_add(Bytes::mib(8))).then_some(limit)
    });
    assert!(height >= asked.saturating_add(OVERHEAD), "{height}");
    let used = swapped(&lab, "stubborn").unwrap();
    eprintln!("{before} charged, then {} behind a fence at {height}, {used} in swap", charged());
    assert!(used >= Bytes::mib(4), "{used}");
    // The fence follows the hypervisor's own need, and a guest beyond it is slowed down until the
    // kernel has reclaimed the excess.
    wait_for("no more to be charged than its fence is high", || {
        (charged() <= group.limit()?).then_some(())
    });
    wait_for("an explanation that names it", || {
        let line = format!("fence      at {}", group.limit()?);
        testbed.ballast(&["explain", "stubborn"]).1.contains(&line).then_some(())
    });
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    lab.assert_intact(&data);
    assert_unrefused(&daemon);

    daemon.kill();
    assert!(group.limit().is_some(), "nobody lifts it");
    let daemon = testbed.start();
    wait_for("the next daemon to take it over", || {
        let fence = guest(&daemon.status()?, "stubborn")?.fence.clone()?;
        (fence.limit_bytes == group.limit().map(Bytes::get)).then_some(())
    });
    assert!(daemon.stop().success());
    assert_eq!(group.limit(), None);
    let report = lab.guest("stubborn").latest_report().unwrap().unwrap();
    assert_eq!(report.vm.oom_kill, Some(0));
}

/// If a tracker knows which pages are cold, those are paged out: the guest loses next to nothing of
/// what it works with.
#[test]
fn of_a_tracked_guest_the_cold_pages_go_first() {
    if !crate::support::may_track() {
        return;
    }
    let _turn = turn();
    let tracked = |spec: GuestSpec| GuestSpec { tracked: spec.id.as_str() == "stubborn", ..spec };
    let guests = guests().into_iter().map(tracked).collect();
    let Some(lab) = Lab::boot_with_swap(guests, SWAP) else { return };
    let tracking = "[tracking]\ninterval = \"500ms\"\nevery = true\nintermittent = \"off\"";
    let testbed = configured(&lab, tracking);
    let daemon = testbed.start();
    let before = (written(), swapped_by_others(&lab));
    ask_in_vain(&lab, &testbed, &daemon, WORKS_WITH);
    let bound = ASKED.saturating_add(OVERHEAD);
    wait_allocation("what the other did not give", &daemon, "needy", |holds| {
        holds >= BUDGET.saturating_sub(bound).saturating_sub(Bytes::mib(32))
    });
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());

    // Pages of its workload would have been read back at once.
    let pid = lab.guest("stubborn").pid().unsigned_abs();
    let ram = GuestRam::AtLeast(Bytes::mib(64));
    let residency =
        GuestMemory::open("/proc".as_ref(), pid, None, ram).unwrap().residency().unwrap();
    let others = swapped_by_others(&lab).saturating_sub(before.1);
    let written = (written() - before.0).saturating_sub(others);
    let away = residency.swapped.unwrap();
    eprintln!("{written} written to swap, {away} still there");
    assert!(away >= Bytes::mib(64), "{away}");
    assert!(written.get() * 5 <= away.get() * 6, "{written} for {away}");
}

/// What the host has written to swap since its boot.
fn written() -> Bytes {
    let vmstat = std::fs::read_to_string("/proc/vmstat").unwrap();
    let pages = vmstat.lines().find_map(|line| line.strip_prefix("pswpout ")).unwrap();
    Bytes::pages(pages.parse().unwrap())
}

/// A host whose swap is smaller than what has to be paged out writes as much as it may, reports
/// that, and stops.
#[test]
fn a_tiny_swap_is_filled_to_its_limit_and_reported() {
    let _turn = turn();
    const RESERVE: Bytes = Bytes::mib(64);
    const MORE: Bytes = Bytes::mib(32);
    let Some(lab) = Lab::boot_with_swap(guests(), RESERVE + MORE) else { return };
    let testbed = configured(&lab, "");
    let daemon = testbed.start();
    ask_in_vain(&lab, &testbed, &daemon, WORKS_LITTLE);
    let says_so = wait_for("the log to say that there is no more", || {
        let says_so = testbed.log().contains("in use, expected less than");
        (says_so || swapped_by_others(&lab) >= MORE).then_some(says_so)
    });
    if !says_so {
        return println!("SKIPPED: other memory went to the host's swap first");
    }
    wait_settled(&daemon);
    let used = swapped(&lab, "stubborn").unwrap();
    eprintln!("{used} in swap, {} of others", swapped_by_others(&lab));
    assert!(used > Bytes::ZERO && used <= MORE.saturating_add(Bytes::mib(8)), "{used} of {MORE}");
    assert!(
        resident(&daemon, "stubborn").unwrap() > ASKED.saturating_add(OVERHEAD),
        "not to its bound"
    );
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

/// Paging slow enough to be caught in the middle.
const SLOW: &str = "[mechanisms.paging]\nper_second = \"8MiB\"";

/// Waits until a part of a guest has been paged out and more has to be.
fn wait_mid_page_out(lab: &Lab, daemon: &Daemon<'_>, name: &str) {
    let before = resident(daemon, name).unwrap();
    let now = wait_for("pages to leave", || {
        resident(daemon, name).filter(|now| now.saturating_add(Bytes::mib(24)) <= before)
    });
    let bound = ASKED.saturating_add(OVERHEAD);
    let used = swapped(lab, name);
    eprintln!("{before} before, {now} in mid page-out to {bound}, {used:?} in swap");
    assert!(now > bound.saturating_add(SLACK), "{now}: not in the middle any more");
}

/// A guest that is rebooted in mid page-out has a working balloon again: it gives what it is asked
/// for, the host no longer pages it, and it gets its memory back when it may have it.
#[test]
fn a_guest_rebooted_in_mid_page_out_balloons_instead() {
    let _turn = turn();
    let Some(lab) = Lab::boot_with_swap(guests(), SWAP) else { return };
    let testbed = configured(&lab, SLOW);
    let daemon = testbed.start();
    ask_in_vain(&lab, &testbed, &daemon, WORKS_LITTLE);
    wait_mid_page_out(&lab, &daemon, "stubborn");
    let before = lab.boots("stubborn");
    Monitor::connect(lab.guest("stubborn").lab_qmp_socket())
        .run("system_reset", &serde_json::json!({}));
    wait_for("the guest to boot", || (lab.boots("stubborn") > before).then_some(()));
    wait_allocation("what it was asked for", &daemon, "stubborn", |holds| {
        holds <= ASKED.saturating_add(Bytes::mib(4))
    });
    wait_for("the guest to comply", || {
        (guest(&daemon.status()?, "stubborn")?.compliance.as_ref()?.code == "compliant")
            .then_some(())
    });
    wait_allocation("all of the rest", &daemon, "needy", |holds| {
        holds >= BUDGET.saturating_sub(ASKED).saturating_sub(Bytes::mib(8))
    });
    let paged = ticks(&testbed).len();
    set_ceiling(&testbed, "needy", BUDGET.saturating_sub(BOOT));
    set_ceiling(&testbed, "stubborn", BOOT);
    // Orders below the dead band, 2 % of a guest's memory, are not sent.
    wait_allocation("all it may have", &daemon, "stubborn", |holds| {
        holds >= BOOT.saturating_sub(BOOT.fraction(1, 50))
    });
    wait_settled(&daemon);
    let (_, out, _) = testbed.ballast(&["explain", "stubborn", "--json"]);
    let inputs = serde_json::from_str::<ballast_api::ExplainReply>(&out).unwrap().inputs;
    let ages = (inputs.stats.unwrap().age_ms, inputs.agent.unwrap().age_ms);
    assert!(ages.0.max(ages.1) < 10_000, "{ages:?}");
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    let later = &ticks(&testbed)[paged..];
    assert!(later.len() > 8, "{}", later.len());
    assert!(later.iter().all(|tick| orders(tick, Mechanism::PageOut).count() == 0));
    // No guest counts for less than it holds, as one that is held to a bound would.
    let last = later.last().unwrap();
    let held: Bytes = last.plan.guests.iter().filter_map(|guest| guest.allocation).sum();
    assert!(last.plan.budget.committed >= held, "{:?}", last.plan);
    assert_file_intact(&testbed.journal());
}

/// A guest that is killed in mid page-out leaves nothing behind: its neighbour gets what it held,
/// and its swap is free again.
#[test]
fn a_guest_killed_in_mid_page_out_frees_swap() {
    let _turn = turn();
    let Some(lab) = Lab::boot_with_swap(guests(), SWAP) else { return };
    let testbed = configured(&lab, SLOW);
    let daemon = testbed.start();
    ask_in_vain(&lab, &testbed, &daemon, WORKS_LITTLE);
    wait_mid_page_out(&lab, &daemon, "stubborn");
    let needy = allocation(&daemon, "needy").unwrap();
    let used = swapped(&lab, "stubborn").unwrap();
    assert!(used >= Bytes::mib(16) && needy < BOOT, "{used} in swap, {needy} held");
    lab.guest("stubborn").kill();
    // When a process ends, the kernel frees its private memory, also in swap.
    wait_for("its swap to be free", || swapped(&lab, "stubborn").is_none().then_some(()));
    wait_guests(&daemon, 1);
    wait_allocation("all it may have", &daemon, "needy", |holds| holds == BOOT);
    lab.start_constant("needy", Bytes::mib(300));
    assert!(lab.pace("needy").touches_per_s > 0.0);
    wait_settled(&daemon);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    let last = ticks(&testbed).pop().unwrap();
    assert_eq!(last.plan.paging, []);
    assert_file_intact(&testbed.journal());
}

/// A guest that is moved to another QEMU in mid page-out takes all its memory along, including what
/// is in the host's swap. The host no longer pages the old process, and does not page the new one,
/// because nothing is known about its memory.
#[test]
fn a_guest_moved_in_mid_page_out_keeps_its_memory() {
    let _turn = turn();
    // No disk: it cannot be in two places, and this test does not need one.
    let spec = GuestSpec::new("stubborn".parse().unwrap(), BOOT);
    let Some(lab) = Lab::boot_with_swap(vec![spec], SWAP) else { return };
    let testbed = Testbed::new();
    let settings = format!(
        "[host]\nbudget = \"2GiB\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n[defaults]\nswap = true\n\
         {IMPATIENT}\n{SLOW}\n[guests.comes]\nceiling = \"{ASKED}\"\n"
    );
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", &settings);
    let daemon = testbed.start();
    wait_allocation("all of its memory", &daemon, "stubborn", |holds| holds == BOOT);
    let data = lab.store_data("stubborn", 64);
    touch_once(&lab, "stubborn", IDLE);
    lab.shell("stubborn", "rmmod virtio_balloon");
    set_ceiling(&testbed, "stubborn", ASKED);
    wait_stuck(&daemon, "stubborn");
    wait_mid_page_out(&lab, &daemon, "stubborn");

    let destination = Destination::start(&lab, "stubborn", "comes");
    let left = lab.guest("stubborn").lab_qmp_socket();
    destination.begin(left, 8);
    wait_settled(&daemon);
    destination.finish(left);
    wait_for("the guest to run", || {
        (guest(&daemon.status()?, "comes")?.state.code == "running").then_some(())
    });
    wait_settled(&daemon);
    assert_eq!(orders(&ticks(&testbed).pop().unwrap(), Mechanism::PageOut).count(), 0);
    assert_eq!(allocation(&daemon, "comes"), Some(BOOT));
    lab.guest("stubborn").kill();
    wait_guests(&daemon, 1);
    destination.assert_intact(&data);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    assert_file_intact(&testbed.journal());
}

/// What `needy` has at first, and its floor later, while the host has no memory to grant.
const ENOUGH: Bytes = Bytes::mib(192);
const LACKED: Bytes = Bytes::mib(256);
/// Settings under which a decision may shrink a guest only by less than an action is worth, so that
/// only the host's paging takes memory.
const NO_SHRINKING: &str = "[guard]\nstep_down_max = \"64KiB\"\n";

/// Bounds by which `needy` has `needs`, and `stubborn` all the rest but at least [`ASKED`].
fn bounds(needs: Bytes) -> String {
    format!(
        "[guests.stubborn]\nfloor = \"{ASKED}\"\n\
         [guests.needy]\nfloor = \"{needs}\"\nceiling = \"{needs}\"\n"
    )
}

/// A reserve such that the host has `sixteenths` sixteenths of it available.
fn reserve_for(daemon: &Daemon<'_>, sixteenths: u64) -> Bytes {
    let host = daemon.status().unwrap().host;
    let available = Bytes::new(host.memory_available_bytes.unwrap());
    let reserve = available.fraction(16, sixteenths).page_floor();
    eprintln!("{available} available, {reserve} to be kept");
    reserve
}

fn wait_level(daemon: &Daemon<'_>, level: PressureLevel) {
    wait_for(level.code(), || (daemon.status()?.host_pressure.code == level.code()).then_some(()));
}

/// A host that becomes short pages out the richest guests, none below its floor. When it is shorter
/// still, it grants nothing, whatever a guest lacks. When it has enough again, it reads back what
/// it paged out and grants what guests lack.
#[test]
fn a_short_host_reclaims_from_the_richest_then_recovers() {
    let _turn = turn();
    let Some(lab) = Lab::boot_with_swap(guests(), SWAP) else { return };
    let data = lab.store_data("stubborn", 48);
    let testbed = Testbed::new();
    configure(&lab, &testbed, "", &bounds(ENOUGH));
    let daemon = testbed.start();
    let keep = |reserve: Bytes, needs: Bytes| {
        let more = format!("{NO_SHRINKING}{}", bounds(needs));
        configure(&lab, &testbed, &format!("reserve = \"{reserve:#}\""), &more);
    };
    wait_allocation("all the rest", &daemon, "stubborn", |holds| holds == BOOT);
    wait_allocation("what it needs", &daemon, "needy", |holds| holds == ENOUGH);
    touch_once(&lab, "stubborn", IDLE);
    lab.start_constant("stubborn", WORKS_LITTLE);
    lab.pace("stubborn");
    let before = resident(&daemon, "stubborn").unwrap();
    assert_eq!(daemon.status().unwrap().host_pressure.code, PressureLevel::Normal.code());

    // Available: less than three eighths of the reserve, and more than two.
    keep(reserve_for(&daemon, 5), ENOUGH);
    daemon.signal(Signal::HUP);
    wait_level(&daemon, PressureLevel::ReclaimRichest);
    let (_, out, _) = testbed.ballast(&["status"]);
    assert!(out.contains("short    "), "{out}");
    let bound = ASKED.saturating_add(OVERHEAD);
    let left = wait_for("its process to be as small as its floor lets it be", || {
        resident(&daemon, "stubborn").filter(|it| *it <= bound.saturating_add(SLACK))
    });
    let used = swapped(&lab, "stubborn").unwrap();
    eprintln!("{before} before, {left} left, {used} in swap");
    assert!(used >= Bytes::mib(16) && left >= ASKED, "{left} left, {used} in swap");
    assert_eq!(allocation(&daemon, "stubborn"), Some(BOOT), "not by its balloon");

    // Less than two eighths. A new daemon starts on that host; its reserve is lowered later.
    keep(reserve_for(&daemon, 3), LACKED);
    assert!(daemon.stop().success());
    let daemon = testbed.start();
    wait_level(&daemon, PressureLevel::Freeze);
    wait_settled(&daemon);
    assert_eq!(allocation(&daemon, "needy"), Some(ENOUGH), "nothing is granted");
    let (_, out, _) = testbed.ballast(&["status"]);
    assert!(out.contains("nothing is granted"), "{out}");
    let (_, out, _) = testbed.ballast(&["explain", "needy"]);
    let lacks = format!("to release {}", LACKED.saturating_sub(ENOUGH));
    assert!(out.contains(&lacks), "{out}");
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    wait_for("its process to be as small under the other daemon", || {
        resident(&daemon, "stubborn").filter(|it| *it <= bound.saturating_add(SLACK))
    });

    keep(Bytes::mib(512), LACKED);
    daemon.signal(Signal::HUP);
    wait_allocation("what it lacked", &daemon, "needy", |holds| holds == LACKED);
    wait_level(&daemon, PressureLevel::Normal);
    wait_for("what was taken to be read back", || {
        swapped(&lab, "stubborn").filter(|it| *it <= used.fraction(1, 4))
    });
    lab.assert_intact(&data);
    assert!(lab.pace("stubborn").touches_per_s > 0.0);
    for name in ["stubborn", "needy"] {
        let report = lab.fresh_report(name);
        assert_eq!(report.vm.oom_kill, Some(0), "{name}");
    }
    // It gave a little, in steps of 64 KiB, while `needy` was below its floor.
    let nearly = BOOT.saturating_sub(DEAD_BAND);
    wait_allocation("all the rest again", &daemon, "stubborn", |holds| holds >= nearly);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    assert_file_intact(&testbed.journal());
    assert_told(&ticks(&testbed));
}

/// Checks the journal of a host that was short.
fn assert_told(ticks: &[TickEntry]) {
    let mut levels: Vec<PressureLevel> = ticks.iter().map(|tick| tick.plan.host_pressure).collect();
    levels.dedup();
    let back = [
        PressureLevel::ReclaimRichest,
        PressureLevel::ReclaimOwed,
        PressureLevel::BalloonOnly,
        PressureLevel::Normal,
    ];
    assert_eq!(
        levels,
        [&[PressureLevel::Normal, PressureLevel::ReclaimRichest, PressureLevel::Freeze], &back[..]]
            .concat()
    );
    for tick in ticks.iter().filter(|tick| tick.plan.host_pressure >= PressureLevel::ReclaimRichest)
    {
        for sample in tick.snapshot.guests() {
            let at = format!("{} at {}: {:?}", sample.id, tick.plan.host_pressure, tick.plan);
            if sample.id.as_str() == "stubborn" {
                assert!(sample.resident.is_none_or(|it| it.value >= ASKED), "{at}");
            } else if tick.plan.host_pressure == PressureLevel::Freeze {
                // During recovery there is free memory long before the host grants any.
                assert!(sample.allocation.is_none_or(|it| it.value <= ENOUGH), "{at}");
            }
        }
        let mut out = orders(tick, Mechanism::PageOut);
        assert!(out.all(|order| order.guest.as_str() == "stubborn"), "{:?}", tick.plan);
    }
    let whys = ticks.iter().flat_map(|tick| &tick.plan.guests).flat_map(|guest| &guest.moves);
    assert!(
        whys.into_iter()
            .any(|it| it.why == MechanismReason::HostShort { level: PressureLevel::ReclaimRichest })
    );
    let taken = ticks.iter().rposition(|tick| orders(tick, Mechanism::PageOut).count() > 0);
    let back = ticks.iter().position(|tick| orders(tick, Mechanism::PageIn).count() > 0);
    assert!(taken < back, "{taken:?} {back:?}");
}
