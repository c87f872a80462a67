//! A guest's tracking client is killed or stopped at any time: the guest stalls hardly longer than
//! an untracked guest beside it.
//!
//! The test is its own client: started again with a guest's process id and socket in the
//! environment, it tracks as fast as it can until it is killed. Both guests go through their memory
//! all the time; permissions of the tracked one are revoked page by page. In every round the
//! longest gap in the progress of each guest is measured. The tracked guest's gap may exceed the
//! other's by a second, plus the longest time for which the observer itself did not run.
//!
//! Limits: ten rounds; `BALLAST_SOAK_ROUNDS` sets their number, `BALLAST_SOAK_SEED` repeats their
//! times.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bare::*;
use ballast_tracker::{TrackingSession, WatchSettings};
use ballast_tracker_proto::TrackerAddress;
use rustix::process::{Pid, Signal, kill_process};

const TEST: &str = "tracked_killed::a_guest_hardly_stalls_when_its_tracking_client_is_killed";
/// If this variable is set, the process is the client; it has a guest's process id and socket.
const CLIENT: &str = "BALLAST_TEST_TRACKING_CLIENT";
/// The longest that a guest may stall because it is tracked.
const STALL_MAX: Duration = Duration::from_secs(1);
/// The latest time of a kill in a round.
const KILL_WITHIN_MS: u64 = 700;
/// One in this many rounds stops the client before it kills it, like a client that hangs.
const HANG_EVERY: u64 = 4;

#[test]
fn a_guest_hardly_stalls_when_its_tracking_client_is_killed() {
    if !crate::may_track() {
        return;
    }
    if let Ok(arguments) = std::env::var(CLIENT) {
        let (pid, address) = arguments.split_once(' ').unwrap();
        track(pid.parse().unwrap(), &TrackerAddress::new(address));
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let rounds = number("BALLAST_SOAK_ROUNDS").unwrap_or(10);
    let seed = number("BALLAST_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("killing {rounds} clients of a guest, seed {seed}");
    kill_clients(rounds, seed);
}

/// Runs the client; it never ends by itself.
fn track(pid: u32, address: &TrackerAddress) -> ! {
    let mut tracking = TrackingSession::begin(pid, address, &[], None).unwrap();
    println!("tracking");
    for round in 0_u32.. {
        let granule = [1, 1, 8, 32][round as usize % 4];
        let watching = WatchSettings { hot_granules: round % 3 * 500, ..every(granule) };
        let length = Duration::from_millis(u64::from(round * 7 % 50));
        interval(&mut tracking, watching, length).unwrap();
    }
    unreachable!("it is killed first");
}

/// The longest gaps in a round.
#[derive(Debug, Default)]
struct Gaps {
    tracked: Duration,
    beside: Duration,
    /// Between two observations.
    observer: Duration,
}

/// Watches both guests until `is_over` is set.
fn watch(tracked: &File, beside: &File, is_over: &AtomicBool) -> Gaps {
    let began = Instant::now();
    let mut gaps = Gaps::default();
    let mut last = [(passes(tracked), began), (passes(beside), began)];
    let mut looked = began;
    loop {
        let now = Instant::now();
        gaps.observer = gaps.observer.max(now.duration_since(looked));
        looked = now;
        // The last observation also counts guests that have not moved since.
        let is_last = is_over.load(Ordering::SeqCst);
        let all = [(tracked, &mut gaps.tracked), (beside, &mut gaps.beside)];
        for ((memory, longest), (count, at)) in all.into_iter().zip(&mut last) {
            *longest = (*longest).max(now.duration_since(*at));
            let passes = passes(memory);
            if passes != *count {
                (*count, *at) = (passes, now);
            }
        }
        if is_last {
            return gaps;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill_clients(rounds: u64, seed: u64) {
    let tracked = Bare::start(&Spec::default());
    let beside = Bare::start(&Spec { has_tracker: false, ..Spec::default() });
    let memories = (tracked.memory(), beside.memory());
    tracked.goes_on(&memories.0);
    beside.goes_on(&memories.1);
    let mut state = seed;
    let mut worst = Duration::ZERO;
    for round in 0..rounds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let after = Duration::from_millis((state >> 33) % KILL_WITHIN_MS);
        let hangs = round % HANG_EVERY == HANG_EVERY - 1;
        let is_over = AtomicBool::new(false);
        let gaps = std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&memories.0, &memories.1, &is_over));
            end_one(&tracked, after, hangs);
            is_over.store(true, Ordering::SeqCst);
            watching.join().unwrap()
        });
        let longer = gaps.tracked.saturating_sub(gaps.beside);
        println!("round {round}, after {after:?}, hangs: {hangs}: {gaps:?}, longer by {longer:?}");
        assert!(longer <= STALL_MAX + gaps.observer, "round {round}: {gaps:?}");
        tracked.goes_on(&memories.0);
        worst = worst.max(longer);
    }
    println!("at most {worst:?} longer than the guest beside it");
}

/// Lets a client track the guest, ends it after `after`, and waits until nothing of it is left.
fn end_one(guest: &Bare, after: Duration, hangs: bool) {
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(CLIENT, format!("{} {}", guest.pid, guest.tracker()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.as_mut().unwrap()).lines();
    assert!(
        lines.map_while(Result::ok).any(|line| line.ends_with("tracking")),
        "the client ended first"
    );
    wait_until("memory to be revoked", || guest.is_registered());
    std::thread::sleep(after);
    assert!(client.try_wait().unwrap().is_none(), "it tracks when it is killed");
    if hangs {
        stop(&client);
        wait_until("permissions to be restored without the client", || !guest.is_registered());
    }
    client.kill().unwrap();
    client.wait().unwrap();
    wait_until("permissions to be restored", || !guest.is_registered());
}

fn stop(client: &Child) {
    let pid = Pid::from_raw(client.id() as i32).expect("the number of a process");
    kill_process(pid, Signal::STOP).unwrap();
}
