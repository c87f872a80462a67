//! Whatever a guest, a crash or a disk does, the guest beside it keeps what it is entitled to.
//!
//! Idea: two real guests, `offender` and `neighbour`, share less than their boot memory. The tests
//! do not rely on the daemon's status: the journal has what the host saw at every tick, and this
//! file's own arithmetic compares that with what the neighbour was promised.
//!
//! Limits: asserts states and wide bounds, never times; needs QEMU and a built `lab-guest`, and
//! root for the parts in which the host takes back what the offender holds.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ballast_actuation::paging::OVERHEAD;
use ballast_api::{Client, GuestView};
use ballast_lab_host::GuestSpec;
use ballast_model::{Bytes, GuestId, overhead_assumed};
use ballast_store::TickEntry;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Daemon, Testbed, guest, wait_for};
use crate::support::balloon_device::BalloonDevice;
use crate::support::journal::assert_file_intact;
use crate::support::monitor::Monitor;
use crate::support::{
    IMPATIENT, Lab, SWAP, allocation, assert_unrefused, resident, set_ceiling, swapped, swapping,
    ticks, touch_once, turn, wait_allocation, wait_settled, wait_stuck, wait_ticks,
};

const OFFENDER: &str = "offender";
const NEIGHBOUR: &str = "neighbour";
/// Boot memory of each guest, the budget of both, and half of that.
const BOOT: Bytes = Bytes::mib(512);
const BUDGET: Bytes = Bytes::mib(768);
const HALF: Bytes = Bytes::mib(384);
/// What one guest has when the other has all of its boot memory.
const REST: Bytes = Bytes::mib(256);
/// What the offender fills, far more than [`REST`], and the part that is data to compare.
const FILLED: Bytes = Bytes::mib(320);
const DATA_MIB: u64 = 96;
/// What a workload of either guest uses.
const WORKS_WITH: Bytes = Bytes::mib(40);
/// A balloon may stop this far from its target.
const SLACK: Bytes = Bytes::mib(4);
/// What an offender can hide, because its hypervisor may need it, and what its process may fault in
/// between two samples: far less than the lies of these tests are about.
const HIDDEN: Bytes = Bytes::mib(64);
const PAGING_OFF: &str = "[mechanisms.paging]\nenabled = false";

/// Both guests, with agents, so that figures arrive even without a balloon driver.
fn guests() -> Vec<GuestSpec> {
    [OFFENDER, NEIGHBOUR].map(|name| GuestSpec { agent: true, ..swapping(name, BOOT) }).into()
}

/// Boots both guests on a host with swap, or without if this process may not turn swap on. Also
/// returns whether the host can page guests out.
fn boot() -> (Lab, bool) {
    match Lab::boot_with_swap(guests(), SWAP) {
        Some(lab) => (lab, true),
        None => (Lab::boot(guests()), false),
    }
}

/// Writes the configuration: ceilings for the guests `limited`, so that the other has the rest, and
/// `more`.
fn configure(lab: &Lab, testbed: &Testbed, limited: &[&str], more: &str) {
    let agents = lab.guest(OFFENDER).agent_socket().unwrap().parent().unwrap().to_owned();
    let ceiling = |name| format!("[guests.{name}]\nceiling = \"{REST}\"\n");
    let ceilings: String = limited.iter().map(ceiling).collect();
    let settings = format!(
        "[host]\nbudget = \"{BUDGET}\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [agents]\nfolders = [{agents:?}]\n{IMPATIENT}\ndead_band = \"64KiB\"\n{ceilings}{more}\n",
    );
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", &settings);
}

/// The same, for a running daemon, which reloads it.
fn reconfigure(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>, limited: &[&str], more: &str) {
    configure(lab, testbed, limited, more);
    let loads = || testbed.log().matches("configuration reloaded").count();
    let before = loads();
    daemon.signal(Signal::HUP);
    wait_for("the configuration to be read", || (loads() > before).then_some(()));
}

/// Starts a daemon that takes memory from the neighbour and then grants it all of its boot memory,
/// which the offender gives.
fn start_with_all_granted<'a>(lab: &Lab, testbed: &'a Testbed, more: &str) -> Daemon<'a> {
    configure(lab, testbed, &[NEIGHBOUR], more);
    let daemon = testbed.start();
    wait_allocation("its ceiling", &daemon, NEIGHBOUR, |holds| holds == REST);
    reconfigure(lab, testbed, &daemon, &[OFFENDER], more);
    wait_allocation("what the other gives", &daemon, NEIGHBOUR, |holds| holds == BOOT);
    wait_allocation("its ceiling", &daemon, OFFENDER, |holds| holds == REST);
    daemon
}

