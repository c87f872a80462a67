//! Tests `ballast simulate` and `ballast replay` as scripts use them: the form of their output,
//! that the same input gives the same bytes, and the recorded outputs under `scenarios/golden`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, Done, ballast};

/// The golden outputs: a scenario, and the policies if they are not the scenario's own. Scenarios
/// run in full, because a paper's figure may refer to their end.
const GOLDEN: [(&str, Option<&str>); 24] = [
    ("flexmemd-10-10", None),
    ("flexmemd-10-20", None),
    ("flexmemd-20-20", None),
    ("flexmemd-converge-10-20-20", None),
    ("flexmemd-converge-10-20", None),
    ("flexmemd-converge-6-10", None),
    ("flexmemd-memcached-over", None),
    ("flexmemd-memcached-alone", None),
    ("flexmemd-memcached-under", None),
    ("flexmemd-postgresql-over", None),
    ("flexmemd-postgresql-alone", None),
    ("flexmemd-postgresql-under", None),
    ("global-10", None),
    ("global-2", Some("all")),
    ("global-5", Some("static,global,tws,qmemman")),
    ("global-cost-1200", Some("all")),
    ("global-cost-600", None),
    ("meb-16", None),
    ("meb-2", None),
    ("meb-2-cpu", None),
    ("meb-2-graph", None),
    ("meb-2-large", None),
    ("meb-4", None),
    ("tws-2", None),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scenario(name: &str) -> String {
    root().join(format!("scenarios/{name}.toml")).display().to_string()
}

fn run(folder: &TempDir, arguments: &[&str]) -> Done {
    program::run(ballast(arguments).current_dir(folder.path()))
}

fn succeed(folder: &TempDir, arguments: &[&str]) -> String {
    let Done { status, out, err } = run(folder, arguments);
    assert_eq!(status, Some(0), "{arguments:?}: {err}");
    out
}

/// Set `UPDATE_GOLDEN=1` to rewrite the golden outputs; then read the difference and justify it.
/// Another test compares the verdicts on papers' figures with `scenarios/golden/verdicts.txt`.
#[test]
fn recorded_outputs_are_given_again() {
    let folder = tempfile::tempdir().unwrap();
    for (name, policies) in GOLDEN {
        let path = scenario(name);
        let mut arguments = vec!["simulate", &path, "--json"];
        arguments.extend(policies.iter().flat_map(|it| ["--policy", it]));
        let out = succeed(&folder, &arguments);
        let path = root().join(format!("scenarios/golden/{name}.json"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &out).unwrap();
        }
        let recorded = fs::read_to_string(&path).unwrap();
        assert!(out == recorded, "{name}: differs from {}", path.display());
    }
}

#[test]
fn every_scenario_has_its_golden_output() {
    let names = |folder: &str, suffix: &str| -> Vec<String> {
        let entries = fs::read_dir(root().join(folder)).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(suffix)?.to_owned())).collect();
        names.sort();
        names
    };
    let mut listed = GOLDEN.map(|(name, _)| name.to_owned());
    listed.sort();
    assert_eq!(names("scenarios", ".toml"), listed);
    assert_eq!(names("scenarios/golden", ".json"), listed);
}

#[test]
fn json_has_the_documented_form_and_is_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario("meb-2");
    let arguments =
        ["simulate", &path, "--policy", "global,mom", "--duration", "30s", "--json", "--series"];
    let first = succeed(&folder, &arguments);
    assert_eq!(first, succeed(&folder, &arguments));
    let json: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&json["scenario"], &json["simulated"]), (&"meb-2".into(), &true.into()));
    let policies = json["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().filter_map(|it| it["policy"].as_str()).collect();
    assert_eq!(names, ["global", "mom"]);
    for policy in policies {
        for key in ["work_ratio", "speedup_vs_static", "major_faults", "moved_bytes", "jain"] {
            assert!(policy[key].is_number(), "{key}: {policy}");
        }
        assert!(policy.get("converge_s").is_some());
        assert_eq!((&policy["violations"], &policy["plans_refused"]), (&0.into(), &0.into()));
        let guests = policy["guests"].as_array().unwrap();
        assert_eq!(guests.len(), 2);
        assert!(!guests[0]["series"].as_array().unwrap().is_empty());
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "no page beside JSON");
}

