//! Tests `ballast-lab evaluate` as scripts use it: verdicts from bands, pages, and that finished
//! runs are not run again. The tests make their own scenarios and papers.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, Done, ballast};

const CATALOGUE: &str = r#"
paper = "Made"
title = "A paper that is made up"

[[bands]]
metric = "speedup_vs_static"
within = { times = 1000 }
because = "it is made up"

[[bands]]
metric = "work_ratio"
within = { apart = 0.0001 }
because = "it is made up"
kind = { at_least = 0.001 }

[[bands]]
metric = "violations"
within = { at_most = 0 }
because = "nothing may exceed the budget"

[[rows]]
id = "1"
place = "Table 1"
what = "a | gain"
simulate = ["short.toml"]

[[rows.figures]]
what = "ticks over budget"
policy = "global"
metric = "violations"

[[rows]]
id = "2"
place = "Table 2"
what = "no such work"
simulate = ["short.toml"]

[[rows]]
id = "2.fitted"
place = "Table 3"
what = "what the model is fitted to"
simulate = ["short.toml"]

[[rows]]
id = "4"
place = "Table 4"
what = "a long one"
simulate = ["long.toml"]

[[rows.figures]]
what = "ticks over budget"
policy = "global"
metric = "violations"

[[rows]]
id = "5"
place = "Table 5"
what = "none"
not = "nobody has tried it"

[[rows]]
id = "6"
place = "Table 6"
what = "real guests"
lab = ["real.toml"]

[[rows.figures]]
what = "work"
policy = "global"
guest = "a"
metric = "work_ratio"
value = 0.9
"#;

const SCENARIO: &str = r#"
policies = ["static", "global"]
[host]
budget = "512MiB"
reserve = "64MiB"
[defaults]
touch = "2us"
[[guests]]
name = "a"
memory = "512MiB"
start = "256MiB"
[[guests.workloads]]
kind = "random-array"
steps = [{ at_s = 0, size = "220MiB" }]
seed = 1
[[guests]]
name = "b"
memory = "512MiB"
start = "256MiB"
"#;

const PAPER: &str = r#"
[[paper]]
what = "gain"
policy = "global"
guest = "a"
metric = "speedup_vs_static"
value = 2.0
source = "Made Table 1"
[[paper]]
what = "work"
policy = "global"
guest = "a"
metric = "work_ratio"
value = 0.0
source = "Made Table 2"
[[paper]]
what = "gain, fitted"
policy = "global"
guest = "a"
metric = "speedup_vs_static"
value = 2.0
source = "Made Table 3"
[[parameters]]
key = "defaults.touch"
origin = "fitted"
because = "the gain"
fitted_to = ["Made Table 3"]
"#;

/// A folder with scenarios and their catalogue.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("scenarios");
    fs::create_dir_all(own.join("evaluation")).unwrap();
    let write = |name: &str, text: &str| fs::write(own.join(name), text).unwrap();
    write("evaluation/made.toml", CATALOGUE);
    write("short.toml", &format!("name = \"short\"\nduration = \"30s\"{SCENARIO}{PAPER}"));
    write("long.toml", &format!("name = \"long\"\nduration = \"12h\"{SCENARIO}"));
    write(
        "real.toml",
        &format!(
            "name = \"real\"\nduration = \"30s\"\nbest = true{}",
            SCENARIO.replace("[defaults]\ntouch = \"2us\"\n", "",)
        ),
    );
    folder
}

fn run(folder: &TempDir, arguments: &[&str]) -> Done {
    program::run(
        ballast(&["evaluate", "--state", "state"]).args(arguments).current_dir(folder.path()),
    )
}

fn json(folder: &TempDir, arguments: &[&str]) -> Value {
    let Done { status, out, err } = run(folder, &[arguments, &["--json"]].concat());
    assert_eq!(status, Some(0), "{arguments:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

fn row<'a>(json: &'a Value, id: &str) -> &'a Value {
    let rows = json["papers"][0]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id}: {json}"))
}