/// A guest in the daemon's status.
fn view(daemon: &Daemon<'_>, name: &str) -> Option<GuestView> {
    guest(&daemon.status()?, name).cloned()
}

/// Whether the status has a note with this code.
fn is_noted(daemon: &Daemon<'_>, code: &str) -> bool {
    daemon.status().is_some_and(|status| status.notes.iter().any(|note| note.code == code))
}

fn wait_noted(daemon: &Daemon<'_>, code: &str) {
    wait_for(code, || is_noted(daemon, code).then_some(()));
}

/// What the host saw of the guest's own memory: what its process occupies, less what the hypervisor
/// needs.
fn seen(tick: &TickEntry, name: &str) -> Option<Bytes> {
    let sample = tick.snapshot.guest(&id(name))?;
    Some(sample.resident?.value.saturating_sub(sample.overhead?))
}

/// What a guest holds, or can take at any time by itself.
fn promised(tick: &TickEntry, name: &str) -> Option<Bytes> {
    let holds = tick.snapshot.guest(&id(name))?.allocation.map(|it| it.value);
    holds.max(tick.plan.guest(&id(name))?.target)
}

fn id(name: &str) -> GuestId {
    name.parse().unwrap()
}

/// Checks that the neighbour was never promised memory that the offender's process still occupied.
fn assert_covered(ticks: &[TickEntry]) {
    let mut checked = 0;
    for tick in ticks {
        let (Some(taken), Some(promised)) = (seen(tick, OFFENDER), promised(tick, NEIGHBOUR))
        else {
            continue;
        };
        checked += 1;
        assert!(
            taken.saturating_add(promised) <= BUDGET.saturating_add(HIDDEN),
            "{taken} taken, {promised} promised of {BUDGET}: {:#?}",
            tick.plan
        );
    }
    assert!(checked > 8, "{checked} of {}", ticks.len());
}

/// The ticks from the one that granted the neighbour `size`.
fn since_granted(ticks: &[TickEntry], size: Bytes) -> &[TickEntry] {
    let least = size.saturating_sub(SLACK);
    let target = |tick: &TickEntry| tick.plan.guest(&id(NEIGHBOUR))?.target;
    let first = ticks.iter().position(|tick| target(tick).is_some_and(|it| it >= least));
    &ticks[first.expect("the grant")..]
}

/// Checks that the neighbour is never asked for a part of `size` and, once it has that, never has
/// less.
fn assert_keeps(ticks: &[TickEntry], size: Bytes) {
    let least = size.saturating_sub(SLACK);
    let mut has_it = false;
    for tick in ticks {
        let Some(plan) = tick.plan.guest(&id(NEIGHBOUR)) else { continue };
        assert!(plan.target.is_none_or(|target| target >= least), "{:#?}", tick.plan);
        let sample = tick.snapshot.guest(&id(NEIGHBOUR)).unwrap();
        let Some(holds) = sample.allocation.map(|it| it.value) else { continue };
        has_it |= holds >= least;
        assert!(!has_it || holds >= least, "{holds} left: {plan:#?}");
    }
    assert!(has_it, "it never had {size}");
}

/// The most that the offender's process can occupy while it holds [`REST`].
fn occupied_max() -> Bytes {
    REST.saturating_add(overhead_assumed(BOOT))
}

/// Waits until the host has paged the offender out to what it is entitled to, as far as that can be
/// told apart from what its hypervisor needs.
fn wait_paged(lab: &Lab, daemon: &Daemon<'_>) {
    let left = wait_for("the host to take back what it holds", || {
        resident(daemon, OFFENDER).filter(|it| *it <= occupied_max())
    });
    let used = swapped(lab, OFFENDER).unwrap();
    eprintln!("{left} left of its process, {used} in swap");
    assert!(used >= Bytes::mib(16), "{used} in swap");
}

fn assert_works_on(lab: &Lab) {
    for name in [OFFENDER, NEIGHBOUR] {
        assert!(lab.pace(name).touches_per_s > 0.0, "{name}");
        assert_eq!(lab.fresh_report(name).vm.oom_kill, Some(0), "{name}");
    }
}