#[test]
fn the_table_says_simulated_and_the_page_is_self_contained() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario("meb-2");
    let arguments =
        ["simulate", &path, "--policy", "static,global", "--duration", "20s", "--csv", "s.csv"];
    let out = succeed(&folder, &arguments);
    for needle in ["simulated", "POLICY", "global", "MEB Table IV", "meb-2.html"] {
        assert!(out.contains(needle), "{needle}: {out}");
    }
    let page = fs::read_to_string(folder.path().join("meb-2.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("simulated") && !page.contains("http"));
    let csv = fs::read_to_string(folder.path().join("s.csv")).unwrap();
    let mut lines = csv.lines();
    let columns = lines.next().unwrap().split(',').count();
    assert!(lines.clone().count() > 10 && lines.all(|line| line.split(',').count() == columns));
}

#[test]
fn more_guests_fit_where_memory_moves() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario("global-2");
    let arguments = [
        "simulate",
        &path,
        "--policy",
        "static,global",
        "--max-guests",
        "--slowdown",
        "10%",
        "--duration",
        "60s",
        "--json",
    ];
    let json: Value = serde_json::from_str(&succeed(&folder, &arguments)).unwrap();
    let most = |at: usize| json["policies"][at]["max_guests"].as_u64().unwrap();
    assert!(most(1) >= most(0) && most(1) >= 1, "{json}");
    assert_eq!(json["slowdown"], 0.1);
}

#[test]
fn a_seed_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let path = scenario("tws-2");
    let with = |seed: &str| {
        let arguments =
            ["simulate", &path, "--policy", "tws", "--duration", "60s", "--seed", seed, "--json"];
        succeed(&folder, &arguments)
    };
    assert_ne!(with("1"), with("2"));
}

#[test]
fn mistakes_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "name = \"x\"\nduration = \"1s\"\ngests = []\n")
        .unwrap();
    let path = scenario("meb-2");
    for (arguments, status, needles) in [
        (&["simulate", "nowhere.toml"][..], 1, &["nowhere.toml", "cannot read"][..]),
        (&["simulate", "bad.toml"], 1, &["bad.toml:3", "gests", "guests"]),
        (&["simulate", &path, "--policy", "globl"], 2, &["globl", "global"]),
        (&["simulate", &path, "--duration", "0s"], 2, &["--duration"]),
        (&["replay", "nowhere.db", "--policy", "global"], 1, &["nowhere.db"]),
        (&["replay", "nowhere.db"], 2, &["--policy"]),
        (
            &["replay", "nowhere.db", "--policy", "globl"],
            2,
            &["`globl`", "mom", "nearest is `global`"],
        ),
        (
            &["simulate", &path, "--csv", "no/such/folder.csv"],
            1,
            &["cannot write no/such/folder.csv"],
        ),
        (&["simulate", "bad.toml", "--page", "bad.toml"], 1, &["bad.toml:3"]),
    ] {
        let done = run(&folder, arguments);
        assert_eq!(done.status, Some(status), "{arguments:?}: {}", done.err);
        for needle in needles {
            assert!(done.err.contains(needle), "{arguments:?} lacks {needle}: {}", done.err);
        }
    }
}

/// A journal of an older version with one tick, which is enough to check the form.
#[test]
fn a_journal_is_replayed_under_other_policies() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.db");
    fs::copy(root().join("crates/store/tests/fixtures/v1.db"), &journal).unwrap();
    let arguments = [
        "replay",
        "journal.db",
        "--policy",
        "static,global,mom",
        "--csv",
        "decisions.csv",
        "--page",
        "days.html",
        "--json",
    ];
    let json: Value = serde_json::from_str(&succeed(&folder, &arguments)).unwrap();
    assert_eq!(json["simulated"], true);
    assert!(json["assumptions"].as_array().unwrap().len() >= 3);
    assert!(json["ticks"].as_u64().unwrap() >= 1);
    let names: Vec<&Value> =
        json["policies"].as_array().unwrap().iter().map(|it| &it["policy"]).collect();
    assert_eq!(names, ["static", "global", "mom"]);
    for policy in json["policies"].as_array().unwrap() {
        for key in ["lacked_mib_s", "lacking_s", "moved_bytes", "allocation_mean_bytes"] {
            assert!(
                policy[key].is_number() && json["recorded"][key].is_number(),
                "{key}: {policy}"
            );
            let guest = &policy["guests"][0];
            assert!(guest["recorded"][key].is_number() && guest["imagined"][key].is_number());
        }
    }
    let page = fs::read_to_string(folder.path().join("days.html")).unwrap();
    for needle in ["<svg", "simulated", "would have used", "mom", "--page days.html"] {
        assert!(page.contains(needle), "{needle}");
    }
    let all: Value = serde_json::from_str(&succeed(
        &folder,
        &["replay", "journal.db", "--policy", "all", "--json"],
    ))
    .unwrap();
    assert!(all["policies"].as_array().unwrap().len() > 12, "{all}");
    let csv = fs::read_to_string(folder.path().join("decisions.csv")).unwrap();
    assert!(csv.starts_with("unix_ms,policy,guest,"), "{csv}");
    let table = succeed(&folder, &arguments[..4]);
    assert!(table.contains("as recorded") && table.contains("assumptions"), "{table}");
    // A damaged journal gives an error that names it.
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..whole.len() / 2]).unwrap();
    let done = run(&folder, &arguments);
    assert_eq!(done.status, Some(1), "{}", done.out);
    assert!(done.err.contains("journal.db"), "{}", done.err);
}