/// Files of the state, and when they were written.
fn kept(folder: &TempDir) -> Vec<(String, std::time::SystemTime)> {
    let Ok(entries) = fs::read_dir(folder.path().join("state")) else { return Vec::new() };
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        // A file that is being written does not count yet.
        name.ends_with(".json").then(|| (name, entry.metadata().unwrap().modified().unwrap()))
    };
    let mut files: Vec<_> = entries.flatten().filter_map(file).collect();
    files.sort();
    files
}

const CHEAP: [&str; 10] = [
    "--only",
    "made.1",
    "--only",
    "made.2",
    "--only",
    "made.5",
    "--only",
    "made.6",
    "--repetitions",
    "2",
];

#[test]
fn verdicts_follow_from_bands_and_are_counted() {
    let folder = folder();
    let found = json(&folder, &CHEAP);
    let first = row(&found, "made.1");
    assert_eq!((&first["verdict"], &first["seen"]), (&"reproduced".into(), &"simulated".into()));
    assert_eq!(first["figures"].as_array().unwrap().len(), 2, "{first}");
    assert_eq!(first["figures"][0]["ours"]["count"], 2);
    let second = row(&found, "made.2");
    assert_eq!(second["verdict"], "in-kind", "{second}");
    for (id, cause) in
        [("made.2.fitted", "fitted"), ("made.5", "no-counterpart"), ("made.6", "not-run")]
    {
        let row = row(&found, id);
        assert_eq!((&row["verdict"], &row["cause"]), (&"not".into(), &cause.into()), "{row}");
    }
    let counts = &found["counts"];
    assert_eq!((&counts["rows"], &counts["not_run"]), (&5.into(), &1.into()), "{counts}");
    let origins = found["origins"].as_array().unwrap();
    let touch = origins.iter().find(|it| it["key"] == "defaults.touch").unwrap();
    assert_eq!((&touch["value"], &touch["origin"]), (&"2us".into(), &"fitted".into()));
}