/// A guest without a balloon driver takes back all that it gave, and fills it. Its neighbour keeps
/// what it was granted from that. The host pages the guest out if it can, and otherwise reports
/// it.
#[test]
fn a_neighbour_keeps_what_a_guest_takes_back() {
    let _turn = turn();
    let (lab, can_page) = boot();
    let testbed = Testbed::new();
    let daemon = start_with_all_granted(&lab, &testbed, PAGING_OFF);
    lab.start_constant(NEIGHBOUR, WORKS_WITH);

    lab.shell(OFFENDER, "rmmod virtio_balloon");
    wait_allocation("all that it gave", &daemon, OFFENDER, |holds| holds == BOOT);
    touch_once(&lab, OFFENDER, FILLED);
    let data = lab.store_data(OFFENDER, DATA_MIB);
    lab.start_constant(OFFENDER, WORKS_WITH);
    wait_stuck(&daemon, OFFENDER);
    wait_noted(&daemon, "beyond-entitlement");
    wait_settled(&daemon);
    assert_keeps(since_granted(&ticks(&testbed), BOOT), BOOT);
    let occupied = resident(&daemon, OFFENDER).unwrap();
    assert!(occupied > occupied_max(), "{occupied}: it took nothing back");

    if can_page {
        reconfigure(&lab, &testbed, &daemon, &[OFFENDER], "");
        wait_paged(&lab, &daemon);
        wait_settled(&daemon);
    }
    lab.assert_intact(&data);
    assert_works_on(&lab);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    // While a process is held to a size, the allowance for its hypervisor counts as held.
    let room = if can_page { OVERHEAD } else { Bytes::ZERO };
    let ticks = ticks(&testbed);
    assert_keeps(since_granted(&ticks, BOOT), BOOT.saturating_sub(room));
    assert_file_intact(&testbed.journal());
}

/// A guest's driver claims to have given all that it was asked for, but gave nothing. What its
/// process occupies counts: its neighbour keeps what it has and is granted no memory that is not
/// free. If the host can page, it takes the memory and the neighbour gets it.
#[test]
fn memory_a_driver_claims_to_have_given_is_not_granted() {
    let _turn = turn();
    let (lab, can_page) = boot();
    let testbed = Testbed::new();
    configure(&lab, &testbed, &[NEIGHBOUR], PAGING_OFF);
    let daemon = testbed.start();
    wait_allocation("its ceiling", &daemon, NEIGHBOUR, |holds| holds <= REST + SLACK);
    wait_allocation("all the rest", &daemon, OFFENDER, |holds| holds == BOOT);
    touch_once(&lab, OFFENDER, FILLED);
    let data = lab.store_data(OFFENDER, DATA_MIB);
    for name in [OFFENDER, NEIGHBOUR] {
        lab.start_constant(name, WORKS_WITH);
    }
    let filled = resident(&daemon, OFFENDER).unwrap();
    let device = BalloonDevice::find(&lab, OFFENDER);
    lab.shell(OFFENDER, "rmmod virtio_balloon");
    device.claim_every_target();

    reconfigure(&lab, &testbed, &daemon, &[OFFENDER, NEIGHBOUR], PAGING_OFF);
    wait_allocation("the claim that it has given", &daemon, OFFENDER, |holds| holds == REST);
    wait_stuck(&daemon, OFFENDER);
    wait_noted(&daemon, "beyond-entitlement");
    wait_settled(&daemon);
    let before = resident(&daemon, OFFENDER).unwrap();
    eprintln!("{filled} occupied when filled, {before} after the claim to hold {REST}");
    assert_eq!(allocation(&daemon, OFFENDER), Some(REST), "the lie stands");
    assert!(before > occupied_max(), "{before}: it is no lie");
    assert_covered(&ticks(&testbed));
    let (_, out, _) = testbed.ballast(&["explain", OFFENDER]);
    assert!(out.contains("stuck"), "{out}");

    reconfigure(&lab, &testbed, &daemon, &[OFFENDER], PAGING_OFF);
    wait_settled(&daemon);
    assert_covered(&ticks(&testbed));

    if can_page {
        reconfigure(&lab, &testbed, &daemon, &[OFFENDER], "");
        wait_paged(&lab, &daemon);
        wait_allocation("what the host took", &daemon, NEIGHBOUR, |holds| {
            let room = OVERHEAD.saturating_add(Bytes::mib(32));
            holds >= BUDGET.saturating_sub(REST).saturating_sub(room)
        });
        wait_settled(&daemon);
    }
    lab.assert_intact(&data);
    assert_works_on(&lab);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    let ticks = ticks(&testbed);
    assert_keeps(since_granted(&ticks, REST), REST);
    assert_covered(&ticks);
    assert_file_intact(&testbed.journal());
}

