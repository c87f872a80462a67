//! Common code of the benchmarks of the running daemon: starts the daemon and the process of its
//! peers, and measures what a process uses.

#![allow(dead_code, unreachable_pub)] // each benchmark uses its part

pub mod lab;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ballast_qmp_testing::{Peer, PeerConfig};

const ROLE: &str = "BALLAST_BENCH_ROLE";
const FOLDER: &str = "BALLAST_BENCH_FOLDER";

/// The role in which this process was started, and its folder; `None`: it is the one that measures.
pub fn own_role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FOLDER)?.into()))
}

/// The process that plays the daemon's peers.
pub struct Peers(Child);

impl Peers {
    /// Starts it in the role `name` and waits until all peers are ready.
    pub fn start(name: &str, folder: &Path) -> Peers {
        Peers::spawn(role(name, folder))
    }

    /// Starts it by `command` and waits until all peers are ready.
    pub fn spawn(mut command: Command) -> Peers {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut peers = Peers(child.expect("the peers' process"));
        peers.line();
        peers
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().expect("piped");
        BufReader::with_capacity(1, output).read_line(&mut line).expect("the peers' word");
        line.trim_end().to_owned()
    }

    /// Ends it.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("the peers' end");
    }
}

/// Serves `guests` peers in `folder` until standard input ends.
pub fn serve_peers(folder: &Path, guests: usize) {
    serve_peers_and(folder, guests, || {});
}

/// The same; `beside` starts more in this process.
pub fn serve_peers_and(folder: &Path, guests: usize, beside: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let peer = |n| Peer::spawn(&folder.join(format!("guest-{n}.sock")), PeerConfig::default());
        let peers: Vec<Peer> = (0..guests).map(peer).collect::<Result<_, _>>().expect("sockets");
        beside();
        println!("ready");
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        ended.await.expect("no panic").expect("standard input");
        drop(peers);
    });
}

/// This program in another role.
pub fn role(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.env(ROLE, role).env(FOLDER, folder);
    command
}

/// The daemon's journal in the folder of a benchmark.
pub fn journal(testbed: &Path) -> PathBuf {
    testbed.join("journal.db")
}

/// The socket of the daemon's API.
pub fn api_socket(testbed: &Path) -> PathBuf {
    testbed.join("api.sock")
}

/// The folder of the guests' agents; it may be missing.
pub fn agents(testbed: &Path) -> PathBuf {
    testbed.join("agent")
}

/// Starts the daemon on the guests in `qmp`, with a tick of `tick_ms`.
pub fn start_daemon(testbed: &Path, qmp: &Path, tick_ms: u64) -> Child {
    start_daemon_on(testbed, &format!("[qmp]\nfolders = [{qmp:?}]\n"), 60, tick_ms)
}

/// Starts the daemon; `guests` are the tables of its configuration that say where guests are.
pub fn start_daemon_on(testbed: &Path, guests: &str, budget_gib: usize, tick_ms: u64) -> Child {
    let config = testbed.join("ballast.toml");
    let text = format!(
        "[daemon]\ntick = \"{tick_ms}ms\"\nsocket = {:?}\n\
         {guests}[agents]\nfolders = [{:?}]\n[host]\nbudget = \"{budget_gib}GiB\"\nreserve = \"0\"\n\
         [journal]\npath = {:?}\n",
        api_socket(testbed),
        agents(testbed),
        journal(testbed),
    );
    std::fs::write(&config, text).expect("a configuration");
    Command::new(env!("CARGO_BIN_EXE_ballast"))
        .args(["daemon", "--config"])
        .arg(&config)
        .stderr(Stdio::null())
        .spawn()
        .expect("the daemon")
}

/// Processor time used in one turn, and the largest resident memory in KiB.
pub fn watch(child: &Child, warm_up: Duration, turn: Duration) -> (Duration, u64) {
    std::thread::sleep(warm_up);
    let before = processor_time(child.id());
    std::thread::sleep(turn);
    let spent = processor_time(child.id()) - before;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.expect("the process is there");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = resident.and_then(|text| text.trim().split(' ').next()?.parse().ok());
    (spent, kib.expect("VmHWM in kB"))
}

/// Processor time of all threads of a process.
fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let ran = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(ran).sum())
}

/// Ends a process as a service manager does.
pub fn stop(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    child.wait().expect("its end");
}
