//! Tests of the daemon process with fake QMP peers instead of hypervisors: guests misbehave,
//! operators intervene, the daemon is killed. Tests with real guests are in `tests/real`.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Testbed, guest, wait_for};
use ballast_control::Controller;
use ballast_model::{Bytes, PolicyAnswer};
use ballast_qmp_testing::{Misbehaviour, Peer, PeerConfig};
use ballast_store::{EntryContent, Event, JournalConfig, Range, Reader, Start, Writer};
use rustix::process::Signal;
use tokio::runtime::Runtime;

pub(crate) const FAST: &str = "tick = \"100ms\"";
pub(crate) const BUDGET: &str = "[host]\nbudget = \"1GiB\"\nreserve = \"0\"\n[policy]\ninterval = \"200ms\"\nbelieved_without_evidence = 1000";

/// The allocation that a peer with 600 MiB in use gets in the end.
const BUSY: Bytes = Bytes::mib(740);

/// Peers on a runtime of their own, so that they run while the test blocks.
pub(crate) struct Peers {
    runtime: Runtime,
}

impl Peers {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        Peers { runtime }
    }

    pub(crate) fn spawn(&self, testbed: &Testbed, name: &str, config: PeerConfig) -> Peer {
        let _runtime = self.runtime.enter();
        Peer::spawn(&testbed.guest(name), config).unwrap()
    }

    pub(crate) fn using(&self, testbed: &Testbed, name: &str, mib: u64) -> Peer {
        let config = PeerConfig { used: Bytes::mib(mib), ..PeerConfig::default() };
        self.spawn(testbed, name, config)
    }
}

#[test]
fn memory_moves_to_the_guest_that_uses_it() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let busy = peers.using(&testbed, "busy", 600);
    let idle = peers.using(&testbed, "idle", 100);
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    // Both have 1 GiB of boot memory. The busy one needs its 600 MiB, its kernel's memory (40 MiB
    // in a peer) and its reserve; the other gets the rest.
    wait_for("the division", || {
        let settled = busy.allocation().abs_diff(BUSY) <= Bytes::mib(10)
            && idle.allocation().abs_diff(Bytes::gib(1) - BUSY) <= Bytes::mib(10);
        settled.then_some(())
    });
    let (code, out, _) = testbed.ballast(&["explain", "busy"]);
    assert_eq!(code, Some(0));
    // 640 MiB, or some MiB less if it stays within the dead band.
    let shows_need = out.contains("needs 640MiB") || out.contains("needs 63");
    assert!(shows_need && out.contains("taxed"), "{out}");
    assert!(daemon.stop().success());
    assert!(!testbed.path("api.sock").exists(), "its socket goes with it");
    let reader = Reader::open(&testbed.journal()).unwrap();
    let last = reader.events(Range::default()).map(Result::unwrap).last().unwrap();
    assert!(matches!(last.content, EntryContent::Event(Event::Stopped { .. })), "{last:?}");
}

#[test]
fn a_killed_daemon_resumes_with_an_intact_journal() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    testbed.configure(FAST, BUDGET);
    for _ in 0..3 {
        let daemon = testbed.start();
        let before = daemon.status().unwrap().daemon.unwrap().ticks;
        wait_for("some ticks", || (daemon.status()?.daemon?.ticks > before + 3).then_some(()));
        daemon.kill();
    }
    let daemon = testbed.start();
    wait_for("the division", || (busy.allocation().abs_diff(BUSY) <= Bytes::mib(10)).then_some(()));
    daemon.kill();
    let reader = Reader::open(&testbed.journal()).unwrap();
    let entries: Vec<_> = reader.entries(Range::default()).map(Result::unwrap).collect();
    let numbers: Vec<i64> = entries.iter().map(|entry| entry.id).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "no gap: {numbers:?}");
    assert_eq!(reader.sessions().unwrap().len(), 4);
    assert!(entries.len() > 16);
}

