//! Real guests under the real daemon: what the daemon observes, what it does, and what failures the
//! guests and it survive. Guests take seconds to boot, so each test takes several steps with the
//! same guests.
//!
//! Limits: asserts states, counts and wide ratios, never times; needs QEMU and a built `lab-guest`.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{Daemon, PATIENCE, Testbed, finding, guest, wait_for};
use crate::support::journal::{Audit, assert_file_intact};
use crate::support::monitor::Monitor;
use crate::support::moved::Destination;
use crate::support::rounds::{self, Rounds};
use crate::support::squeezes::{self, Squeezes};
use crate::support::{
    Lab, allocation, assert_unrefused, swapping, wait_allocation, wait_guests, wait_settled,
};
use ballast_api::StatusReply;
use ballast_lab_guest::workload::Pattern;
use ballast_lab_host::{Balloon, GuestSpec, Hotplug};
use ballast_model::{Bytes, OutcomeKind, PolicyName};
use ballast_policy::catalogue::{ENTRIES, PolicyEntry};
use ballast_store::{EntryContent, Range, Reader};

/// A quarter of the default tick, so that tests wait less.
const FAST: &str = "tick = \"250ms\"";
/// Boot memory of each of two guests, which is also the budget of both; and half of it.
const BOOT: Bytes = Bytes::mib(512);
const HALF: Bytes = Bytes::mib(256);
/// Most attempts to catch a guest while it gives memory, which takes it a second or so.
const CATCHES_MAX: u32 = 10;
/// Memory that a workload uses: more than its guest will have.
const USED: Bytes = Bytes::mib(280);
/// A working set that, with the guest's kernel, is larger than half of the budget and smaller than
/// all of it.
const WORKING_SET: Bytes = Bytes::mib(240);

fn set(testbed: &Testbed, arguments: &[&str]) {
    let (code, out, err) = testbed.ballast(&[&["set"], arguments].concat());
    assert_eq!(code, Some(0), "set {arguments:?}: {out}{err}");
}

#[test]
fn two_guests_share_a_budget_for_one_and_outlive_kills() {
    let lab = Lab::boot(vec![swapping("busy", BOOT), swapping("idle", BOOT)]);
    let data = [lab.store_data("busy", 24), lab.store_data("idle", 24)];
    let testbed = Testbed::new();
    testbed.configure_for(
        lab.sockets(),
        FAST,
        "[host]\nbudget = \"512MiB\"\n[policy]\nname = \"static\"\ninterval = \"1s\"",
    );
    testbed.configure_to_observe();
    let mut audit = Audit::new(BOOT);

    let daemon = testbed.start();
    nothing_moves_while_observing(&testbed, &daemon);
    both_are_seen_and_halved(&testbed, &daemon);
    a_doctor_finds_their_drivers(&testbed);
    memory_follows_the_work(&lab, &testbed, &daemon);
    room_is_made_for_a_third(&testbed, &daemon);
    audit.read(&testbed.journal());
    assert!(audit.ticks_within > 10, "{}", audit.ticks_within);

    let daemon = the_daemon_is_killed_in_mid_action(&lab, &testbed, daemon);
    data.iter().for_each(|data| lab.assert_intact(data));
    audit.read(&testbed.journal());
    assert_file_intact(&testbed.journal());

    a_guest_is_killed_in_mid_action(&lab, &testbed, &daemon);
    lab.assert_intact(&data[0]);
    assert!(daemon.stop().success());
    audit.read(&testbed.journal());
    assert_file_intact(&testbed.journal());
}

/// At its end the mode is changed to `balance`.
fn nothing_moves_while_observing(testbed: &Testbed, daemon: &Daemon<'_>) {
    let is_decided = |status: &StatusReply| {
        let wanted = |name| guest(status, name)?.wanted_bytes;
        ["busy", "idle"].map(wanted) == [Some(HALF.get()); 2]
    };
    let decided = wait_for("both to be wanted half", || daemon.status().filter(is_decided));
    let status = wait_for("some ticks more", || {
        daemon.status().filter(|it| it.tick.generation >= decided.tick.generation + 10)
    });
    for name in ["busy", "idle"] {
        let view = guest(&status, name).unwrap();
        assert_eq!((view.allocation_bytes, view.target_bytes), (Some(BOOT.get()), None));
        let why = view.change.as_ref().and_then(|change| change.why.as_ref());
        assert_eq!(why.map(|why| why.code.as_str()), Some("observing"), "{view:?}");
    }
    let (code, out, err) = testbed.ballast(&["mode", "balance"]);
    assert_eq!(code, Some(0), "{out}{err}");
}

fn both_are_seen_and_halved(testbed: &Testbed, daemon: &Daemon<'_>) {
    for name in ["busy", "idle"] {
        wait_allocation("half of the budget", daemon, name, |holds| holds == HALF);
    }
    let status = daemon.status().unwrap();
    assert_eq!(status.budget.distributable_bytes, BOOT.get());
    for name in ["busy", "idle"] {
        let view = guest(&status, name).unwrap();
        assert_eq!(view.state.code, "running", "{view:?}");
        assert_eq!(view.boot_bytes, Some(BOOT.get()));
        assert_eq!(view.target_bytes, Some(HALF.get()));
        assert!(view.used_bytes.is_some_and(|used| (1..HALF.get()).contains(&used)), "{view:?}");
        assert!(view.resident_bytes.is_some() && view.stats_age_ms.is_some(), "{view:?}");

        let (code, out, err) = testbed.ballast(&["explain", name, "--json"]);
        assert_eq!(code, Some(0), "{out}{err}");
        let explained: ballast_api::ExplainReply = serde_json::from_str(&out).unwrap();
        let inputs = explained.inputs;
        assert_eq!(inputs.capabilities.balloon, Some(true));
        assert_eq!(inputs.capabilities.statistics, Some(true));
        assert_eq!(inputs.capabilities.free_page_reporting, Some(false));
        assert_eq!(inputs.capabilities.deflate_on_oom, Some(false));
        assert_eq!(inputs.capabilities.discard_inhibited, Some(false));
        let stats = inputs.stats.unwrap();
        assert!(stats.available_bytes.unwrap() <= stats.total_bytes.unwrap());
        assert!(stats.swap_in_bytes.is_some() && stats.major_faults.is_some());
        let (_, out, _) = testbed.ballast(&["explain", name]);
        for words in ["booted with 512MiB, holds 256MiB", "wants 256MiB", "uses "] {
            assert!(out.contains(words), "{words} in {out}");
        }
    }
}

