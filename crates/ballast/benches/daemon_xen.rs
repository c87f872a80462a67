//! What a running daemon costs with 200 domains of Xen: processor time and resident memory.
//!
//! Goal: 2 % of a core at 1 s ticks. The daemon is the real program with its journal and API. Its
//! xenstored is Xen's own, which runs without Xen by the library of `lab/xenstore-shim`. A process
//! plays the guests' agents: each publishes 900 bytes of JSON with its statistics once a second,
//! spread over the second. `xl` is a script that prints a table of as many domains.
//!
//! The cost of the scripts is printed separately. The cost of xenstored is left out, because it
//! serves the guests too.
//!
//! Limits: at rest, once the first orders are carried out; no domain starts or ends. The cost of
//! the real `xl` is not measured: it asks the hypervisor and xenstored for each domain.
//!
//! `cargo bench -p ballast --bench daemon_xen`; with `--test` turns are short.

mod harness;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ballast_api::StatusReply;
use ballast_xenstore::testing::RealStore;
use ballast_xenstore::{Connection, Request};
use tokio::time::{Instant, sleep, timeout_at};

use harness::{Peers, api_socket, own_role, role, start_daemon_on, stop, watch};

const GUESTS: usize = 200;
const TICK_MS: u64 = 1000;
/// Goal: percent of a core.
const SHARE_MAX: f64 = 2.0;
/// The most that each domain may have, what it holds, and what it uses of that, in MiB.
const MAX_MIB: usize = 1024;
const HOLDS_MIB: usize = 768;
const USED_MIB: usize = 300;
const BUDGET_GIB: usize = 150;

fn main() {
    match own_role() {
        Some((_, folder)) => play(&folder),
        None => measure(),
    }
}

fn measure() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (warm_up, turn, rounds) = match is_test {
        true => (Duration::from_secs(5), Duration::from_secs(5), 1),
        false => (Duration::from_secs(15), Duration::from_secs(30), 3),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let testbed = folder.path();
    let store = match RealStore::start(testbed) {
        Ok(store) => store,
        Err(why) => return println!("SKIPPED: {why}"),
    };
    write_xl(testbed);
    let guests = Peers::spawn(role("guests", testbed));
    let tables = format!(
        "[tracking]\nenabled = false\n[qmp]\nfolders = []\n[xen]\nenabled = true\nsocket = {:?}\n\
         xl = {:?}\n",
        store.socket(),
        testbed.join("xl"),
    );
    let (mut shares, mut children, mut resident) = (Vec::new(), Vec::new(), 0);
    for round in 1..=rounds {
        let mut daemon = start_daemon_on(testbed, &tables, BUDGET_GIB, TICK_MS);
        let before = children_time(daemon.id());
        let (spent, kib) = watch(&daemon, warm_up, turn);
        let of_children = children_time(daemon.id()).saturating_sub(before);
        let seen = seen(testbed);
        stop(&mut daemon);
        assert_eq!(seen, GUESTS + 1, "domains that run and are seen, and dom0");
        shares.push(spent.as_secs_f64() / turn.as_secs_f64() * 100.0);
        children.push(of_children.as_secs_f64() / (warm_up + turn).as_secs_f64() * 100.0);
        resident = resident.max(kib);
        println!("round {round} of {rounds} done");
    }
    guests.end();

    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let share = mean(&shares);
    let is_met = if share <= SHARE_MAX { "met" } else { "NOT MET" };
    println!("{GUESTS} domains and dom0, a tick a second, {rounds} turns of {turn:?} each");
    println!(
        "the daemon: {share:.3} % of a core (goal: {SHARE_MAX} %, {is_met}), turns {shares:.3?}"
    );
    println!("the scripts in place of xl: {:.3} % of a core", mean(&children));
    println!("resident at most: {:.1} MiB", resident as f64 / 1024.0);
}

/// Processor time of a process's children that have ended.
fn children_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // `cutime` and `cstime` are fields 16 and 17; the state is field 3.
    let ticks: u64 = fields.skip(13).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// A program in place of `xl`.
