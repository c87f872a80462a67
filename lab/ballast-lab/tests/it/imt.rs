//! Tests `ballast imt` as scripts use it, on a series with phases that is generated here and
//! committed beside this file.

use std::fs;

use expect_test::expect;
use serde_json::{Value, json};

use crate::program::{self, Done, ballast};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data/phases.csv");

fn run(arguments: &[&str]) -> Done {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/data");
    program::run(ballast(&["imt"]).args(arguments).current_dir(tests))
}

fn piped(input: &str) -> Done {
    program::feed(&mut ballast(&["imt", "-"]), input.as_bytes())
}

/// A phase: its working set in KiB, its events, by how many thousandths each varies, and its number
/// of intervals.
struct Phase {
    wss_kib: u64,
    wss_stray: u64,
    events: u64,
    events_stray: u64,
    intervals: usize,
}

const fn phase(
    wss_kib: u64,
    wss_stray: u64,
    events: u64,
    events_stray: u64,
    intervals: usize,
) -> Phase {
    Phase { wss_kib, wss_stray, events, events_stray, intervals }
}

/// An hour of a guest, a row every 5 s: phases of minutes in which events vary more than working
/// sets, some phases that hardly show in events, and a spike of half a minute.
const HOUR: [Phase; 10] = [
    phase(60_000, 4, 20_000, 60, 60),
    phase(410_000, 6, 310_000, 140, 110),
    phase(390_000, 6, 300_000, 300, 90),
    phase(330_000, 6, 235_000, 120, 120),
    phase(280_000, 5, 170_000, 140, 70),
    phase(700_000, 10, 600_000, 60, 6),
    phase(310_000, 5, 212_000, 150, 60),
    phase(120_000, 8, 55_000, 320, 87),
    phase(150_000, 60, 85_000, 200, 47),
    phase(60_000, 4, 20_000, 60, 70),
];

/// The series of [`HOUR`] as a file.
fn made() -> String {
    let mut state = 1u64;
    // Knuth's multiplier (MMIX); the high bits are random enough for this.
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut around = |level: u64, stray: u64| {
        let reach = level * stray / 1000;
        level - reach + random(2 * reach + 1)
    };
    let mut text = "wss_bytes,events\n".to_owned();
    for phase in HOUR {
        for _ in 0..phase.intervals {
            let wss = around(phase.wss_kib / 4, phase.wss_stray) * 4096;
            text += &format!("{wss},{}\n", around(phase.events, phase.events_stray));
        }
    }
    text
}

/// `UPDATE_EXPECT=1` writes the file, and also updates the expected outputs below.
#[test]
fn the_sample_is_what_was_made() {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(SAMPLE, made()).unwrap();
    }
    assert_eq!(fs::read_to_string(SAMPLE).unwrap(), made());
}