/// Findings of the doctor about guests with a plain balloon, and about sockets that the daemon
/// uses.
fn a_doctor_finds_their_drivers(testbed: &Testbed) {
    let (code, reply) = testbed.doctor(&["guests"]);
    let findings = reply["findings"].as_array().unwrap();
    assert_eq!(code, Some(0), "{reply:#}");
    for name in ["busy", "idle"] {
        for (topic, severity, beginning) in [
            ("monitor", "ok", "running"),
            ("balloon", "ok", "has a balloon device"),
            ("statistics", "ok", "the driver reports, last "),
            ("free-page-reporting", "note", "off"),
            ("deflate-on-oom", "note", "off"),
            ("hotplug", "ok", "none: 512MiB is the most it can have"),
        ] {
            let found = finding(findings, topic, Some(name));
            assert!(found.0 == severity && found.1.starts_with(beginning), "{topic}: {found:?}");
        }
    }
    let (_, reply) = testbed.doctor(&["host"]);
    let findings = reply["findings"].as_array().unwrap();
    let is_usable = |it: &serde_json::Value| it["found"] == "2 of 2 sockets are usable";
    assert!(findings.iter().any(is_usable), "{reply:#}");
    let smaps = finding(findings, "smaps", None);
    assert!(smaps.1.starts_with("readable of all "), "{smaps:?}");
}

fn memory_follows_the_work(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>) {
    lab.start_constant("busy", WORKING_SET);
    let squeezed = lab.pace("busy");
    assert_eq!(allocation(daemon, "busy"), Some(HALF), "static moves nothing");
    set(testbed, &["--policy", "global"]);
    wait_allocation("memory for the work", daemon, "busy", |holds| {
        holds > WORKING_SET + Bytes::mib(64)
    });
    // What was swapped out is read back once.
    let free = wait_for("the end of swapping", || {
        Some(lab.pace("busy")).filter(|pace| pace.swap_ins_per_touch < 0.001)
    });
    eprintln!("squeezed {squeezed:?}, balanced {free:?}");
    assert!(squeezed.swap_ins_per_touch > 10.0 * free.swap_ins_per_touch, "{squeezed:?} {free:?}");
    assert!(free.touches_per_s > 3.0 * squeezed.touches_per_s, "{squeezed:?} {free:?}");
    let (_, out, _) = testbed.ballast(&["explain", "busy"]);
    assert!(out.contains("taxed"), "{out}");

    lab.stop_workload("busy");
    wait_allocation("memory to flow back", daemon, "busy", is_about_half);
    wait_allocation("memory to flow back", daemon, "idle", is_about_half);
}

fn room_is_made_for_a_third(testbed: &Testbed, daemon: &Daemon<'_>) {
    let (code, out, err) = testbed.ballast(&["reserve", "400MiB", "--for", "third"]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("256MiB at most can be reserved"), "{err}");
    let (code, out, err) =
        testbed.ballast(&["reserve", "120MiB", "--for", "third", "--wait", "5m", "--json"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let status = daemon.status().unwrap();
    let third = &status.reservations[0];
    assert_eq!((third.free_bytes, third.size_bytes), (120 << 20, 120 << 20), "{out}");
    let held: Bytes = ["busy", "idle"].iter().filter_map(|name| allocation(daemon, name)).sum();
    assert!(held <= BOOT - Bytes::mib(120), "{held}");
    let (_, text, _) = testbed.ballast(&["status"]);
    assert!(text.contains("120MiB for `third`, all of it free"), "{text}");
    let (code, out, err) = testbed.ballast(&["reserve", "--release", "--for", "third"]);
    assert_eq!(code, Some(0), "{out}{err}");
    wait_allocation("what was reserved", daemon, "busy", is_about_half);
}

fn the_daemon_is_killed_in_mid_action<'a>(
    lab: &Lab,
    testbed: &'a Testbed,
    daemon: Daemon<'a>,
) -> Daemon<'a> {
    lab.start_constant("busy", Bytes::mib(64));
    catch_in_mid_action(testbed, &daemon);
    daemon.kill();
    // The operator's settings end with the daemon. By the file each guest gets half.
    let daemon = testbed.start();
    for name in ["busy", "idle"] {
        wait_allocation("about half of the budget", &daemon, name, is_about_half);
    }
    lab.stop_workload("busy");
    assert_eq!(Reader::open(&testbed.journal()).unwrap().sessions().unwrap().len(), 2);
    daemon
}

fn a_guest_is_killed_in_mid_action(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>) {
    catch_in_mid_action(testbed, daemon);
    lab.guest("idle").kill();
    wait_for("the loss to be reported", || {
        let status = daemon.status()?;
        let why = guest(&status, "idle")?.change.clone()?.why?;
        (why.code == "unreachable").then_some(())
    });
    wait_for("the lost guest to be forgotten", || {
        (daemon.status()?.guests.len() == 1).then_some(())
    });
    wait_allocation("all the memory", daemon, "busy", |holds| holds == BOOT);
    assert_eq!(daemon.status().unwrap().daemon.unwrap().plans_refused, 0);
}