#[test]
fn the_service_manager_hears_of_start_ticks_and_stop() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _busy = peers.using(&testbed, "busy", 600);
    testbed.configure(FAST, BUDGET);
    let manager = UnixDatagram::bind(testbed.path("notify.sock")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let daemon = testbed.spawn_with(|command| {
        command.env("NOTIFY_SOCKET", testbed.path("notify.sock"));
    });
    let mut message = [0; 256];
    let mut next = || {
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let started: Vec<String> = (0..4).map(|_| next().trim().to_owned()).collect();
    assert_eq!(started, ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
    // A stopped daemon does not ping the service manager.
    daemon.signal(Signal::STOP);
    manager.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    while manager.recv(&mut message).is_ok() {}
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    daemon.signal(Signal::CONT);
    let length = manager.recv(&mut message).unwrap();
    assert_eq!(message[..length].trim_ascii(), b"WATCHDOG=1");
    assert!(daemon.stop().success());
    let mut last = String::new();
    manager.set_nonblocking(true).unwrap();
    while let Ok(length) = manager.recv(&mut message) {
        last = String::from_utf8(message[..length].to_vec()).unwrap();
    }
    assert_eq!(last.trim(), "STOPPING=1");
}

/// A fresh controller fed with the recorded samples makes the recorded plans, byte for byte.
#[test]
fn a_recorded_run_replays_to_the_same_plans() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    wait_for("the division", || (busy.allocation().abs_diff(BUSY) <= Bytes::mib(10)).then_some(()));
    assert!(daemon.stop().success());

    let ticks = replay(&testbed).len();
    assert!(ticks > 5, "{ticks}");
}

/// Checks that a fresh controller fed with the recorded samples and answers of the policy's program
/// makes the recorded plans. Returns the answer of each tick.
pub(crate) fn replay(testbed: &Testbed) -> Vec<Option<PolicyAnswer>> {
    let text = fs::read_to_string(testbed.config_file()).unwrap();
    let config = ballast_config::parse(&text, &testbed.config_file()).unwrap();
    let reader = Reader::open(&testbed.journal()).unwrap();
    let mut controller: Option<Controller> = None;
    let mut answers = Vec::new();
    for entry in reader.ticks(Range::default()) {
        let EntryContent::Tick(tick) = entry.unwrap().content else { continue };
        let now = tick.snapshot.taken_at;
        let controller =
            controller.get_or_insert_with(|| Controller::new(config.settings.clone(), now));
        // They are outcomes of the plan before.
        for outcome in tick.outcomes {
            controller.handle_event(ballast_control::Event::Outcome(outcome));
        }
        assert_eq!(controller.question(&tick.snapshot).is_some(), tick.answer.is_some());
        if let Some(answer) = &tick.answer {
            controller.handle_event(ballast_control::Event::Answer(answer.clone()));
        }
        let plan = controller.handle_sample(&tick.snapshot);
        assert_eq!(format!("{plan:?}"), format!("{:?}", tick.plan), "tick {}", answers.len());
        while controller.poll_action().is_some() {}
        answers.push(tick.answer);
    }
    answers
}

#[test]
fn misbehaving_guests_harm_only_themselves() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let wicked = [
        ("mute", Misbehaviour::NoGreeting),
        ("silent", Misbehaviour::Silent),
        ("garbage", Misbehaviour::Garbage),
        ("binary", Misbehaviour::NotUtf8),
        ("deep", Misbehaviour::Deep),
        ("oversize", Misbehaviour::Oversize),
        ("wrong-ids", Misbehaviour::WrongIds),
        ("closing", Misbehaviour::ClosesMidMessage),
        ("frozen", Misbehaviour::FrozenStatistics),
    ];
    let _wicked: Vec<Peer> = wicked
        .iter()
        .map(|&(name, misbehaviour)| {
            peers.spawn(&testbed, name, PeerConfig { misbehaviour, ..PeerConfig::default() })
        })
        .collect();
    let _bare =
        peers.spawn(&testbed, "bare", PeerConfig { has_balloon: false, ..PeerConfig::default() });
    fs::write(testbed.guest("plain-file"), "no socket").unwrap();
    let good = peers.using(&testbed, "good", 300);
    testbed.configure(FAST, "[host]\nreserve = \"0\"");
    let daemon = testbed.start();
    let (code, out, err) = testbed.ballast(&["set", "good", "--ceiling", "450MiB"]);
    assert_eq!(code, Some(0), "{out}{err}");
    wait_for("the good guest's new ceiling", || {
        (good.allocation() == Bytes::mib(450)).then_some(())
    });
    let status = wait_for("the reasons", || {
        let status = daemon.status()?;
        let text = |name| guest(&status, name).map(|guest| format!("{guest:?}"));
        let said = text("mute")?.contains("another client") && text("bare")?.contains("no balloon");
        said.then_some(status)
    });
    for (name, _) in wicked {
        let view = guest(&status, name).unwrap();
        assert!(!format!("{view:?}").contains("Grow"), "{view:?}");
    }
    assert!(daemon.stop().success());
}

