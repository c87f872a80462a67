//! How soon `ballast reserve` has a GiB free, compared with the time that the balloons alone take.
//!
//! Goal: at most 1.25 times as long. Two idle guests of 1 GiB hold all of a budget of 2 GiB. In
//! turns, this program orders both balloons to 512 MiB by QMP and waits until they are there, or it
//! runs the real `ballast reserve 1GiB` against the real daemon. After each turn the guests get
//! their memory back. The daemon runs only in its own turns, each with a new journal, because a
//! reservation outlives the daemon. Cost: two minutes.
//!
//! Limits: idle guests with their memory free; emulated where KVM does not work.
//!
//! `cargo bench -p ballast --bench reserve_time`, after `make build`; with `--test` one round.

mod harness;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ballast_lab_host::{LabError, Run, RunOptions};
use ballast_model::Bytes;
use ballast_qmp::client::QmpClient;
use ballast_qmp::command::QmpCommand;
use harness::lab::{guest_with_monitor, measure_guests};
use harness::{api_socket, start_daemon_on, stop};

const GUESTS: [&str; 2] = ["one", "two"];
const MEMORY: Bytes = Bytes::gib(1);
const HALF: Bytes = Bytes::mib(512);
const RATIO_MAX: f64 = 1.25;
/// Time between two questions for a balloon's size.
const LOOK: Duration = Duration::from_millis(1);
/// Time until a new daemon knows its guests.
const SETTLES_IN: Duration = Duration::from_secs(5);
/// Limit for every wait, longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    measure_guests(start, measure)
}

/// The guests, each with a monitor for the daemon.
fn start(testbed: &Path) -> Result<Run, LabError> {
    let qmp = testbed.join("qmp");
    std::fs::create_dir(&qmp).expect("a folder for sockets");
    let guests = GUESTS.map(|name| guest_with_monitor(name, MEMORY, &qmp)).to_vec();
    let options = RunOptions {
        limit_cpu: false,
        runs_folder: Some(testbed.join("runs")),
        ..RunOptions::new("reserve".parse().expect("a name"), guests)
    };
    Run::start(&options, &|line| eprintln!("{line}"))
}

async fn measure(run: &Run, testbed: &Path, is_test: bool) {
    let rounds = if is_test { 1 } else { 7 };
    let mut balloons = Vec::new();
    for name in GUESTS {
        let socket = run.guest(name).expect("the guest").lab_qmp_socket();
        balloons.push(QmpClient::connect(socket, PATIENCE).await.expect("the lab's monitor"));
    }
    println!("two guests of {MEMORY:#} under {:?}; {rounds} rounds", run.accel());
    let (mut own, mut ours) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        own.push(order(&mut balloons, HALF).await);
        order(&mut balloons, MEMORY).await;
        ours.push(reserve(testbed, round, &mut balloons).await);
        order(&mut balloons, MEMORY).await;
        println!("round {round} of {rounds} done");
    }
    let (own, ours) = (median(&mut own), median(&mut ours));
    let ratio = ours / own;
    let is_met = if ratio <= RATIO_MAX { "met" } else { "NOT MET" };
    println!("balloons themselves: {own:.2} s; ballast reserve 1GiB: {ours:.2} s (medians)");
    println!("ratio: {ratio:.2} (goal: {RATIO_MAX}, {is_met})");
}

/// Orders all balloons at once, and returns the time until the last has reached its target.
async fn order(balloons: &mut [QmpClient], target: Bytes) -> Duration {
    let ordered = Instant::now();
    for balloon in &mut *balloons {
        balloon.call(&QmpCommand::Balloon { target }).await.expect("an answer");
    }
    for balloon in balloons {
        while held(balloon).await != target {
            assert!(ordered.elapsed() < PATIENCE, "a balloon does not get to {target:#}");
            tokio::time::sleep(LOOK).await;
        }
    }
    ordered.elapsed()
}

/// What the guest holds now, by its balloon.
async fn held(balloon: &mut QmpClient) -> Bytes {
    let reply = balloon.call(&QmpCommand::QueryBalloon).await.expect("an answer");
    let reply: serde_json::Value = serde_json::from_str(&reply).expect("an object");
    Bytes::new(reply["actual"].as_u64().expect("a size"))
}

/// How long the command takes, against a new daemon that knows its guests and has taken nothing
/// from them.
async fn reserve(testbed: &Path, round: usize, balloons: &mut [QmpClient]) -> Duration {
    let qmp = testbed.join("qmp");
    let guests = format!("[qmp]\nfolders = [{qmp:?}]\n[tracking]\nenabled = false\n");
    let testbed = &testbed.join(format!("daemon-{round}"));
    std::fs::create_dir(testbed).expect("a folder for the daemon");
    let mut daemon = start_daemon_on(testbed, &guests, 2, 1000);
    tokio::time::sleep(SETTLES_IN).await;
    for balloon in balloons {
        assert_eq!(held(balloon).await, MEMORY, "the daemon took memory before it was to");
    }
    let began = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_ballast"))
        .args(["reserve", "1GiB", "--for", "new", "--wait", "60s"])
        .env("BALLAST_SOCKET", api_socket(testbed))
        .status()
        .expect("the command");
    let took = began.elapsed();
    assert!(status.success(), "not all of it was free: {status}");
    stop(&mut daemon);
    took
}

/// The median in seconds.
fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}