/// Balloon statistics say only what a guest uses, so policies that need other inputs use their
/// fallbacks, and say so.
#[test]
fn every_policy_runs_on_balloon_statistics_and_respects_priority() {
    let lab = Lab::boot(vec![swapping("busy", BOOT), swapping("idle", BOOT)]);
    let testbed = Testbed::new();
    testbed.configure_for(
        lab.sockets(),
        FAST,
        "[host]\nbudget = \"512MiB\"\n[policy]\nname = \"tws\"\ninterval = \"500ms\"\n\
         [policy.flexmemd]\nround = \"by-floor\"",
    );
    let mut audit = Audit::new(BOOT);
    let daemon = testbed.start();
    wait_for("both guests", || {
        let status = daemon.status()?;
        let runs = |name| guest(&status, name).is_some_and(|it| it.used_bytes.is_some());
        (runs("busy") && runs("idle")).then_some(())
    });
    wait_for("the log to say what is missing", || {
        testbed.log().contains("no probed working set is known of").then_some(())
    });
    for entry in ENTRIES.iter().filter(|it| it.name != PolicyName::External) {
        switched_to(&testbed, &daemon, entry);
        audit.read(&testbed.journal());
    }

    // Under `static` both have half, whatever they do, unless one has priority.
    set(&testbed, &["--policy", "static"]);
    lab.start_constant("busy", WORKING_SET);
    wait_allocation("half of the budget", &daemon, "busy", |holds| holds == HALF);
    set(&testbed, &["busy", "--priority", "5"]);
    wait_allocation("what the work needs", &daemon, "busy", |holds| {
        holds > WORKING_SET + Bytes::mib(64)
    });
    let (_, out, _) = testbed.ballast(&["explain", "busy"]);
    assert!(out.contains("priority 5") && out.contains("taken from idle"), "{out}");
    let (_, out, _) = testbed.ballast(&["explain", "idle"]);
    assert!(out.contains("gives ") && out.contains("to busy"), "{out}");
    let fairness = daemon.status().unwrap().daemon.unwrap().fairness.unwrap();
    assert!((5_000..=10_000).contains(&fairness.mean_basis_points), "{fairness:?}");
    audit.read(&testbed.journal());
    assert!(audit.ticks_within > 10, "{}", audit.ticks_within);
    assert!(daemon.stop().success());
}

/// Switches the policy and checks its plans.
fn switched_to(testbed: &Testbed, daemon: &Daemon<'_>, entry: &PolicyEntry) {
    let name = entry.name.as_str();
    let (code, output, err) = testbed.ballast(&["set", "--policy", name]);
    assert_eq!(code, Some(0), "{name}: {output}{err}");
    let policy = || Some(daemon.status()?.tick.policy);
    wait_for("the policy", || (policy()? == name).then_some(()));
    wait_settled(daemon);
    let status = daemon.status().unwrap();
    assert_eq!(status.daemon.unwrap().plans_refused, 0, "{name}");
    let missing: Vec<String> = status
        .notes
        .iter()
        .filter(|note| note.code == "missing-input")
        .map(|note| note.text.clone())
        .collect();
    let targets: u64 = status.guests.iter().filter_map(|guest| guest.target_bytes).sum();
    assert!(targets > 0 && targets <= BOOT.get(), "{name}: {:?}", status.guests);
    for note in &missing {
        assert!(
            note.contains("2 guests") && output.contains(note.as_str()),
            "{name}: {note}: {output}"
        );
    }
    let reason = |guest: &str| {
        let (_, out, _) = testbed.ballast(&["explain", guest, "--json"]);
        let explained: ballast_api::ExplainReply = serde_json::from_str(&out).unwrap();
        explained.desired.unwrap().reason.code
    };
    let expected = match entry.name {
        PolicyName::Static => Some((0, "share")),
        PolicyName::SelfScheduling => Some((0, "used-plus-reserve")),
        PolicyName::Global => Some((0, "idle-tax")),
        PolicyName::SelfBalloon | PolicyName::Tws => Some((1, "missing-input")),
        _ => None,
    };
    if let Some((notes, code)) = expected {
        assert_eq!(missing.len(), notes, "{name}: {missing:?}");
        assert_eq!((reason("busy").as_str(), reason("idle").as_str()), (code, code), "{name}");
    }
    eprintln!("{name}: {missing:?}, {}", reason("idle"));
}

/// About half: within the dead band nothing is moved.
fn is_about_half(holds: Bytes) -> bool {
    holds.abs_diff(HALF) <= Bytes::mib(10)
}

/// Returns while `idle` is giving memory to `busy`.
fn catch_in_mid_action(testbed: &Testbed, daemon: &Daemon<'_>) {
    for _ in 0..CATCHES_MAX {
        set(testbed, &["busy", "--ceiling", "144MiB"]);
        set(testbed, &["idle", "--ceiling", "512MiB"]);
        wait_allocation("the other to have it", daemon, "idle", |holds| {
            holds >= BOOT - Bytes::mib(160)
        });
        set(testbed, &["busy", "--ceiling", "512MiB"]);
        set(testbed, &["idle", "--ceiling", "144MiB"]);
        let is_caught = wait_for("the giving", || {
            let status = daemon.status()?;
            let idle = guest(&status, "idle")?;
            match idle.compliance.as_ref()?.code.as_str() {
                "releasing" => Some(true),
                _ => (idle.allocation_bytes? == Bytes::mib(144).get()).then_some(false),
            }
        });
        if is_caught {
            return;
        }
    }
    panic!("the guest was never seen on its way");
}

#[test]
fn guests_of_all_kinds_are_known_for_what_they_are() {
    let boot = Bytes::mib(256);
    let spec = |name: &str| GuestSpec::new(name.parse().unwrap(), boot);
    let balloon = Some(Balloon { deflate_on_oom: true, ..Balloon::default() });
    let lab = Lab::boot(vec![
        spec("plain"),
        GuestSpec { balloon, ..spec("deflating") },
        GuestSpec { balloon: None, ..spec("bare") },
        GuestSpec { extra_args: without_balloon_driver(), ..spec("driverless") },
    ]);
    let testbed = Testbed::new();
    testbed.configure_for(lab.sockets(), FAST, "[defaults]\nceiling = \"160MiB\"");
    let mut other = Some(QmpClient::connect(lab.guest("plain").qmp_socket()));

    let daemon = testbed.start();
    for (name, code) in
        [("plain", "unreachable"), ("bare", "no-balloon"), ("driverless", "no-statistics")]
    {
        wait_for(code, || {
            let status = daemon.status()?;
            let why = guest(&status, name)?.change.clone()?.why?;
            (why.code == code).then_some(())
        });
    }
    let status = wait_for("the other client to be suspected", || {
        let status = daemon.status()?;
        (guest(&status, "plain")?.state.code == "taken").then_some(status)
    });
    assert_eq!(guest(&status, "bare").unwrap().allocation_bytes, Some(boot.get()));

    other.take();
    for name in ["plain", "deflating"] {
        wait_allocation("its ceiling", &daemon, name, |holds| holds == Bytes::mib(160));
    }
    wait_settled(&daemon);
    let status = daemon.status().unwrap();
    let used = |name| guest(&status, name).unwrap().used_bytes.unwrap() as f64;
    let ratio = used("plain") / used("deflating");
    assert!((0.85..1.15).contains(&ratio), "{ratio}: {status:#?}");
    for name in ["bare", "driverless"] {
        assert_eq!(guest(&status, name).unwrap().allocation_bytes, Some(boot.get()));
    }
    assert!(daemon.stop().success());
}

