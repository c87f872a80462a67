//! Kills clients while they track: all permissions must be restored, whenever that happens.
//!
//! The test is its own client: it starts itself again with an address and a region in the
//! environment, and that process tracks as fast as it can until it is killed.
//!
//! Limits: ten rounds, or `BALLAST_SOAK_ROUNDS`; `BALLAST_SOAK_SEED` repeats the moments.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use ballast_tracker::TrackerClient;
use ballast_tracker_proto::{CAPACITY_DEFAULT, RegionName, RegionSpec, TrackerAddress};

/// Set in the process that is the client: an address, a device and an inode.
const CLIENT: &str = "BALLAST_TEST_TRACKING_CLIENT";
const FIRST: u64 = 1 << 20;
const PAGES: usize = 8192;
/// The tracker promises a second; under the load of this test its threads may wait for a processor.
const RESTORED_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn a_killed_client_leaves_no_memory_registered() {
    if let Ok(arguments) = std::env::var(CLIENT) {
        track(&arguments.split(' ').collect::<Vec<_>>());
    }
    let Some(_turn) = turn() else { return };
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let rounds = number("BALLAST_SOAK_ROUNDS").unwrap_or(10);
    let seed = number("BALLAST_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("killing {rounds} clients, seed {seed}");
    kill_clients(rounds, seed);
}

/// The client: it never ends by itself.
fn track(arguments: &[&str]) -> ! {
    let number = |place: usize| arguments[place].parse::<u64>().unwrap();
    let region = RegionSpec {
        id: 0,
        device: (number(1) as u32, number(2) as u32),
        inode: number(3),
        offset: 0,
        len: (PAGES * PAGE) as u64,
        first_page: FIRST,
        name: RegionName::new("ram"),
    };
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
    let address = TrackerAddress::new(arguments[0]);
    let client = TrackerClient::connect(&address, parent as u32, CAPACITY_DEFAULT, None);
    let mut client = client.unwrap();
    client.add_region(region).unwrap();
    client.set_hot_set(100).unwrap();
    for round in 0.. {
        client.revoke(round).unwrap();
        println!("revoked");
        entries(&mut client);
        std::thread::sleep(Duration::from_millis(u64::from(round % 7)));
    }
    unreachable!("it is killed first");
}

fn kill_clients(rounds: u64, seed: u64) {
    let memory = Memory::new(PAGES);
    let (_tracker, address) = tracker();
    let is_over = AtomicBool::new(false);
    let touches = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // It acts as a virtual processor, which must never stop.
        scope.spawn(|| {
            let mut page = 0;
            while !is_over.load(Ordering::Relaxed) {
                page = (page * 5 + 77) % PAGES;
                assert_eq!(memory.read(page), page as u8);
                touches.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut state = seed;
        for round in 0..rounds {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let stalled =
                kill_one(&memory, &address, Duration::from_micros((state >> 33) % 50_000));
            let before = touches.load(Ordering::Relaxed);
            wait_until("touches go on", || touches.load(Ordering::Relaxed) > before);
            println!("round {round}: restored after {stalled:?}");
            assert!(stalled < RESTORED_WITHIN, "round {round}: {stalled:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Kills a client some time after its first revocation; returns how long memory stayed registered.
fn kill_one(memory: &Memory, address: &TrackerAddress, after: Duration) -> Duration {
    let region = memory.region(0, FIRST);
    let client = format!("{address} {} {} {}", region.device.0, region.device.1, region.inode);
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_killed_client_leaves_no_memory_registered", "--nocapture"])
        .env(CLIENT, client)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(client.stdout.as_mut().unwrap()).lines();
    assert!(
        lines.map_while(Result::ok).any(|line| line.ends_with("revoked")),
        "the client ended first"
    );
    // The client prints more than is read; the pipe holds thousands of lines.
    std::thread::sleep(after);
    assert!(memory.is_registered(), "must be tracking when it is killed");
    client.kill().unwrap();
    let killed = Instant::now();
    client.wait().unwrap();
    wait_until("permissions are restored", || !memory.is_registered());
    killed.elapsed()
}
