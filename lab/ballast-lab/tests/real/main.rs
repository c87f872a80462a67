//! A scenario played with real guests and a real daemon, and one that is killed half-way.
//!
//! Limits: asserts states and counts, never times; needs QEMU and a built `lab-guest`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ballast_scenario_run::record::{GuestRun, Record, RunRecord};

/// Far longer than anything here takes, so that only a hang fails.
const PATIENCE: Duration = Duration::from_secs(180);
const MIB: u64 = 1 << 20;
/// The start size of both guests.
const START_BYTES: u64 = 256 * MIB;

const SCENARIO: &str = r#"
# A guest that needs more than its half, and one that idles.
name = "tiny"
duration = "30s"
[settings]
settle = "1s"
[host]
budget = "512MiB"
reserve = "128MiB"
[[guests]]
name = "a"
memory = "512MiB"
start = "256MiB"
swap = { size = "256MiB", speed = "ssd" }
[[guests.workloads]]
kind = "constant"
size = "240MiB"
[[guests]]
name = "b"
memory = "512MiB"
start = "256MiB"
"#;

/// A folder with a path short enough for sockets, with the scenario in it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::Builder::new().prefix("story").tempdir_in("/tmp").unwrap();
        fs::write(folder.path().join("tiny.toml"), SCENARIO).unwrap();
        Place { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ballast(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ballast-lab"));
        command.args(arguments).current_dir(self.folder.path());
        command.env("XDG_RUNTIME_DIR", self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Command lines of running processes that name this place.
    fn processes(&self) -> Vec<String> {
        let mark = self.folder.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let commands = processes.map(|process| fs::read(process.path().join("cmdline")));
        let texts =
            commands.flatten().map(|text| String::from_utf8_lossy(&text).replace('\0', " "));
        texts.filter(|text| text.contains(mark)).collect()
    }

    fn assert_nothing_left(&self) {
        let runs = self.path("ballast-lab");
        wait_until("no run is left", || fs::read_dir(&runs).map_or(0, Iterator::count) == 0);
        wait_until("no process is left", || self.processes().is_empty());
    }
}

fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < end, "did not come about: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn run<'a>(record: &'a Record, policy: &str) -> &'a RunRecord {
    record.runs.iter().find(|run| run.policy == policy).unwrap()
}

fn allocations(guest: &GuestRun) -> Vec<u64> {
    let seen = guest.samples.iter().filter_map(|sample| sample.daemon.as_ref());
    seen.filter_map(|daemon| daemon.allocation_bytes).collect()
}

fn assert_well_observed(run: &RunRecord) {
    for guest in &run.guests {
        let reports = guest.samples.iter().filter(|sample| sample.inside.is_some()).count();
        assert!(reports > 5, "{} reports of {} under {}", reports, guest.guest, run.policy);
        assert!(allocations(guest).len() > 5, "{} under {}", guest.guest, run.policy);
        let times: Vec<f64> = guest.samples.iter().map(|sample| sample.at_s).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}

fn assert_page(page: &Path) {
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("tiny: static and global"), "the title");
    assert!(page.contains("A guest that needs more than its half"), "the description");
    assert!(page.matches("<svg").count() >= 4, "a plot of each guest under each policy");
}

/// Checks that only `global` moved memory: by balloon, from `b` to `a`, with reasons.
fn assert_moved(moves: &serde_json::Value) {
    let moves = moves.as_array().unwrap();
    for (guest, direction) in [("a", "to_guest_bytes"), ("b", "to_host_bytes")] {
        let of_guest: Vec<_> = moves.iter().filter(|it| it["guest"] == guest).collect();
        let [moved] = of_guest[..] else { panic!("one row of {guest}: {moves:?}") };
        assert_eq!((&moved["policy"], &moved["mechanism"]), (&"global".into(), &"balloon".into()));
        assert!(moved[direction].as_u64().unwrap() > 0, "{moved}");
        assert!(moved["orders"].as_u64().unwrap() > 0 && moved["bytes_per_s"].is_f64(), "{moved}");
        let reasons = moved["reasons"].as_array().unwrap();
        assert!(
            !reasons.is_empty() && reasons.iter().all(|why| why["text"].is_string()),
            "{moved}"
        );
    }
}

/// Checks that real and simulated guests agree: within a few MiB in what they hold, in direction
/// and order of magnitude in everything else.
fn assert_simulated_alike(calibration: &serde_json::Value) {
    let figures = calibration["figures"].as_array().unwrap();
    let figure = |guest: &str, policy: &str, name: &str| {
        let is_it = |it: &&serde_json::Value| {
            (&it["guest"], &it["policy"], &it["figure"])
                == (&guest.into(), &policy.into(), &name.into())
        };
        let found = figures.iter().find(is_it).unwrap();
        let of = |key: &str| found[key].as_f64().unwrap();
        (of("real"), of("simulated"), of("simulated_at_speeds"))
    };
    for guest in ["a", "b"] {
        for policy in ["static", "global"] {
            let (real, simulated, _) = figure(guest, policy, "allocation-last");
            let ratio = simulated / real;
            assert!((0.75..1.34).contains(&ratio), "{guest} under {policy}: {simulated} of {real}");
        }
    }
    // It swaps with its half of the memory, and less or not at all with what the other guest can
    // spare.
    let under_static = figure("a", "static", "swap-out");
    let under_global = figure("a", "global", "swap-out");
    assert!(under_static.0 > under_global.0, "{under_static:?} {under_global:?}");
    assert!(under_static.1 > under_global.1, "{under_static:?} {under_global:?}");
    let gain = &calibration["gains"][0];
    for key in ["real", "simulated"] {
        assert!(gain[key].as_f64().unwrap() > 1.0, "{key}: {gain}");
    }
    // On a machine so slow that the memory is hardly filled in time, no policy makes a difference.
    assert!(gain["simulated_at_speeds"].as_f64().is_none_or(|it| it >= 0.9), "{gain}");
    assert!(calibration["speeds"]["touch_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_scenario_is_played_compared_and_leaves_nothing() {
    let place = Place::new();
    let output = place
        .ballast(&["lab", "run", "tiny.toml", "--simulated", "--json", "--report", "page.html"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output.status);
    place.assert_nothing_left();

    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["comparison"]["repetitions"], 1);
    assert_eq!(result["comparison"]["gains"][0]["policy"], "global");
    assert_eq!(result["files"].as_array().unwrap().len(), 3);
    assert_moved(&result["moves"]);
    assert_eq!(result["transfers"], serde_json::Value::Null, "none is timed");
    assert_page(&place.path("page.html"));
    assert_simulated_alike(&result["calibration"]);

    let text = fs::read_to_string(place.path("page.json")).unwrap();
    let record: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(record.runs.len(), 2);
    for run in &record.runs {
        assert_well_observed(run);
        let a = run.guest("a").unwrap();
        assert!(a.touches().is_some_and(|touches| touches > 0), "{}", run.policy);
        assert!(a.workloads.iter().all(|workload| workload.ended_well), "{:?}", a.workloads);
        assert_eq!(run.guest("b").unwrap().touches(), None);
    }
    let held = |policy: &str| allocations(run(&record, policy).guest("a").unwrap());
    assert!(held("static").iter().all(|held| *held == START_BYTES), "{:?}", held("static"));
    assert!(held("global").iter().any(|held| *held > START_BYTES), "{:?}", held("global"));
}

#[test]
fn a_story_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let arguments = ["lab", "run", "tiny.toml", "--duration", "1h", "--policy", "static"];
    let mut story = place.ballast(&arguments).spawn().unwrap();
    let socket = place.path("ballast-lab/tiny/daemon/api.sock");
    wait_until("its daemon listens", || {
        assert!(story.try_wait().unwrap().is_none(), "it has ended");
        socket.exists()
    });
    assert!(place.processes().iter().any(|process| process.contains("lab-daemon")));
    story.kill().unwrap();
    story.wait().unwrap();
    place.assert_nothing_left();
}

/// The names of the runs that are kept in `folder`.
fn kept(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
    names.sort();
    names
}

#[test]
fn a_killed_call_loses_only_the_run_it_was_in() {
    let place = Place::new();
    let arguments = ["lab", "run", "tiny.toml", "--duration", "6s", "--state", "kept", "--json"];
    let mut first = place.ballast(&arguments).stdout(Stdio::null()).spawn().unwrap();
    wait_until("a run is kept", || {
        assert!(first.try_wait().unwrap().is_none(), "it has ended");
        !kept(&place.path("kept")).is_empty()
    });
    first.kill().unwrap();
    first.wait().unwrap();
    place.assert_nothing_left();
    assert_eq!(kept(&place.path("kept")), ["lab-run-tiny-static-1.json"]);

    let second = place.ballast(&arguments).output().unwrap();
    let err = String::from_utf8(second.stderr).unwrap();
    assert!(second.status.success(), "{err}");
    assert!(err.contains("kept since") && !err.contains("run 1 of 2"), "{err}");
    assert_eq!(kept(&place.path("kept")).len(), 2);
    let result: serde_json::Value = serde_json::from_slice(&second.stdout).unwrap();
    let remarks = result["comparison"]["remarks"].to_string();
    assert!(remarks.contains("played by 2 calls"), "{remarks}");
    place.assert_nothing_left();
}

#[test]
fn what_is_wrong_is_told_before_anything_starts() {
    let place = Place::new();
    let error_of = |arguments: &[&str]| {
        let output = place.ballast(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let absent = error_of(&["lab", "run", "absent.toml"]);
    assert!(absent.contains("cannot read the scenario absent.toml"), "{absent}");
    fs::write(place.path("bad.toml"), SCENARIO.replace("budget", "budgte")).unwrap();
    let bad = error_of(&["lab", "run", "bad.toml"]);
    assert!(bad.contains("bad.toml:8:1: unknown key `budgte`"), "{bad}");
    let nowhere = error_of(&["lab", "run", "tiny.toml", "--report", "no/such/folder/page.html"]);
    assert!(nowhere.contains("--report PATH"), "{nowhere}");
    let huge = SCENARIO.replace("size = \"256MiB\"", "size = \"900TiB\"");
    fs::write(place.path("huge.toml"), huge).unwrap();
    let huge = error_of(&["lab", "run", "huge.toml"]);
    assert!(huge.contains("free") && huge.contains("BALLAST_CACHE"), "{huge}");
    let mut without = place.ballast(&["lab", "run", "tiny.toml"]);
    let without = without.env("BALLAST_LAB_GUEST", "/no/such/program").output().unwrap();
    let without = String::from_utf8(without.stderr).unwrap();
    assert!(without.contains("lab-guest") && without.contains("build"), "{without}");
    place.assert_nothing_left();
}