/// QEMU's arguments that keep the guest's kernel from loading the driver. QEMU takes the last of
/// two `-append`.
fn without_balloon_driver() -> Vec<String> {
    let kernel = "console=ttyS0 quiet panic=-1 no_timer_check module_blacklist=virtio_balloon";
    vec!["-append".to_owned(), kernel.to_owned()]
}

/// Another client of a guest's QMP socket.
struct QmpClient {
    _stream: UnixStream,
}

impl QmpClient {
    /// Connects and waits until QEMU serves it.
    fn connect(socket: &std::path::Path) -> QmpClient {
        let stream = UnixStream::connect(socket).unwrap();
        let mut greeting = String::new();
        BufReader::new(&stream).read_line(&mut greeting).unwrap();
        assert!(greeting.contains("QMP"), "{greeting}");
        QmpClient { _stream: stream }
    }
}

/// A few rounds here, many under `make soak`.
#[test]
fn rounds_of_kills_and_squeezes_harm_nobody() {
    let lab = Lab::boot(vec![swapping("a", BOOT), swapping("b", BOOT)]);
    let testbed = Testbed::new();
    testbed.configure_for(
        lab.sockets(),
        FAST,
        "[host]\nbudget = \"512MiB\"\n[policy]\ninterval = \"1s\"\n[defaults]\nswap = true",
    );
    let mut rounds = Rounds::new(&lab, &testbed, BOOT);
    (1..=rounds::count()).for_each(|number| rounds.run(number));
    rounds.end();
}

/// A guest without swap is squeezed to its floor and given memory back, whatever it does with its
/// memory, and no process in it is ever killed for lack of memory. Some rounds here, many under
/// `make soak`.
#[test]
fn a_guest_without_swap_is_never_squeezed_to_death() {
    let lab = Lab::boot(squeezes::guests(BOOT));
    let testbed = Testbed::new();
    let (budget, floor) = (Bytes::mib(720), squeezes::FLOOR);
    let settings = format!(
        "[host]\nbudget = \"{budget:#}\"\n[policy]\ninterval = \"500ms\"\n[guests.dry]\nfloor = \"{floor:#}\""
    );
    testbed.configure_for(lab.sockets(), FAST, &settings);
    let mut squeezes = Squeezes::new(&lab, &testbed, BOOT, budget);
    (1..=squeezes::count()).for_each(|number| squeezes.run(number));
    squeezes.end();
}