#[test]
fn memory_that_no_process_has_mapped_does_not_count() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    // More memory than a process can map.
    let claimed = Bytes::gib(1 << 20);
    let _liar =
        peers.spawn(&testbed, "liar", PeerConfig { boot_memory: claimed, ..PeerConfig::default() });
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    let status = wait_for("the note", || {
        let status = daemon.status()?;
        status.notes.iter().any(|note| note.code == "unmapped").then_some(status)
    });
    let committed = status.budget.committed_bytes;
    assert!(Bytes::new(committed) < claimed.fraction(1, 1000), "{committed}");
    assert!(daemon.stop().success());
}

#[test]
fn guests_come_and_go() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    assert_eq!(daemon.status().unwrap().guests.len(), 0);
    let first = peers.using(&testbed, "first", 100);
    let second = peers.using(&testbed, "second", 100);
    wait_for("both to be balanced", || {
        let half = Bytes::mib(512);
        (first.allocation() == half && second.allocation() == half).then_some(())
    });
    drop(second);
    wait_for("the second to be forgotten", || (daemon.status()?.guests.len() == 1).then_some(()));
    wait_for("the first to have it all", || (first.allocation() == Bytes::gib(1)).then_some(()));
}

#[test]
fn an_invalid_reload_keeps_the_last_good_configuration() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let _a = peers.using(&testbed, "a", 600);
    let _b = peers.using(&testbed, "b", 100);
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    let good = fs::read_to_string(testbed.config_file()).unwrap();
    fs::write(testbed.config_file(), format!("{good}\n[gard]\n")).unwrap();
    daemon.signal(Signal::HUP);
    let why = wait_for("the refusal", || daemon.status()?.daemon?.reload_error);
    assert!(why.contains("gard") && why.contains("guard"), "{why}");
    assert_eq!(daemon.status().unwrap().daemon.unwrap().policy, "global");
    fs::write(testbed.config_file(), good.replace("[policy]", "[policy]\nname = \"static\""))
        .unwrap();
    daemon.signal(Signal::HUP);
    wait_for("the new policy", || {
        let daemon = daemon.status()?.daemon?;
        (daemon.policy == "static" && daemon.reload_error.is_none()).then_some(())
    });
}

#[test]
fn operator_commands_are_executed_and_recorded() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let a = peers.using(&testbed, "a", 600);
    let _b = peers.using(&testbed, "b", 100);
    testbed.configure(FAST, &format!("{BUDGET}\n[defaults]\nswap = true"));
    let daemon = testbed.start();
    wait_for("balance", || (a.allocation() >= Bytes::mib(690)).then_some(()));
    for (arguments, status) in [
        (&["pause"][..], 0),
        (&["set", "a", "--floor", "2GiB"], 1),
        (&["set", "nobody", "--shares", "5"], 1),
        (&["set", "a", "--ceiling", "400MiB"], 0),
        (&["set", "--policy", "static"], 0),
    ] {
        let (code, out, err) = testbed.ballast(arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {out}{err}");
    }
    let (_, dry, _) = testbed.ballast(&["plan", "--dry-run"]);
    assert!(dry.contains("400MiB"), "{dry}");
    assert!(a.allocation() >= Bytes::mib(690), "paused");
    assert_eq!(testbed.ballast(&["resume"]).0, Some(0));
    wait_for("the ceiling", || (a.allocation() == Bytes::mib(400)).then_some(()));
    assert!(daemon.stop().success());
    let (_, exported, _) =
        testbed.ballast(&["journal", "export", "--journal", testbed.journal().to_str().unwrap()]);
    for words in ["pause", "set a --ceiling 400MiB", "set --policy static", "resume"] {
        assert!(exported.contains(words), "{words} in the journal");
    }
    let who = format!("\"who\":\"uid {}\"", rustix::process::geteuid().as_raw());
    assert_eq!(exported.matches(&who).count(), 5, "{who} in the journal");
    assert!(exported.lines().all(|line| line.starts_with('{') && line.ends_with('}')));
}