/// A guest that gave memory claims that it gave none, then that it gave more than any machine has.
/// Its neighbour keeps what it was granted. When the guest tells the truth again, it is compliant.
#[test]
fn a_balloon_of_any_claimed_size_costs_no_neighbour_memory() {
    let lab = Lab::boot(guests());
    let testbed = Testbed::new();
    let daemon = start_with_all_granted(&lab, &testbed, PAGING_OFF);
    let device = BalloonDevice::find(&lab, OFFENDER);

    device.claim_actual(0);
    wait_allocation("the claim to have given nothing", &daemon, OFFENDER, |holds| holds == BOOT);
    wait_stuck(&daemon, OFFENDER);
    wait_noted(&daemon, "beyond-entitlement");
    wait_settled(&daemon);
    assert_eq!(allocation(&daemon, NEIGHBOUR), Some(BOOT));

    // QEMU reports a negative size, which counts as nothing. What the host sees counts instead.
    device.claim_actual(u32::MAX);
    wait_allocation("the claim to have given all", &daemon, OFFENDER, |holds| holds < REST);
    wait_settled(&daemon);
    assert_eq!(allocation(&daemon, NEIGHBOUR), Some(BOOT));

    device.claim_actual(u32::try_from(BOOT.saturating_sub(REST).to_pages()).unwrap());
    wait_allocation("the truth", &daemon, OFFENDER, |holds| holds == REST);
    wait_for("the guest to comply", || {
        (view(&daemon, OFFENDER)?.compliance?.code == "compliant").then_some(())
    });
    wait_settled(&daemon);
    assert!(!is_noted(&daemon, "beyond-entitlement"));
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    assert_keeps(since_granted(&ticks(&testbed), BOOT), BOOT);
    assert_file_intact(&testbed.journal());
}

/// The daemon is killed after it has granted memory that the neighbour has not taken yet, because
/// its driver gets no interrupts. The next daemon grants that to nobody else, and the neighbour
/// gets it as soon as its driver works again.
#[test]
fn a_killed_daemons_promise_is_kept_by_the_next() {
    // Without agents, so that a guest whose driver gets no interrupts reports nothing.
    let lab = Lab::boot([OFFENDER, NEIGHBOUR].map(|name| swapping(name, BOOT)).into());
    let testbed = Testbed::new();
    let settings = format!(
        "[host]\nbudget = \"{BUDGET}\"\n[policy]\nname = \"static\"\ninterval = \"1s\"\n\
         [guard]\ndead_band = \"64KiB\"\n[guests.{NEIGHBOUR}]\nshares = 2000\n"
    );
    testbed.configure_for(lab.sockets(), "tick = \"250ms\"", &settings);
    let daemon = testbed.start();
    set_ceiling(&testbed, NEIGHBOUR, REST);
    wait_allocation("its ceiling", &daemon, NEIGHBOUR, |holds| holds == REST);
    wait_allocation("all the rest", &daemon, OFFENDER, |holds| holds == BOOT);
    set_ceiling(&testbed, OFFENDER, REST);
    wait_allocation("its ceiling", &daemon, OFFENDER, |holds| holds == REST);
    let device = BalloonDevice::find(&lab, NEIGHBOUR);
    device.mask_interrupts();
    set_ceiling(&testbed, NEIGHBOUR, BOOT);
    wait_for("the promise", || {
        (view(&daemon, NEIGHBOUR)?.target_bytes? == BOOT.get()).then_some(())
    });
    // So the next daemon does not know its need, and would divide the memory without it.
    wait_for("its figures to be stale", || {
        (view(&daemon, NEIGHBOUR)?.change?.why?.code == "stale").then_some(())
    });
    assert_eq!(allocation(&daemon, NEIGHBOUR), Some(REST), "it has not taken it");
    let recorded = ticks(&testbed).len();
    daemon.kill();

    // The ceilings ended with the daemon: the other guest may have all that is not promised.
    let daemon = testbed.start();
    wait_for("both guests", || {
        (view(&daemon, OFFENDER)?.used_bytes.is_some() && allocation(&daemon, NEIGHBOUR).is_some())
            .then_some(())
    });
    wait_ticks(&daemon, 24);
    let status = daemon.status().unwrap();
    let neighbour = guest(&status, NEIGHBOUR).unwrap();
    assert_eq!(neighbour.allocation_bytes, Some(REST.get()), "{neighbour:?}");
    let target = neighbour.target_bytes.map(Bytes::new).unwrap();
    assert!(target >= BOOT.saturating_sub(SLACK), "{neighbour:?}");

    device.unmask_interrupts();
    wait_allocation("what it was promised", &daemon, NEIGHBOUR, |holds| {
        holds >= BOOT.saturating_sub(SLACK)
    });
    wait_settled(&daemon);
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    let ticks = &ticks(&testbed)[recorded..];
    for tick in ticks {
        let other = promised(tick, OFFENDER).unwrap_or_default();
        assert!(other <= REST.saturating_add(SLACK), "{other} promised twice: {:#?}", tick.plan);
        let own = promised(tick, NEIGHBOUR);
        assert!(own.is_none_or(|it| it >= BOOT.saturating_sub(SLACK)), "{:#?}", tick.plan);
    }
    assert_keeps(ticks, BOOT);
    assert_file_intact(&testbed.journal());
}