/// The operator lowers the ceiling of a guest without swap below what it uses. It gives what it
/// can, and no process in it is killed; when it no longer uses the memory, it gives the rest.
#[test]
fn a_guest_without_swap_keeps_its_use_under_any_ceiling() {
    let lab = Lab::boot(vec![GuestSpec::new("dry".parse().unwrap(), BOOT)]);
    lab.start("dry", Pattern::Constant { size: USED });
    lab.pace("dry");
    let testbed = Testbed::new();
    let settings = "[host]\nbudget = \"1GiB\"\n[policy]\nname = \"static\"\ninterval = \"500ms\"\n\
         [guests.dry]\nceiling = \"200MiB\"";
    testbed.configure_for(lab.sockets(), FAST, settings);
    let daemon = testbed.start();
    wait_allocation("what it can give", &daemon, "dry", |holds| holds + Bytes::mib(16) <= BOOT);
    wait_settled(&daemon);
    let left = allocation(&daemon, "dry").unwrap();
    assert!(left > USED, "{left} left of {USED} used");
    let (code, out, err) = testbed.ballast(&["explain", "dry"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("no swap is known to back it"), "{out}");
    lab.pace("dry");
    assert_eq!(lab.fresh_report("dry").vm.oom_kill, Some(0));
    lab.stop_workload("dry");
    wait_holds(&daemon, "dry", Bytes::mib(200));
    assert_eq!(lab.fresh_report("dry").vm.oom_kill, Some(0));
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

/// The daemon knows the working set and the miss curve of a guest with the tracker, and `meb` gives
/// it the memory that another guest does not touch. Afterwards `ballast track` can track it.
#[test]
fn a_tracked_guest_has_a_working_set_and_a_curve() {
    if !crate::support::may_track() {
        return;
    }
    let spec = |name| GuestSpec { tracked: true, ..swapping(name, BOOT) };
    let lab = Lab::boot(vec![spec("seen"), spec("idle")]);
    lab.start_constant("seen", Bytes::mib(150));
    let testbed = Testbed::new();
    let policy = "[policy]\nname = \"meb\"\ninterval = \"500ms\"\n[host]\nbudget = \"640MiB\"";
    testbed.configure_for(lab.sockets(), FAST, policy);
    let daemon = testbed.start();
    // The workload, and what the guest's kernel took and keeps free.
    let expected = Bytes::mib(150).get()..Bytes::mib(340).get();
    wait_for("a demand that is the working set", || {
        let (_, out, _) = testbed.ballast(&["explain", "seen", "--json"]);
        let reply: serde_json::Value = serde_json::from_str(&out).ok()?;
        let estimate = &reply["estimate"];
        let demand = &estimate["demand"];
        let size = demand["size_bytes"].as_u64()?;
        let is_it = demand["source"]["code"] == "working-set" && expected.contains(&size);
        (is_it && estimate["curve"]["points"].is_array()).then_some(())
    });
    the_one_that_touches_more_has_more(&lab, &testbed, &daemon);
    // A tracker serves one client at a time.
    let (code, _, err) = testbed.ballast(&["track", "seen", "--for", "1s"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("another client"), "{err}");
    assert!(daemon.stop().success());

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let track = ["track", "seen", "--for", "3s", "--budget", "2", "--record", folder, "--json"];
    let (code, out, err) = wait_for("the tracker to be free again", || {
        Some(testbed.ballast(&track)).filter(|(code, ..)| *code == Some(0))
    });
    assert_eq!(code, Some(0), "{err}");
    let rows: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!((2..=4).contains(&rows.len()), "{out}");
    let last = rows[rows.len() - 1]["working_set_bytes"].as_u64().unwrap();
    assert!((Bytes::mib(270).get()..Bytes::mib(400).get()).contains(&last), "{out}");
    // Other commands can read the recording.
    let series = format!("{folder}/series.csv");
    let (code, _, err) = testbed.ballast(&["imt", &series]);
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = testbed.ballast(&["mrc", &format!("{folder}/pages.pg")]);
    assert_eq!(code, Some(0), "{err}");
    tracking_goes_on_with_the_next_process(lab, vec![spec("seen")]);
}

/// Ends the guests of `lab` while `seen` is tracked, and starts another guest of that name.
fn tracking_goes_on_with_the_next_process(lab: Lab, next: Vec<GuestSpec>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ballast"))
        .args(["track", "seen", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rows = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
    rows.next().expect("an interval of the first process").unwrap();
    drop(lab);
    let note = notes.next().unwrap().unwrap();
    assert!(note.contains("waiting until the guest is started again"), "{note}");
    let _lab = Lab::boot(next);
    let goes_on = |note: &String| note.contains("the guest is process");
    assert!(notes.map_while(Result::ok).any(|note| goes_on(&note)));
    let at = |row: String| serde_json::from_str::<serde_json::Value>(&row).unwrap()["at_s"].clone();
    let times: Vec<f64> =
        rows.map_while(Result::ok).take(6).filter_map(|row| at(row).as_f64()).collect();
    assert!(times.len() == 6 && times.is_sorted(), "{times:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The guest `seen` touches 300 MiB, which with its kernel do not fit into half of the budget.
fn the_one_that_touches_more_has_more(lab: &Lab, testbed: &Testbed, daemon: &Daemon<'_>) {
    lab.stop_workload("seen");
    lab.start_constant("seen", Bytes::mib(300));
    wait_allocation("memory for what it touches", daemon, "seen", |holds| holds >= Bytes::mib(410));
    wait_allocation("memory that it does not touch", daemon, "idle", |holds| {
        holds <= Bytes::mib(230)
    });
    wait_for("the end of swapping", || {
        Some(lab.pace("seen")).filter(|pace| pace.swap_ins_per_touch < 0.001)
    });
    for name in ["seen", "idle"] {
        let tracking = guest(&daemon.status().unwrap(), name).unwrap().tracking.clone().unwrap();
        assert!(["watching", "resting"].contains(&&*tracking.state.code), "{tracking:?}");
        assert!(tracking.working_set_bytes.is_some(), "{tracking:?}");
        let (_, out, _) = testbed.ballast(&["explain", name]);
        let reasons = ["memory that no guest demands is shared out", "fewest misses of all guests"];
        assert!(reasons.iter().any(|reason| out.contains(reason)), "{out}");
        assert!(out.contains("tracking   ") && out.contains("misses a second"), "{out}");
    }
    let (_, out, _) = testbed.ballast(&["status"]);
    assert!(out.contains("TRACKED"), "{out}");
}

/// Within a phase tracking rests, and the last working set counts as if it were new. A guest that
/// needs more is watched again, and gets more.
#[test]
fn tracking_rests_until_the_working_set_changes() {
    if !crate::support::may_track() {
        return;
    }
    let spec = GuestSpec { tracked: true, ..swapping("steady", BOOT) };
    let lab = Lab::boot(vec![spec]);
    lab.start_constant("steady", Bytes::mib(100));
    let testbed = Testbed::new();
    let policy =
        "[policy]\nname = \"meb\"\n[host]\nbudget = \"1GiB\"\n[tracking]\ninterval = \"500ms\"";
    testbed.configure_for(lab.sockets(), FAST, policy);
    let daemon = testbed.start();
    let tracking = || {
        let tracking = guest(&daemon.status()?, "steady")?.tracking.clone()?;
        Some((tracking.state.code, Bytes::new(tracking.working_set_bytes?), tracking.age_ms?))
    };
    // Filling memory takes five intervals, and on a busy machine working sets vary.
    let rests_at = |least: Bytes, most: Bytes| {
        wait_for("rest", || {
            let (state, wss, _) = tracking()?;
            (state == "resting" && (least..most).contains(&wss)).then_some(())
        });
    };
    rests_at(Bytes::mib(90), Bytes::mib(140));
    // While tracking rests, the working set is confirmed continuously. Then a checkpoint watches,
    // and tracking rests again.
    wait_for("a checkpoint", || {
        let (state, _, age_ms) = tracking()?;
        assert!(age_ms < 30_000, "{age_ms} ms");
        (state == "watching").then_some(())
    });
    rests_at(Bytes::mib(90), Bytes::mib(140));
    lab.stop_workload("steady");
    lab.start_constant("steady", Bytes::mib(250));
    wait_for("a phase that is noticed", || {
        tracking().filter(|(state, wss, _)| state == "watching" && *wss > Bytes::mib(200))
    });
    rests_at(Bytes::mib(225), Bytes::mib(320));
    assert!(daemon.stop().success());
}

/// The daemon tracks a guest that has the library by the library, and one without by the kernel's
/// referenced bits. Under KVM it refuses the latter and reports why. A daemon that is killed while
/// it tracks leaves nothing behind, and the next one tracks both again.
#[test]
fn guests_are_balanced_and_outlive_the_daemon() {
    if !crate::support::may_track() {
        return;
    }
    let watched = GuestSpec { tracked: true, ..swapping("watched", BOOT) };
    let lab = Lab::boot(vec![watched, swapping("bits", BOOT)]);
    let size = Bytes::mib(100);
    lab.start_constant("watched", size);
    lab.start_constant("bits", size);
    let testbed = Testbed::new();
    let settings = "[policy]\nname = \"static\"\n[host]\nbudget = \"1GiB\"\n\
        [tracking]\nsource = \"library\"\ninterval = \"500ms\"\nintermittent = \"off\"\nreferenced = true";
    testbed.configure_for(lab.sockets(), FAST, settings);
    let are_followed = |daemon: &Daemon<'_>| {
        for (name, state) in [("watched", "watching"), ("bits", "referenced")] {
            // What a guest touched only while it booted is no longer in the working set in the end.
            wait_for(&format!("the working set of {name}"), || {
                let tracking = guest(&daemon.status()?, name)?.tracking.clone()?;
                if state == "referenced" && lab.is_kvm() {
                    let is_explained = tracking.trouble?.contains("runs under KVM");
                    return (is_explained && tracking.working_set_bytes.is_none()).then_some(());
                }
                let wss = Bytes::new(tracking.working_set_bytes?);
                let is_it = tracking.state.code == state && wss >= size.fraction(9, 10);
                (is_it && wss < size.fraction(2, 1)).then_some(())
            });
        }
    };
    let pid = lab.guest("watched").pid();
    let is_registered = || {
        let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
        let mut flags = smaps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
        flags.any(|flags| flags.split_ascii_whitespace().any(|flag| flag == "ui"))
    };
    let daemon = testbed.start();
    are_followed(&daemon);
    assert!(is_registered());
    daemon.kill();
    wait_for("every permission to be restored", || (!is_registered()).then_some(()));
    for name in ["watched", "bits"] {
        assert!(lab.pace(name).touches_per_s > 0.0, "{name}");
    }
    let daemon = testbed.start();
    are_followed(&daemon);
    assert!(daemon.stop().success());
    wait_for("every permission to be restored", || (!is_registered()).then_some(()));
}

/// The daemon's inputs contain what only the guest knows. Requests of its agent are decided on and
/// answered before its kernel has swapped much. An agent that is killed and restarted is heard
/// again.
#[test]
fn requests_of_an_agent_are_answered() {
    let spec = |name| GuestSpec { agent: true, ..swapping(name, BOOT) };
    let lab = Lab::boot(vec![spec("asks"), spec("idle")]);
    let testbed = Testbed::new();
    let agents = lab.guest("asks").agent_socket().unwrap().parent().unwrap().to_owned();
    let settings = format!(
        "[policy]\nname = \"fcfs\"\n[host]\nbudget = \"640MiB\"\n[agents]\nfolders = [{agents:?}]"
    );
    testbed.configure_for(lab.sockets(), FAST, &settings);
    let daemon = testbed.start();
    let agent = |name: &str| -> Option<ballast_api::AgentView> {
        let (_, out, _) = testbed.ballast(&["explain", name, "--json"]);
        serde_json::from_str::<ballast_api::ExplainReply>(&out).ok()?.inputs.agent
    };
    for name in ["asks", "idle"] {
        let view = wait_for("an agent's report", || agent(name));
        assert!(view.committed_bytes.is_some() && view.scanned_pages.is_some(), "{view:?}");
    }
    let (_, out, _) = testbed.ballast(&["explain", "asks"]);
    assert!(out.contains("promised to processes"), "{out}");
    lab.start_constant("asks", Bytes::mib(260));
    // Its program and its kernel need some 330 MiB. How much of that is used often enough for the
    // agent to ask for it differs between runs.
    wait_allocation("what it asks for", &daemon, "asks", |holds| holds >= Bytes::mib(280));
    let request = wait_for("its request", || agent("asks")?.request);
    assert!(["more", "emergency", "less"].contains(&&*request.code), "{request:?}");
    let wait_log = |what: &str| wait_for(what, || testbed.log().contains(what).then_some(()));
    wait_log("asks: asks for");
    lab.shell("asks", "kill -9 $(pidof ballast-agent)");
    wait_log(", restarted");
    wait_for("a report of the new one", || agent("asks").filter(|view| view.age_ms < 5000));
    assert!(daemon.stop().success());
    // The request is in the journal.
    let journal = testbed.journal();
    let (code, out, err) =
        testbed.ballast(&["explain", "asks", "--journal", journal.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("promised to processes"), "{out}");
}

/// While the guests' use and reserves fit the budget, each guest gets what it asks for by its own
/// figures. When they do not fit, all memory is divided; and when they fit again, it is not.
#[test]
fn self_scheduling_hands_over_when_requests_exceed_the_budget() {
    let spec = |name| GuestSpec { agent: true, ..swapping(name, BOOT) };
    let lab = Lab::boot(vec![spec("busy"), spec("other")]);
    let testbed = Testbed::new();
    let agents = lab.guest("busy").agent_socket().unwrap().parent().unwrap().to_owned();
    let settings = format!(
        "[policy]\nname = \"self-scheduling\"\n[host]\nbudget = \"704MiB\"\n\
         [agents]\nfolders = [{agents:?}]"
    );
    testbed.configure_for(lab.sockets(), FAST, &settings);
    let daemon = testbed.start();
    let reason = |name: &str| -> Option<String> {
        let (_, out, _) = testbed.ballast(&["explain", name, "--json"]);
        let reply: ballast_api::ExplainReply = serde_json::from_str(&out).ok()?;
        reply.inputs.agent?;
        Some(reply.desired?.reason.code)
    };
    let wait_reason = |what: &str, code: &str| {
        let both = || Some(reason("busy")? == code && reason("other")? == code);
        wait_for(what, || both()?.then_some(()));
    };
    wait_reason("what each uses and a reserve", "used-plus-reserve");
    for name in ["busy", "other"] {
        lab.start_constant(name, WORKING_SET);
    }
    wait_reason("a division of all there is", "idle-tax");
    lab.stop_workload("other");
    wait_reason("what each uses and a reserve again", "used-plus-reserve");
    assert!(daemon.stop().success());
}

/// A program that can do without memory gives it back before the balloon takes it, so the guest
/// swaps nothing out. The program is notified when it may grow again.
#[test]
fn programs_give_memory_back_before_the_balloon_takes_it() {
    let lab = Lab::boot(vec![GuestSpec { agent: true, ..swapping("gives", BOOT) }]);
    // A file in memory stands in for a program that holds memory, and the hook removes it.
    let script = "#!/bin/sh\n\
                  case $1 in\n\
                  can-give) stat -c %s /held 2>/dev/null || echo 0;;\n\
                  give) stat -c %s /held; rm /held;;\n\
                  release) : > /released;;\n\
                  esac\n";
    lab.shell("gives", "mkdir -p /etc/ballast /hooks && dd if=/dev/zero of=/held bs=1M count=160");
    lab.shell("gives", &format!("printf '%b' '{script}' > /hooks/held && chmod +x /hooks/held"));
    lab.shell("gives", "printf '[shrinkers]\\nhooks = \"/hooks\"\\n' > /etc/ballast/agent.toml");
    lab.shell("gives", "kill -9 $(pidof ballast-agent)");
    let testbed = Testbed::new();
    let agents = lab.guest("gives").agent_socket().unwrap().parent().unwrap().to_owned();
    let settings = format!(
        "[policy]\nname = \"static\"\n[host]\nbudget = \"512MiB\"\n[agents]\nfolders = [{agents:?}]"
    );
    testbed.configure_for(lab.sockets(), FAST, &settings);
    let daemon = testbed.start();
    let wait_log = |what: &str| wait_for(what, || testbed.log().contains(what).then_some(()));
    wait_log("gives: agent ballast-agent");
    set(&testbed, &["gives", "--ceiling", "192MiB"]);
    wait_allocation("what its balloon takes", &daemon, "gives", |holds| holds <= Bytes::mib(192));
    wait_log("gives: its programs gave back ");
    let swapped = lab.shell("gives", "grep pswpout /proc/vmstat");
    let pages: u64 = swapped.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(pages < 5_000, "{pages} pages swapped out");
    set(&testbed, &["gives", "--ceiling", "400MiB"]);
    wait_allocation("what it may have", &daemon, "gives", |holds| holds >= Bytes::mib(400));
    wait_for("the word that it may grow", || {
        (lab.shell("gives", "[ ! -e /released ] || echo yes").trim() == "yes").then_some(())
    });
    assert!(daemon.stop().success());
    let reader = Reader::open(&testbed.journal()).unwrap();
    let waited = reader.ticks(Range::default()).any(|entry| match entry.unwrap().content {
        EntryContent::Tick(tick) => tick.outcomes.iter().any(|it| it.kind == OutcomeKind::Waiting),
        EntryContent::Event(_) => false,
    });
    assert!(waited, "the balloon waited");
}

/// A guest whose agent lies, floods the daemon and reports emergencies all the time gets only
/// memory that no other guest wants, and gives it back as soon as an honest guest asks for its
/// part.
#[test]
fn a_lying_guest_takes_nothing_from_an_honest_one() {
    let spec = |name| GuestSpec { agent: true, ..swapping(name, BOOT) };
    let lab = Lab::boot(vec![spec("honest"), spec("liar")]);
    let testbed = Testbed::new();
    let agents = lab.guest("honest").agent_socket().unwrap().parent().unwrap().to_owned();
    crate::support::liar::lie(lab.guest("liar"));
    let settings = format!(
        "[policy]\nname = \"demand-proportional\"\n[host]\nbudget = \"640MiB\"\n\
         [agents]\nfolders = [{agents:?}]"
    );
    testbed.configure_for(lab.sockets(), FAST, &settings);
    let daemon = testbed.start();
    let wait_log = |what: &str| wait_for(what, || testbed.log().contains(what).then_some(()));
    wait_log("liar (agent): rejected an implausible message from its agent");
    wait_allocation("what the other does not want", &daemon, "liar", |holds| {
        holds > Bytes::mib(340)
    });
    // With its kernel the honest guest needs more than half of the budget.
    lab.start_constant("honest", Bytes::mib(260));
    wait_allocation("its part", &daemon, "honest", |holds| holds >= Bytes::mib(300));
    wait_allocation("the rest", &daemon, "liar", |holds| holds <= Bytes::mib(340));
    let status = daemon.status().expect("a status");
    assert!(guest(&status, "honest").is_some() && guest(&status, "liar").is_some());
    assert!(daemon.stop().success());
}

/// For guests into which memory is plugged: boot memory, memory that can be plugged, and the budget
/// of two.
const SMALL: Bytes = Bytes::mib(384);
const PLUGGABLE: Bytes = Bytes::mib(512);
const SHARED: Bytes = Bytes::mib(1100);

/// A guest into which memory can be plugged. Its QEMU reboots when the guest does, instead of
/// ending.
fn pluggable(name: &str) -> GuestSpec {
    let extra_args = ["-action", "reboot=reset"].map(str::to_owned).to_vec();
    let hotplug = Some(Hotplug::virtio_mem(PLUGGABLE));
    GuestSpec { hotplug, extra_args, ..GuestSpec::new(name.parse().unwrap(), SMALL) }
}

/// Waits until a guest holds `size`, the most that it may have.
fn wait_holds(daemon: &Daemon<'_>, name: &str, size: Bytes) {
    wait_allocation("what it may have", daemon, name, |holds| {
        holds.abs_diff(size) <= Bytes::mib(10)
    });
}

/// A guest that is rebooted while memory is plugged, unplugged or ballooned has its part in the
/// end. A guest that is killed while memory is plugged leaves all of it to the other.
#[test]
fn reboots_and_kills_in_the_middle_of_plugging_are_overcome() {
    let lab = Lab::boot(vec![pluggable("moves"), pluggable("other")]);
    let testbed = Testbed::new();
    let settings = format!(
        "[host]\nbudget = \"{SHARED:#}\"\n[policy]\nname = \"static\"\ninterval = \"500ms\"\n\
         [mechanisms.hotplug]\nidle_after = \"1s\"\nkeep = \"128MiB\"\nahead = \"128MiB\"\n\
         [guests.other]\nceiling = \"300MiB\"\n[guests.moves]\nceiling = \"300MiB\""
    );
    testbed.configure_for(lab.sockets(), FAST, &settings);
    let daemon = testbed.start();
    wait_holds(&daemon, "moves", Bytes::mib(300));
    wait_holds(&daemon, "other", Bytes::mib(300));
    let mut monitor = Monitor::connect(lab.guest("moves").lab_qmp_socket());
    for (ceiling, is_ballooned) in [(780, false), (300, false), (384, true), (200, true)] {
        let boots = lab.boots("moves");
        if is_ballooned {
            set(&testbed, &["moves", "--ceiling", &format!("{ceiling}MiB")]);
            wait_for("the balloon on its way", || {
                let view = daemon.status()?;
                let view = guest(&view, "moves")?;
                (view.target_bytes? == Bytes::mib(ceiling).get()).then_some(())
            });
        } else {
            let (plugged, requested) =
                set_ceiling_and_wait(&testbed, &mut monitor, "moves", ceiling);
            eprintln!("rebooted with {plugged} plugged in of {requested} asked for");
        }
        monitor.run("system_reset", &serde_json::json!({}));
        wait_for("the guest to boot", || (lab.boots("moves") > boots).then_some(()));
        wait_holds(&daemon, "moves", Bytes::mib(ceiling));
        assert_unrefused(&daemon);
    }

    let (plugged, requested) = set_ceiling_and_wait(&testbed, &mut monitor, "moves", 780);
    lab.guest("moves").kill();
    eprintln!("killed with {plugged} plugged in of {requested} asked for");
    wait_guests(&daemon, 1);
    set(&testbed, &["other", "--ceiling", "850MiB"]);
    wait_holds(&daemon, "other", Bytes::mib(850));
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
}

/// A guest is moved to another QEMU while its balloon inflates, and from there to a third while
/// memory is plugged. The new QEMU's guest is held until it runs, and the old one's from then on;
/// in the end the guest has what it may have.
#[test]
fn a_guest_moved_in_mid_action_is_held_then_followed() {
    let has_survived = || {
        let survives = moves_twice_in_mid_action();
        if !survives {
            eprintln!("the guest's kernel died in a move: once more");
        }
        survives
    };
    assert!((0..MOVES_MAX).any(|_| has_survived()), "its kernel died {MOVES_MAX} times");
}

/// Most attempts to move a guest: its kernel does not always survive that.
const MOVES_MAX: u32 = 4;

/// Moves the guest twice. Returns false as soon as its kernel is found to have died.
fn moves_twice_in_mid_action() -> bool {
    let lab = Lab::boot(vec![pluggable("leaves")]);
    let testbed = Testbed::new();
    let settings = "[host]\nbudget = \"3GiB\"\n[policy]\nname = \"static\"\ninterval = \"500ms\"\n\
         [mechanisms.hotplug]\nidle_after = \"1s\"\nkeep = \"128MiB\"\nahead = \"128MiB\"\n\
         [guests.leaves]\nceiling = \"380MiB\"\n[guests.comes]\nceiling = \"200MiB\"\n\
         [guests.stays]\nceiling = \"780MiB\"";
    testbed.configure_for(lab.sockets(), FAST, settings);
    let daemon = testbed.start();
    wait_holds(&daemon, "leaves", Bytes::mib(380));

    let left = lab.guest("leaves").lab_qmp_socket();
    let comes = IncomingGuest::begin(&daemon, &lab, left, "comes");
    set(&testbed, &["leaves", "--ceiling", "200MiB"]);
    wait_for("the balloon on its way", || {
        (allocation(&daemon, "leaves")? < Bytes::mib(370)).then_some(())
    });
    if !comes.end(&daemon, left, "leaves", Bytes::mib(200)) {
        return false;
    }
    lab.guest("leaves").kill();
    wait_guests(&daemon, 1);
    set(&testbed, &["comes", "--ceiling", "380MiB"]);
    if !comes.wait_holds(&daemon, Bytes::mib(380)) {
        return false;
    }

    let left = comes.destination.second_qmp();
    let stays = IncomingGuest::begin(&daemon, &lab, &left, "stays");
    let (plugged, requested) =
        set_ceiling_and_wait(&testbed, &mut Monitor::connect(&left), "comes", 780);
    eprintln!("moves with {plugged} plugged in of {requested} asked for");
    if !stays.end(&daemon, &left, "comes", Bytes::mib(780)) {
        return false;
    }
    comes.destination.kill();
    wait_guests(&daemon, 1);
    set(&testbed, &["stays", "--ceiling", "300MiB"]);
    if !stays.wait_holds(&daemon, Bytes::mib(300)) {
        return false;
    }
    assert_unrefused(&daemon);
    assert!(daemon.stop().success());
    true
}

/// A guest on its way to another QEMU, where the daemon sees it under another name.
struct IncomingGuest {
    destination: Destination,
    name: &'static str,
}

impl IncomingGuest {
    /// Begins a move out of the QEMU with the QMP socket `source`, slow enough to last until
    /// [`IncomingGuest::end`].
    fn begin(daemon: &Daemon<'_>, lab: &Lab, source: &Path, name: &'static str) -> IncomingGuest {
        let destination = Destination::start(lab, "leaves", name);
        wait_for("the guest that is to come", || state(daemon, name));
        destination.begin(source, 8);
        IncomingGuest { destination, name }
    }

    /// Ends the move. The guest is held on both sides until it runs here, and from then on at the
    /// source; in the end it holds `size`. Returns false if its kernel died.
    fn end(&self, daemon: &Daemon<'_>, source: &Path, from: &str, size: Bytes) -> bool {
        wait_settled(daemon);
        assert_ne!(state(daemon, self.name).as_deref(), Some("running"));
        self.destination.finish(source);
        let is_running = |name: &str| Some(state(daemon, name)? == "running");
        wait_for("the guest to run", || is_running(self.name)?.then_some(()));
        wait_for("the guest to be held where it was", || (!is_running(from)?).then_some(()));
        let survives = self.wait_holds(daemon, size);
        assert_unrefused(daemon);
        survives
    }

    /// Waits until the guest holds `size`. Returns false if its kernel died.
    fn wait_holds(&self, daemon: &Daemon<'_>, size: Bytes) -> bool {
        wait_for("the moved guest to hold what it may", || {
            if self.destination.has_kernel_died() {
                return Some(false);
            }
            let holds = allocation(daemon, self.name)?;
            (holds.abs_diff(size) <= Bytes::mib(10)).then_some(true)
        })
    }
}

/// The code of the guest's state in the daemon's status.
fn state(daemon: &Daemon<'_>, name: &str) -> Option<String> {
    Some(guest(&daemon.status()?, name)?.state.code.clone())
}

/// Sets a guest's ceiling, in MiB, and waits until its QEMU plugs or unplugs memory. Returns the
/// plugged and the requested size. A quick guest plugs a step within milliseconds, so the wait
/// begins before the command ends, and does not sleep.
fn set_ceiling_and_wait(
    testbed: &Testbed,
    monitor: &mut Monitor,
    name: &str,
    mib: u64,
) -> (Bytes, Bytes) {
    std::thread::scope(|scope| {
        scope.spawn(|| set(testbed, &[name, "--ceiling", &format!("{mib}MiB")]));
        let begun = Instant::now();
        loop {
            let (plugged, requested) = monitor.plugged();
            if plugged != requested {
                return (plugged, requested);
            }
            assert!(begun.elapsed() < PATIENCE, "QEMU of {name} plugs nothing");
        }
    })
}