#[test]
fn page_and_markdown_say_what_the_table_says() {
    let folder = folder();
    let files = ["--markdown", "e.md", "--page", "e.html"];
    let Done { status, out, err } = run(&folder, &[&CHEAP[..], &files].concat());
    assert_eq!(status, Some(0), "{err}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let (text, page) = (read("e.md"), read("e.html"));
    for needle in ["reproduced", "in kind", "nobody has tried it", "--real", "fitted to it"] {
        assert!(out.contains(needle), "{needle}: {out}");
        assert!(text.contains(needle), "{needle}: {text}");
        assert!(page.contains(needle), "{needle}: {page}");
    }
    // Every line of a table has the same columns.
    assert!(text.contains("a \\| gain") && text.contains("within 1000 times"), "{text}");
    assert!(!page.contains("http"), "self-contained");
    assert!(err.contains("[1/2]") && err.contains("left in all"), "{err}");
}

#[test]
fn what_was_run_counts_until_an_input_changes() {
    let folder = folder();
    let jobs = |json: &Value| (json["jobs_ran"].as_u64(), json["jobs_kept"].as_u64());
    assert_eq!(jobs(&json(&folder, &CHEAP)), (Some(2), Some(0)));
    let before = kept(&folder);
    assert_eq!(jobs(&json(&folder, &CHEAP)), (Some(0), Some(2)));
    assert_eq!(kept(&folder), before);
    // Only the additional repetition runs.
    let more = [&CHEAP[..8], &["--repetitions", "3"]].concat();
    assert_eq!(jobs(&json(&folder, &more)), (Some(1), Some(2)));
    let path = folder.path().join("scenarios/short.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("30s", "31s")).unwrap();
    assert_eq!(jobs(&json(&folder, &CHEAP)), (Some(2), Some(0)));
    assert_eq!(jobs(&json(&folder, &[&CHEAP[..], &["--fresh"]].concat())), (Some(2), Some(0)));
}

/// The checksum is that of `real.toml`, in any version of the program.
const KEPT: &str = r#"{
  "format": 1,
  "rows": {
    "made.6": [
      {
        "scenario": "real",
        "fingerprint": "b7fa984a",
        "runs": {
          "commit": "c0ffee",
          "accelerator": "tcg",
          "cpu": null,
          "repetitions": [
            {
              "ended_at": "2026-01-02T03:04:05Z"
            }
          ]
        },
        "figures": [
          {
            "what": "work",
            "policy": "global",
            "guest": "a",
            "metric": "work_ratio",
            "values": [
              0.9
            ]
          }
        ]
      }
    ]
  }
}
"#;

#[test]
fn a_row_without_runs_has_its_kept_figures() {
    let folder = folder();
    let path = folder.path().join("docs/evaluation.json");
    fs::create_dir(folder.path().join("docs")).unwrap();
    fs::write(&path, KEPT).unwrap();
    let arguments = ["--only", "made.6", "--repetitions", "1", "--markdown", "e.md"];
    let found = json(&folder, &arguments);
    let real = row(&found, "made.6");
    assert_eq!(
        (&real["verdict"], &real["seen"]),
        (&"reproduced".into(), &"on real guests, tcg".into())
    );
    assert_eq!(
        (&real["runs"][0]["is_kept"], &real["runs"][0]["commit"]),
        (&true.into(), &"c0ffee".into())
    );
    let text = fs::read_to_string(folder.path().join("e.md")).unwrap();
    assert!(text.contains("kept from commit c0ffee, 2026-01-02T03:04:05Z."), "{text}");
    assert_eq!(fs::read_to_string(&path).unwrap(), KEPT);
    let scenario = folder.path().join("scenarios/real.toml");
    fs::write(&scenario, fs::read_to_string(&scenario).unwrap().replace("30s", "31s")).unwrap();
    let Done { status, out, err } = run(&folder, &arguments);
    assert_eq!(status, Some(0), "{err}");
    assert!(
        err.contains("made.6: its scenario changed") && out.contains("--real runs it"),
        "{err}"
    );
    assert!(!fs::read_to_string(&path).unwrap().contains("made.6"));
    fs::write(&path, KEPT.replace("0.9", "x")).unwrap();
    let Done { status, err, .. } = run(&folder, &arguments);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("docs/evaluation.json") && err.contains("at line 25"), "{err}");
}

#[test]
fn no_run_begins_that_would_end_too_late() {
    let folder = folder();
    let found = json(&folder, &[&CHEAP[..], &["--within", "0s"]].concat());
    let first = row(&found, "made.1");
    assert_eq!(first["cause"], "not-run", "{first}");
    assert!(first["because"].as_str().unwrap().contains("what was left of"), "{first}");
    assert!(kept(&folder).is_empty());
    let found = json(&folder, &[&CHEAP[..], &["--within", "1h"]].concat());
    assert_eq!(row(&found, "made.1")["verdict"], "reproduced");
}

#[test]
fn rows_are_listed_with_the_time_that_they_take() {
    let folder = folder();
    let takes = |id: &str| {
        let rows = json(&folder, &["--list"]);
        let rows = rows.as_array().unwrap();
        rows.iter().find(|row| row["id"] == id).unwrap()["takes_s"].as_f64()
    };
    // Two runs of 30 s each, and the time around them.
    assert!((60.0..120.0).contains(&takes("made.6").unwrap()));
    assert_eq!((takes("made.1"), takes("made.5")), (None, None));
    assert!(!folder.path().join("state").exists(), "it has kept something");
    json(&folder, &["--only", "made.1", "--repetitions", "1"]);
    assert!(takes("made.1").is_some());
    let Done { out, .. } = run(&folder, &["--list"]);
    assert!(out.contains("2 runs on real guests take"), "{out}");
}