#[test]
fn a_daemon_that_observes_moves_nothing_until_told_to() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let a = peers.using(&testbed, "a", 600);
    let b = peers.using(&testbed, "b", 100);
    testbed.configure(FAST, BUDGET);
    testbed.configure_to_observe();
    let daemon = testbed.start();
    let first = [a.allocation(), b.allocation()];
    let wanted = wait_for("some decisions", || {
        let status = daemon.status()?;
        let wanted = status.guests.iter().find(|it| it.guest == "a")?.wanted_bytes?;
        (status.daemon?.ticks > 20).then_some(wanted)
    });
    // The first step from 1 GiB towards its part.
    assert!(Bytes::new(wanted) < first[0] && Bytes::new(wanted) > Bytes::mib(600), "{wanted}");
    let (code, output, _) = testbed.ballast(&["mode"]);
    assert_eq!((code, output.as_str()), (Some(0), "observe, as configured\n"));
    let (_, output, _) = testbed.ballast(&["status"]);
    let parts = ["observing: nothing is moved", "WANTED"];
    assert!(parts.iter().all(|part| output.contains(part)), "{output}");
    let (code, _, why) = testbed.ballast(&["reserve", "100MiB", "--for", "c"]);
    assert!(code == Some(1) && why.contains("observing"), "{why}");
    let (code, _, why) = testbed.ballast(&["mode", "obsrve"]);
    assert!(code == Some(2) && why.contains("expected balance or observe"), "{why}");
    assert_eq!([a.allocation(), b.allocation()], first);

    assert_eq!(testbed.ballast(&["mode", "balance"]).0, Some(0));
    wait_for("the division", || (a.allocation().abs_diff(BUSY) <= Bytes::mib(10)).then_some(()));
    daemon.kill();
    let daemon = testbed.start();
    let (_, output, _) = testbed.ballast(&["mode", "--json"]);
    let output: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&output["mode"], &output["configured"]), (&"balance".into(), &"observe".into()));
    assert!(daemon.stop().success());
}

#[test]
fn on_exit_restore_returns_guests_to_their_first_allocation() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let config = PeerConfig { used: Bytes::mib(100), ..PeerConfig::default() };
    let a = peers.spawn(&testbed, "a", config);
    testbed.configure(&format!("{FAST}\non_exit = \"restore\""), BUDGET);
    fs::write(
        testbed.config_file(),
        fs::read_to_string(testbed.config_file()).unwrap() + "[defaults]\nceiling = \"300MiB\"\n",
    )
    .unwrap();
    let daemon = testbed.start();
    wait_for("the ceiling", || (a.allocation() == Bytes::mib(300)).then_some(()));
    assert!(daemon.stop().success());
    assert_eq!(a.allocation(), Bytes::gib(1));
}

/// Needs root, to run a command as a user who may not open the socket.
#[test]
fn a_socket_without_permission_is_reported_as_such() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can run the daemon as another user");
        return;
    }
    // Other users cannot reach a test run's temporary files.
    let (testbed, peers) = (Testbed::within("/tmp".as_ref()), Peers::new());
    let _peer = peers.using(&testbed, "private", 100);
    testbed.configure(FAST, BUDGET);
    let program = testbed.path("ballast");
    fs::copy(env!("CARGO_BIN_EXE_ballast"), &program).unwrap();
    std::os::unix::fs::chown(testbed.path(""), Some(NOBODY), None).unwrap();
    let mut daemon = Command::new(program)
        .args(["daemon", "--config"])
        .arg(testbed.config_file())
        .uid(NOBODY)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = wait_for("the reason", || {
        let (_, out, _) = testbed.ballast(&["status"]);
        out.contains("permission denied").then_some(out)
    });
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(said.contains("private") && said.contains("in its group"), "{said}");
}

#[test]
fn a_failed_start_logs_its_cause() {
    let testbed = Testbed::new();
    testbed.configure(FAST, BUDGET);
    let first = testbed.start();
    assert!(!testbed.spawn().ended().success(), "a second daemon on the same socket");
    assert!(testbed.log().contains("another daemon"), "{}", testbed.log());
    assert!(first.stop().success());
    let _writer = Writer::open(&testbed.journal(), JournalConfig::default(), start()).unwrap();
    assert!(!testbed.spawn().ended().success(), "a journal that another daemon writes");
    assert!(testbed.log().contains("another daemon records here"), "{}", testbed.log());
}

fn start() -> Start {
    Start {
        wall: std::time::UNIX_EPOCH,
        mono: ballast_model::Timestamp::ZERO,
        boot_id: "another boot".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 1,
    }
}

