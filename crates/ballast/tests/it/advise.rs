//! `ballast advise` as scripts use it, on the journal of an observed host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use ballast_control::Settings;
use ballast_model::{Bytes, GuestId, GuestLimits, Mode, ModeChoice, PolicyName, Timestamp};
use ballast_sim::{GuestSpec, HostSpec, Pattern, Scenario, Simulation, Sources, named};
use ballast_store::{Event, JournalConfig, Start, Tick, Writer};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::wait_for;
use crate::program::{self, Done};

fn guest(name: &str, size: Bytes, statistics: bool) -> GuestSpec {
    let sources = Sources { statistics, agent: false, tracker: None, ..Sources::default() };
    let spec = GuestSpec { sources, ..GuestSpec::new(name.parse().unwrap(), Bytes::gib(2)) };
    spec.with(Duration::ZERO, Pattern::Constant { size })
}

/// The journal of a host with an idle guest, a busy one, and one without statistics.
fn journal(folder: &Path, mode: Mode) -> PathBuf {
    let guests = vec![
        guest("idle", Bytes::mib(200), true),
        guest("busy", Bytes::mib(1200), true),
        guest("mute", Bytes::mib(100), false),
    ];
    journal_of(folder, mode, guests)
}

/// The journal of a host with `guests`: two hours with a tick every five seconds.
fn journal_of(folder: &Path, mode: Mode, guests: Vec<GuestSpec>) -> PathBuf {
    let path = folder.join("journal.db");
    let mut control = Settings::new(PolicyName::Global);
    (control.tick, control.mode) = (Duration::from_secs(5), mode);
    control.guard.budget = Some(Bytes::gib(6));
    let scenario = Scenario {
        name: "observed".to_owned(),
        duration: Duration::from_secs(7200),
        seed: 1,
        block: Scenario::BLOCK_DEFAULT,
        host: HostSpec::new(Bytes::gib(7)),
        control,
        guests,
    };
    let wall = |now: Duration| UNIX_EPOCH + Duration::from_secs(1_700_000_000) + now;
    let start = Start {
        wall: wall(Duration::ZERO),
        mono: Timestamp::ZERO,
        boot_id: "boot".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 1,
    };
    let limits: BTreeMap<GuestId, GuestLimits> = BTreeMap::new();
    let mut writer = Writer::open(&path, JournalConfig::default(), start).unwrap();
    let toml = "mode = \"observe\"\n[host]\nbudget = \"6GiB\"\n".to_owned();
    let loaded = Event::ConfigLoaded { toml };
    writer.record_event(wall(Duration::ZERO), Timestamp::ZERO, loaded).unwrap();
    let mut simulation = Simulation::new(&scenario, named(&scenario, PolicyName::Global)).unwrap();
    while simulation.step() {
        let (snapshot, plan) = simulation.decided().unwrap();
        let tick = Tick {
            wall: wall(simulation.now()),
            snapshot,
            answer: None,
            plan,
            outcomes: &[],
            carried: &[],
            handovers: &[],
            limits: &limits,
            paused: false,
            mode: ModeChoice::new(mode),
            decision_cost: Duration::ZERO,
        };
        writer.record(&tick).unwrap();
    }
    path
}

fn run(folder: &TempDir, arguments: &[&str]) -> Done {
    let mut command = program::ballast(&[&["advise"], arguments].concat());
    program::run(command.current_dir(folder.path()).env_remove("BALLAST_JOURNAL").env("TZ", "UTC"))
}

#[test]
fn an_observed_journal_gives_advice() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), Mode::Observe);
    let arguments = ["--journal", "journal.db", "--html", "advice.html"];
    let Done { status, out, err } = run(&folder, &arguments);
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
    for needle in [
        "1440 ticks in 1h 59m",
        "replayed under global",
        "95 % of the time, at least",
        "of the median size, 2GiB, if all is used",
        "too big",
        "$ ballast set idle --ceiling",
        "no fresh statistics",
        "$ modprobe virtio_balloon    # inside mute",
        "assumptions",
    ] {
        assert!(out.contains(needle), "no {needle} in\n{out}");
    }
    let widest = out.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?}\n{out}");
    let html = fs::read_to_string(folder.path().join("advice.html")).unwrap();
    for needle in ["<polyline", "Simulated", "modprobe virtio_balloon", "--html advice.html"] {
        assert!(html.contains(needle), "no {needle} in\n{html}");
    }
    for absent in ["<script", "http://", "https://", "src=", "@import"] {
        assert!(!html.contains(absent), "{absent} in\n{html}");
    }
}

/// The JSON has the fields that docs/json.md lists.
#[test]
fn the_json_of_advice_is_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), Mode::Observe);
    let arguments = ["--journal", "journal.db", "--policy", "self-scheduling", "--json"];
    let json: Value = serde_json::from_str(&run(&folder, &arguments).out).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().unwrap().keys().map(String::clone).collect()
    };
    let documented =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let section = documented.split("## `ballast advise`").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    for value in [
        &json,
        &json["window"],
        &json["returnable"],
        &json["more_guests"],
        &json["confidence"],
        &json["guests"][0],
        &json["guests"][1]["findings"][0],
        &json["course"][0],
    ] {
        for key in keys(value) {
            let is_named =
                section.contains(&format!("`{key}`")) || section.contains(&format!("`{key}[]`"));
            assert!(is_named, "{key} is not in docs/json.md");
        }
    }
    assert_eq!(json["simulated"], true);
    assert_eq!(json["policy"], "self-scheduling");
    assert_eq!(json["guests"].as_array().unwrap().len(), 3);
    let returnable = json["returnable"]["mean_bytes"].as_u64().unwrap() >> 20;
    // Of 4 GiB two guests use 1,400 MiB and their kernels' memory, and keep a reserve.
    assert!((1800..2400).contains(&returnable), "{returnable}");
}