/// A sector of a disk.
const SECTOR: usize = 512;
const PAGE: u64 = 4096;
/// Length of a write-ahead log that has a header and no pages.
const LOG_HEADER: u64 = 32;

/// The daemon is killed, and a sector of its journal and the end of the write-ahead log are lost.
/// The next daemon starts, and reports what it did with the file. The neighbour keeps its half,
/// although the offender took back more than its own.
#[test]
fn a_torn_journal_costs_no_guest_its_memory() {
    let lab = Lab::boot(guests());
    let testbed = Testbed::new();
    configure(&lab, &testbed, &[], PAGING_OFF);
    // The first daemon leaves a file with pages, the second a log beside it.
    let daemon = testbed.start();
    for name in [OFFENDER, NEIGHBOUR] {
        wait_allocation("half of the budget", &daemon, name, |holds| holds == HALF);
    }
    assert!(daemon.stop().success());
    let pages = fs::metadata(testbed.journal()).unwrap().len() / PAGE;
    assert!(pages >= 4, "{pages} pages");
    let daemon = testbed.start();
    lab.shell(OFFENDER, "rmmod virtio_balloon");
    wait_allocation("all that it gave", &daemon, OFFENDER, |holds| holds == BOOT);
    wait_stuck(&daemon, OFFENDER);
    daemon.kill();

    // Damages a page of old rows, and cuts the latest ones from the log.
    tear(&testbed.journal(), pages / 2 * PAGE + 1024, |log| log - log / 4);
    let daemon = testbed.start();
    assert_half_is_kept(&lab, &daemon);
    daemon.kill();

    // Without its first page the file is no longer an SQLite file.
    tear(&testbed.journal(), 0, |_| LOG_HEADER);
    let daemon = testbed.start();
    assert_half_is_kept(&lab, &daemon);
    let status = daemon.status().unwrap().daemon.unwrap();
    let [aside] = &status.journal_aside[..] else { panic!("{status:?}") };
    assert!(Path::new(aside).exists());
    assert!(testbed.log().contains(aside), "{}", testbed.log());
    let (_, out, _) = testbed.ballast(&["status"]);
    assert!(out.contains("the old file could not be used") && out.contains(aside), "{out}");
    let metrics = metrics(&testbed);
    let sample = "ballast_journal_files_moved_aside_total 1";
    assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    assert!(daemon.stop().success());
    assert_keeps(&ticks(&testbed), HALF);
    assert_file_intact(&testbed.journal());
}

/// Overwrites a sector of the journal, and cuts its log to the length that `keep` returns for its
/// present length.
fn tear(journal: &Path, offset: u64, keep: impl FnOnce(u64) -> u64) {
    let open = |path: &Path| File::options().write(true).open(path).unwrap();
    open(journal).write_all_at(&[0xa5; SECTOR], offset).unwrap();
    let log = open(&PathBuf::from(format!("{}-wal", journal.display())));
    let length = log.metadata().unwrap().len();
    assert!(length > LOG_HEADER, "{length}");
    log.set_len(keep(length)).unwrap();
}

/// Checks that a daemon that has just started leaves the neighbour its half, and that it records.
fn assert_half_is_kept(lab: &Lab, daemon: &Daemon<'_>) {
    wait_for("both guests", || {
        let (offender, neighbour) = (view(daemon, OFFENDER)?, view(daemon, NEIGHBOUR)?);
        (offender.allocation_bytes.is_some() && neighbour.used_bytes.is_some()).then_some(())
    });
    wait_stuck(daemon, OFFENDER);
    wait_settled(daemon);
    let neighbour = view(daemon, NEIGHBOUR).unwrap();
    // A daemon without an old journal has no target for it yet.
    assert!(neighbour.target_bytes.is_none_or(|it| it == HALF.get()), "{neighbour:?}");
    // As QEMU reports it.
    let mut monitor = Monitor::connect(lab.guest(NEIGHBOUR).lab_qmp_socket());
    let holds = monitor.run("query-balloon", &json!({}))["actual"].as_u64();
    assert_eq!(holds, Some(HALF.get()));
    assert_unrefused(daemon);
}

/// The daemon's metrics.
fn metrics(testbed: &Testbed) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Client::new(testbed.path("api.sock")).metrics()).unwrap()
}