#[test]
fn a_damaged_journal_is_moved_aside_and_told_of() {
    let testbed = Testbed::new();
    testbed.configure(FAST, BUDGET);
    assert!(testbed.start().stop().success());
    let journal = fs::read(testbed.journal()).unwrap();
    fs::write(testbed.journal(), [&[0; 100], &journal[100..]].concat()).unwrap();
    let daemon = testbed.start();
    let status = daemon.status().unwrap().daemon.unwrap();
    let [aside] = &status.journal_aside[..] else { panic!("{status:?}") };
    assert_eq!(fs::read(aside).unwrap()[100..], journal[100..]);
    assert_eq!(status.journal_error, None);
    assert!(testbed.log().contains(aside), "{}", testbed.log());
    assert!(daemon.stop().success());
    assert!(Reader::open(&testbed.journal()).unwrap().last_tick().unwrap().is_some());
}

#[test]
fn a_foreign_database_is_left_alone_and_told_of() {
    let testbed = Testbed::new();
    testbed.configure(FAST, BUDGET);
    let foreign = rusqlite::Connection::open(testbed.journal()).unwrap();
    foreign.execute_batch("CREATE TABLE mail (body TEXT);").unwrap();
    drop(foreign);
    let before = fs::read(testbed.journal()).unwrap();
    let daemon = testbed.start();
    let status = daemon.status().unwrap().daemon.unwrap();
    let error = status.journal_error.unwrap();
    assert!(error.contains("an SQLite file of another program"), "{error}");
    assert!(testbed.log().contains(&error), "{}", testbed.log());
    assert!(daemon.stop().success());
    assert_eq!(fs::read(testbed.journal()).unwrap(), before);
}

#[test]
fn no_guest_hears_what_the_journal_has_not() {
    for _ in 0..5 {
        let (testbed, peers) = (Testbed::new(), Peers::new());
        let booted = Bytes::gib(1);
        let guests = ["busy", "idle"].map(|name| (name, peers.using(&testbed, name, 100)));
        testbed.configure(FAST, BUDGET);
        let daemon = testbed.spawn();
        let begun = Instant::now();
        // Kills the daemon at the moment when the first peer gets a target.
        while guests.iter().all(|(_, peer)| peer.target() == booted) {
            assert!(begun.elapsed() < PATIENCE, "no guest was moved");
        }
        daemon.kill();
        let reader = Reader::open(&testbed.journal()).unwrap();
        let mut recorded = Vec::new();
        for entry in reader.ticks(Range::default()) {
            if let EntryContent::Tick(tick) = entry.unwrap().content {
                recorded.extend(tick.plan.actions);
            }
        }
        for (name, peer) in &guests {
            let target = peer.target();
            let is_recorded =
                recorded.iter().any(|it| it.guest.as_str() == *name && it.target == target);
            assert!(target == booted || is_recorded, "{name}: {target} of {recorded:?}");
        }
    }
}

#[test]
fn what_a_killed_daemon_promised_holds_from_the_start() {
    let (testbed, peers) = (Testbed::new(), Peers::new());
    let busy = peers.using(&testbed, "busy", 600);
    let _idle = peers.using(&testbed, "idle", 100);
    testbed.configure(FAST, BUDGET);
    let daemon = testbed.start();
    wait_for("the division", || (busy.allocation().abs_diff(BUSY) <= Bytes::mib(10)).then_some(()));
    assert_eq!(testbed.ballast(&["pause"]).0, Some(0));
    daemon.kill();
    let daemon = testbed.start();
    assert!(daemon.status().unwrap().tick.paused, "and it is still paused");
    assert!(daemon.stop().success());

    let reader = Reader::open(&testbed.journal()).unwrap();
    let ticks = |session| {
        let of_session = Range { session: Some(session), ..Range::default() };
        let tick = |entry: Result<ballast_store::Entry, _>| match entry.unwrap().content {
            EntryContent::Tick(tick) => tick,
            EntryContent::Event(event) => panic!("{event:?}"),
        };
        reader.ticks(of_session).map(tick).collect::<Vec<_>>()
    };
    let (before, after) = (ticks(1), ticks(2));
    let targets = |tick: &ballast_store::TickEntry| -> Vec<Option<Bytes>> {
        tick.plan.guests.iter().map(|guest| guest.target).collect()
    };
    let last = targets(before.last().unwrap());
    assert!(last.iter().all(Option::is_some), "{last:?}");
    assert_eq!(targets(&after[0]), last);
    assert!(after[0].paused);
    let sent: usize = after.iter().map(|tick| tick.plan.actions.len()).sum();
    assert_eq!(sent, 0);
}