fn write_xl(folder: &Path) {
    let mut list = "Name ID Mem VCPUs State Time(s)\nDomain-0 0 2048 1 r----- 1.0\n".to_owned();
    for id in 1..=GUESTS {
        list += &format!("guest-{id:<32} {id:>5} {HOLDS_MIB:>5}     1     -b----      17.3\n");
    }
    fs::write(folder.join("list"), list).expect("a file");
    let info = "total_memory : 200000\nfree_memory : 20000\n";
    fs::write(folder.join("info"), info).expect("a file");
    let xl = folder.join("xl");
    let script =
        format!("#!/bin/sh\ncase $1 in list|info) exec cat {}/$1;; esac\n", folder.display());
    fs::write(&xl, script).expect("a script");
    fs::set_permissions(xl, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// How many domains are running, by the daemon's status.
fn seen(testbed: &Path) -> usize {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ballast"));
    command.args(["status", "--json", "--socket"]).arg(api_socket(testbed));
    let output = command.output().expect("the program");
    let status: StatusReply = serde_json::from_slice(&output.stdout).expect("a status");
    status.guests.iter().filter(|guest| guest.state.code == "running").count()
}

/// Plays the toolstack once, and then the guests' agents until standard input ends.
fn play(folder: &Path) {
    let socket: PathBuf = folder.join("socket");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let until = Instant::now() + Duration::from_secs(10);
        let mut store = Connection::open(&socket, until).await.expect("xenstored");
        for id in 0..=GUESTS {
            let (name, kib) = match id {
                0 => ("Domain-0".to_owned(), 2 << 20),
                _ => (format!("guest-{id}"), HOLDS_MIB << 10),
            };
            let max = if id == 0 { 200 << 20 } else { MAX_MIB << 10 };
            for (key, value) in [
                ("name", name),
                ("vm", format!("/vm/{id:08}-0000-0000-0000-000000000000")),
                ("memory/target", kib.to_string()),
                ("memory/static-max", max.to_string()),
            ] {
                write(&mut store, id, key, value);
            }
        }
        drain(&mut store, Duration::from_secs(1)).await;
        println!("ready");
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        let publish = async {
            for seq in 1_u64.. {
                let begun = Instant::now();
                for id in 1..=GUESTS {
                    write(&mut store, id, "data/mem_stats", statistics(seq));
                    // Spreads the agents over the second.
                    if id % 10 == 0 {
                        drain(&mut store, Duration::from_millis(50)).await;
                    }
                }
                sleep((Duration::from_secs(1)).saturating_sub(begun.elapsed())).await;
            }
        };
        tokio::select! {
            () = publish => {}
            _ = ended => {}
        }
    });
}

fn write(store: &mut Connection, id: usize, key: &str, value: String) {
    let path = format!("/local/domain/{id}/{key}").parse().expect("a path");
    store.session.request(Request::Write { path, value: value.into_bytes() }).expect("room");
}

/// Moves bytes for `time`.
async fn drain(store: &mut Connection, time: Duration) {
    let until = Instant::now() + time;
    while let Ok(moved) = timeout_at(until, store.exchange()).await {
        moved.expect("xenstored");
        while store.session.next_answer().is_some() {}
    }
}

/// The text of an agent's statistics, with as many figures as a real agent sends.
fn statistics(seq: u64) -> String {
    let mib = |mib: usize| (mib as u64) << 20;
    let available = mib(HOLDS_MIB - USED_MIB);
    format!(
        r#"{{"seq":{seq},"uptime_ms":{},"message":{{"type":"statistics","memory":{{"total_bytes":{},"free_bytes":{},"available_bytes":{available},"buffers_bytes":10485760,"cached_bytes":104857600,"shmem_bytes":1048576,"active_bytes":204857600,"inactive_bytes":104857600,"active_file_bytes":54857600,"inactive_file_bytes":54857600,"unevictable_bytes":0,"committed_bytes":404857600,"swap_total_bytes":1073741824,"swap_free_bytes":1073741824}},"counters":{{"swap_in_pages":0,"swap_out_pages":0,"refault_anon_pages":0,"refault_file_pages":12,"major_faults":1234,"scan_kswapd_pages":0,"scan_direct_pages":0,"steal_kswapd_pages":0,"steal_direct_pages":0,"alloc_stalls":0,"oom_kills":0}},"watermarks":{{"min_bytes":2883584,"low_bytes":3604480,"high_bytes":4325376}},"pressure":{{"some":{{"avg10_basis_points":0,"total_us":1234}},"full":{{"avg10_basis_points":0,"total_us":123}}}}}}}}"#,
        seq * 1000,
        mib(HOLDS_MIB - 40),
        available / 2,
    )
}