/// Ends the process with the test, even if the test fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_call_is_taken_up_where_it_ended() {
    let folder = folder();
    let arguments = ["evaluate", "--state", "state", "--repetitions", "1"];
    let only = ["--only", "made.1", "--only", "made.4"];
    let mut command = ballast(&arguments);
    command.args(only).current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Ended(command.spawn().unwrap());
    let patience = Instant::now() + Duration::from_mins(2);
    while kept(&folder).is_empty() {
        assert!(Instant::now() < patience, "no result is kept");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let before = kept(&folder);
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["simulate-short-toml-1.json"], "it was killed in the middle");
    // The job that was not reached is made shorter.
    let long = folder.path().join("scenarios/long.toml");
    fs::write(&long, fs::read_to_string(&long).unwrap().replace("12h", "10s")).unwrap();
    let found = json(&folder, &[&only[..], &["--repetitions", "1"]].concat());
    assert_eq!((&found["jobs_ran"], &found["jobs_kept"]), (&1.into(), &1.into()));
    assert!(kept(&folder).contains(&before[0]), "the finished one ran again");
}

#[test]
fn the_rows_of_the_tree_are_listed_and_chosen() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = |only: &[&str]| {
        let arguments = [&["evaluate", "--list", "--json"], only].concat();
        let Done { status, out, err } = program::run(ballast(&arguments).current_dir(&tree));
        assert_eq!(status, Some(0), "{err}");
        let rows: Vec<Value> = serde_json::from_str(&out).unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(&["--only", "meb.V"]), ["meb.V", "meb.V.real"]);
    let all = list(&[]);
    for paper in ["meb.", "imt.", "global.", "flexmemd.", "tws.", "rivals."] {
        assert!(all.iter().any(|id| id.starts_with(paper)), "{paper}");
    }
}

#[test]
fn a_row_of_the_tree_runs_to_its_verdict() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().display().to_string();
    let results = folder.path().join("evaluation.json").display().to_string();
    let arguments = [
        &["evaluate", "--state", &state, "--results", &results, "--only", "global.fig4"][..],
        &["--repetitions", "1", "--json"],
    ]
    .concat();
    let Done { status, out, err } = program::run(ballast(&arguments).current_dir(&tree));
    assert_eq!(status, Some(0), "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    let rows = found["papers"][0]["rows"].as_array().unwrap();
    let ids: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(ids, ["global.fig4", "global.fig4.real"]);
    assert_eq!(rows[0]["seen"], "simulated");
    assert!(rows[0]["figures"].as_array().unwrap().iter().all(|it| it["ours"]["count"] == 1));
    assert_eq!(rows[1]["cause"], "not-run");
}

#[test]
fn mistakes_name_what_is_wrong() {
    let folder = folder();
    for (arguments, needles) in [
        (&["--only", "made.7"][..], &["made.7", "--list"][..]),
        (&["--scenarios", "nowhere"], &["nowhere/evaluation", "--scenarios"]),
        (&["--only", "made.1", "--page", "no/such/e.html"], &["cannot write no/such/e.html"]),
    ] {
        let done = run(&folder, arguments);
        assert_eq!(done.status, Some(1), "{arguments:?}: {}", done.err);
        for needle in needles {
            assert!(done.err.contains(needle), "{arguments:?} lacks {needle}: {}", done.err);
        }
    }
    assert_eq!(run(&folder, &["--quick", "--real"]).status, Some(2));
    assert_eq!(run(&folder, &["--repetitions", "0"]).status, Some(2));
    assert_eq!(run(&folder, &["--within", "100"]).status, Some(2));
}

#[test]
fn a_scenario_that_cannot_run_costs_its_row_alone() {
    let folder = folder();
    fs::remove_file(folder.path().join("scenarios/real.toml")).unwrap();
    let found = json(&folder, &CHEAP);
    let failed = row(&found, "made.6");
    assert_eq!(failed["cause"], "cannot-run", "{failed}");
    assert!(failed["because"].as_str().unwrap().contains("real.toml"), "{failed}");
    assert_eq!(row(&found, "made.1")["verdict"], "reproduced");
}