/// A guest holds half of what it needs, beside a guest that has far more than it needs.
#[test]
fn need_that_swap_hides_is_told_as_a_bound() {
    let starved = |agent: bool| {
        let mut starved = guest("starved", Bytes::mib(1000), true);
        starved.start = Some(Bytes::mib(512));
        // The record begins before the guest swaps.
        starved.workloads[0].at = Duration::from_secs(60);
        starved.sources.agent = agent;
        vec![guest("idle", Bytes::mib(200), true), starved]
    };
    let bounds = ["1 guest swaps", "≥ 1", "apt install ./ballast-agent_*.deb    # inside starved"];
    for agent in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        journal_of(folder.path(), Mode::Observe, starved(agent));
        let Done { status, out, err } = run(&folder, &["--journal", "journal.db"]);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        for bound in bounds {
            assert_eq!(out.contains(bound), !agent, "{bound} in\n{out}");
        }
        let widest = out.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{widest:?}\n{out}");
        let json: Value =
            serde_json::from_str(&run(&folder, &["--journal", "journal.db", "--json"]).out)
                .unwrap();
        assert_eq!(json["guests_hiding_need"], u64::from(!agent));
        let need = json["guests"][1]["need_p50_bytes"].as_u64().unwrap() >> 20;
        // Its data, its kernel's memory, and what the kernel keeps free.
        assert!((1000..1250).contains(&need), "{need} MiB, agent: {agent}");
    }
}

#[test]
fn a_balanced_journal_says_what_was_given_back_already() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), Mode::Balance);
    let arguments = ["--journal", "journal.db", "--policy", "self-scheduling", "--json"];
    let json: Value = serde_json::from_str(&run(&folder, &arguments).out).unwrap();
    assert_eq!(json["given_already_mean_bytes"], 0, "global leaves memory with its guests");
    assert!(json["returnable"]["p95_bytes"].as_u64().unwrap() > 0);
}

/// A daemon's page runs the command like this, and the daemon may be killed meanwhile.
#[test]
fn work_for_a_daemon_is_humble_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    journal(folder.path(), Mode::Observe);
    // The output exceeds what an unread pipe holds, so the command waits with its last lines.
    let advise = format!(
        "{:?} advise --journal journal.db --json --for-daemon $$ & echo $! >pid; wait",
        crate::PROGRAM
    );
    let mut daemon = Command::new("sh");
    daemon.args(["-c", &advise]).current_dir(folder.path()).stdout(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let pipe = daemon.stdout.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    let stat = wait_for("its number", || {
        let pid = fs::read_to_string(folder.path().join("pid")).ok();
        pid.filter(|pid| pid.ends_with('\n')).map(|pid| format!("/proc/{}/stat", pid.trim()))
    });
    // State is the first and nice the seventeenth field after the name.
    let fields = || {
        let stat = fs::read_to_string(&stat).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(fields.split(' ').map(str::to_owned).collect::<Vec<_>>())
    };
    wait_for("the lowest priority", || (fields()?[16] == "19").then_some(()));
    let score = stat.replace("stat", "oom_score_adj");
    wait_for("the highest score", || (fs::read_to_string(&score).ok()? == "1000\n").then_some(()));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    wait_for("its end", || fields().is_none_or(|fields| fields[0] == "Z").then_some(()));
    drop(pipe);
    let done = run(&folder, &["--journal", "journal.db", "--for-daemon", "1"]);
    assert_eq!(done.status, Some(1), "{}", done.out);
    assert!(done.err.contains("process 1 did not start this one"), "{}", done.err);
}

#[test]
fn what_cannot_be_advised_on_is_told_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = journal(folder.path(), Mode::Observe);
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../store/tests/fixtures/v1.db");
    fs::copy(fixture, folder.path().join("one.db")).unwrap();
    fs::write(folder.path().join("text.db"), "no database\n".repeat(100)).unwrap();
    let cases: [(&[&str], i32, &[&str]); 10] = [
        (&["--journal", "none.db"], 1, &["none.db", "--journal"]),
        (&["--journal", "text.db"], 1, &["text.db", "not a journal"]),
        (&["--journal", "one.db"], 1, &["one.db", "no two ticks", "--since"]),
        (&["--journal", "journal.db", "--since", "3s"], 1, &["no two ticks", "--since"]),
        (&["--journal", "journal.db", "--since", "500d"], 2, &["--since", "366d"]),
        (&["--journal", "journal.db", "--policy", "globl"], 2, &["globl", "global"]),
        (&["--journal", "journal.db", "--policy", "tws"], 1, &["tws", "--policy"]),
        (&["--journal", "journal.db", "--policy", "external"], 1, &["external", "--policy"]),
        (&["--journal", "journal.db", "--policy", "meb"], 1, &["meb", "miss curve", "--policy"]),
        (&["--journal", "journal.db", "--html", "journal.db"], 1, &["journal.db", "input"]),
    ];
    for (arguments, status, needles) in cases {
        let done = run(&folder, arguments);
        assert_eq!((done.status, done.out.as_str()), (Some(status), ""), "{arguments:?}");
        for needle in needles {
            assert!(done.err.contains(needle), "{arguments:?}: no {needle} in {}", done.err);
        }
    }
    // A journal of a later version.
    let later = rusqlite::Connection::open(&path).unwrap();
    later.pragma_update(None, "user_version", 99).unwrap();
    drop(later);
    let done = run(&folder, &["--journal", "journal.db"]);
    assert!(done.status == Some(1) && done.err.contains("later version"), "{}", done.err);
}
