//! What a running daemon costs: processor time and resident memory with 100 connected guests.
//!
//! Goal: under 1 % of a core at 1 s ticks, and 40 MiB resident. The guests are peers that speak QMP
//! in a process of their own; the daemon is the real program with its journal and API.
//!
//! The rival in the same run watches the same peers as scripts and agents without a standing
//! connection do: every second, per guest, connect, negotiate, ask for balloon and statistics, hang
//! up. It decides and records nothing. Turns alternate, because the machine's speed drifts.
//!
//! `cargo bench -p ballast --bench daemon`; with `--test` turns are short.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ballast_qmp::testing::{Peer, PeerConfig};

const GUESTS: usize = 100;
const TICK: Duration = Duration::from_secs(1);
const ROLE: &str = "BALLAST_BENCH_ROLE";
const FOLDER: &str = "BALLAST_BENCH_FOLDER";

fn main() {
    let folder = std::env::var_os(FOLDER);
    match (std::env::var(ROLE).as_deref(), folder) {
        (Ok("peers"), Some(folder)) => serve_peers(Path::new(&folder)),
        (Ok("rival"), Some(folder)) => poll_without_connection(Path::new(&folder)),
        _ => measure(),
    }
}

fn measure() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (warm_up, turn, rounds) = match is_test {
        true => (Duration::from_secs(3), Duration::from_secs(3), 1),
        false => (Duration::from_secs(10), Duration::from_secs(30), 3),
    };
    let ground = tempfile::tempdir().expect("a folder");
    let qmp = ground.path().join("qmp");
    std::fs::create_dir(&qmp).expect("a folder for sockets");
    let mut peers = role("peers", &qmp).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let peers = peers.as_mut().expect("the peers' process");
    let mut ready = String::new();
    let output = peers.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut ready).expect("the peers' word");

    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    let mut resident_kib = 0;
    for round in 1..=rounds {
        let mut daemon = start_daemon(ground.path(), &qmp);
        let (spent, resident) = watch(&daemon, warm_up, turn);
        ours += spent;
        resident_kib = resident_kib.max(resident);
        stop(&mut daemon);
        let mut rival = role("rival", &qmp).spawn().expect("the rival");
        let (spent, _) = watch(&rival, warm_up, turn);
        theirs += spent;
        stop(&mut rival);
        println!("round {round} of {rounds} done");
    }
    let share = |spent: Duration| spent.as_secs_f64() / (turn * rounds).as_secs_f64() * 100.0;
    println!("{GUESTS} guests, a tick a second, {rounds} turns of {turn:?} each");
    println!("daemon: {:.3} % of a core (goal: under 1 %)", share(ours));
    println!("daemon: {:.1} MiB resident at most (goal: 40 MiB)", resident_kib as f64 / 1024.0);
    println!("rival without standing connections, watching only: {:.3} %", share(theirs));
    println!("ratio rival / daemon: {:.2}", theirs.as_secs_f64() / ours.as_secs_f64());
    drop(peers.stdin.take());
    peers.wait().expect("the peers' end");
}

fn role(role: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.env(ROLE, role).env(FOLDER, folder);
    command
}

fn start_daemon(ground: &Path, qmp: &Path) -> Child {
    let config = ground.join("ballast.toml");
    let text = format!(
        "[daemon]\nsocket = {:?}\nraise_priority = false\n[qmp]\nfolders = [{qmp:?}]\n\
         [host]\nbudget = \"60GiB\"\nreserve = \"0\"\n[journal]\npath = {:?}\n",
        ground.join("api.sock"),
        ground.join("journal.db"),
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
fn watch(child: &Child, warm_up: Duration, turn: Duration) -> (Duration, u64) {
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

/// Time all threads of a process have run.
fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let ran = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(ran).sum())
}

fn stop(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    child.wait().expect("its end");
}

/// Serves until standard input ends.
fn serve_peers(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let peer = |n| Peer::spawn(&folder.join(format!("guest-{n}.sock")), PeerConfig::default());
        let peers: Vec<Peer> = (0..GUESTS).map(peer).collect::<Result<_, _>>().expect("sockets");
        println!("ready");
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        ended.await.expect("no panic").expect("standard input");
        drop(peers);
    });
}

/// Asks every guest once a second over a connection of its own, until killed.
fn poll_without_connection(folder: &Path) {
    let ask = |n: usize| -> std::io::Result<()> {
        let stream = UnixStream::connect(folder.join(format!("guest-{n}.sock")))?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let mut stream = stream;
        lines.next();
        for command in [
            r#"{"execute":"qmp_capabilities"}"#,
            r#"{"execute":"query-balloon"}"#,
            r#"{"execute":"qom-get","arguments":{"path":"/machine/peripheral/balloon0","property":"guest-stats"}}"#,
        ] {
            writeln!(stream, "{command}")?;
            lines.next();
        }
        Ok(())
    };
    loop {
        let begun = Instant::now();
        for n in 0..GUESTS {
            ask(n).expect("an answer");
        }
        std::thread::sleep(TICK.saturating_sub(begun.elapsed()));
    }
}