#[test]
fn the_table_of_the_sample() {
    let Done { status, out, err } = run(&["phases.csv"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    expect![[r#"
        phases.csv: 720 intervals of 5.0s, 1h 0m in all

        MODE         THRESHOLD  UP RATIO     MRE
        fixed             0.05    39.9 %   0.7 %
        fixed             0.10    19.4 %   1.3 %
        fixed             0.15     8.5 %   8.5 %
        fixed             0.20     5.7 %  10.5 %
        fixed             0.25     4.9 %  11.3 %
        fixed             0.30     5.0 %  11.8 %
        adaptive  0.14 at last    20.4 %   1.6 %
    "#]]
    .assert_eq(&out);
}

#[test]
fn the_json_of_the_sample() {
    let Done { status, out, err } = run(&["phases.csv", "--json"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    expect![[r#"
        [
          {
            "mode": "fixed",
            "threshold": 0.05,
            "up_ratio": 0.39861111111111114,
            "mre": 0.007359996360198743
          },
          {
            "mode": "fixed",
            "threshold": 0.1,
            "up_ratio": 0.19444444444444445,
            "mre": 0.01296720883912343
          },
          {
            "mode": "fixed",
            "threshold": 0.15,
            "up_ratio": 0.08472222222222223,
            "mre": 0.0847275960868643
          },
          {
            "mode": "fixed",
            "threshold": 0.2,
            "up_ratio": 0.05694444444444444,
            "mre": 0.10503375776630415
          },
          {
            "mode": "fixed",
            "threshold": 0.25,
            "up_ratio": 0.04861111111111111,
            "mre": 0.11348850125747324
          },
          {
            "mode": "fixed",
            "threshold": 0.3,
            "up_ratio": 0.05,
            "mre": 0.11758593632795888
          },
          {
            "mode": "adaptive",
            "threshold": null,
            "up_ratio": 0.20416666666666666,
            "mre": 0.015615412117752293
          }
        ]
    "#]]
    .assert_eq(&out);
}

/// As in the paper: a tight threshold tracks more and errs less than a loose one; the adaptive one
/// tracks much less than the tightest and errs much less than the loosest.
#[test]
fn adaptive_has_something_of_both() {
    let runs: Vec<Value> = serde_json::from_str(&run(&["phases.csv", "--json"]).out).unwrap();
    let figures = |run: &Value| ["up_ratio", "mre"].map(|name| run[name].as_f64().unwrap());
    let [tightest, loosest, adaptive] = [0, 5, 6].map(|index| figures(&runs[index]));
    assert!(tightest[0] > loosest[0] && tightest[1] < loosest[1], "{runs:?}");
    assert!(adaptive[0] < 0.6 * tightest[0] && adaptive[1] < 0.3 * loosest[1], "{runs:?}");
}

#[test]
fn options_reach_the_machine() {
    let replayed = |options: &[&str]| -> Vec<Value> {
        let out = run(&[&["phases.csv", "--json"], options].concat()).out;
        serde_json::from_str(&out).unwrap()
    };
    let preset = replayed(&[]);
    assert_eq!(preset, replayed(&["--filter", "3", "--unit", "1MiB", "--interval", "1s"]));
    assert_ne!(preset, replayed(&["--filter", "5"]));
    // With this unit no change of the working set counts, so tracking always rests.
    let never = replayed(&["--unit", "1TiB"]);
    assert!(never[5]["up_ratio"].as_f64() < preset[5]["up_ratio"].as_f64(), "{never:?}");
}

#[test]
fn plots_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (svg, html) = (at("a.svg"), at("a.html"));
    let Done { status, err, .. } = run(&["phases.csv", "--plot", &svg, "--plot", &html]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg "));
    assert!(fs::read_to_string(&html).unwrap().starts_with("<!DOCTYPE html>"));
    let Done { status, err, .. } = run(&["phases.csv", "--plot", "/nonexistent/a.svg"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("cannot write /nonexistent/a.svg"), "{err}");
}

#[test]
fn a_series_comes_by_a_pipe_too() {
    let Done { status, out, err } = piped("events,wss_bytes\n1,4096\n");
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.starts_with("standard input: 1 interval of 5.0s"), "{out}");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let Done { status, out, err } = piped("wss_bytes,events\n4096,1\n4096,many\n");
    assert_eq!((status, out.as_str()), (Some(1), ""));
    let expected = "error: standard input:3:6: `many` in column events: expected a whole number from 0 to \
                2^64 - 1\n";
    assert_eq!(err, expected);
    let Done { status, err, .. } = run(&["absent.csv"]);
    assert_eq!(status, Some(1));
    assert!(err.starts_with("error: cannot read absent.csv: No such file"), "{err}");
    let Done { status, err, .. } = run(&["phases.csv", "--plot", "phases.csv"]);
    assert_eq!(status, Some(2), "{err}");
    for (option, value) in
        [("--filter", "1"), ("--filter", "x"), ("--interval", "0s"), ("--unit", "1MB")]
    {
        let Done { status, err, .. } = run(&["phases.csv", option, value]);
        assert_eq!(status, Some(2), "{option} {value}: {err}");
    }
}

#[test]
fn a_series_of_nothing_has_no_error() {
    let done = piped("wss_bytes,events\n0,0\n");
    assert!(done.out.contains('–'), "{}", done.out);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idle.csv");
    fs::write(&path, "wss_bytes,events\n0,0\n").unwrap();
    let out = run(&[&path.display().to_string(), "--json"]).out;
    let runs: Vec<Value> = serde_json::from_str(&out).unwrap();
    let adaptive = json!({"mode": "adaptive", "threshold": null, "up_ratio": 1.0, "mre": null});
    assert_eq!((runs.len(), &runs[6]), (7, &adaptive));
}
