//! What a running daemon costs: processor time and resident memory with 100 connected guests.
//!
//! Goal: under 1 % of a core at 1 s ticks, and 40 MiB resident. The guests are peers that speak QMP
//! in a process of their own; the daemon is the real program with its journal and API.
//!
//! The rival in the same run watches the same peers without standing connections, as scripts do:
//! every second, per guest, it connects, negotiates, asks for balloon and statistics, and hangs up.
//! It decides and records nothing. Turns alternate, because the machine's speed drifts.
//!
//! `cargo bench -p ballast --bench daemon`; with `--test` turns are short.

mod harness;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::{Peers, own_role, role, serve_peers, start_daemon, stop, watch};

const GUESTS: usize = 100;
const TICK: Duration = Duration::from_secs(1);

fn main() {
    match own_role() {
        Some((role, folder)) if role == "peers" => serve_peers(&folder, GUESTS),
        Some((_, folder)) => poll_without_connection(&folder),
        None => measure(),
    }
}

fn measure() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (warm_up, turn, rounds) = match is_test {
        true => (Duration::from_secs(3), Duration::from_secs(3), 1),
        false => (Duration::from_secs(10), Duration::from_secs(30), 3),
    };
    let testbed = tempfile::tempdir().expect("a folder");
    let qmp = testbed.path().join("qmp");
    std::fs::create_dir(&qmp).expect("a folder for sockets");
    let peers = Peers::start("peers", &qmp);

    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    let mut resident_kib = 0;
    for round in 1..=rounds {
        let mut daemon = start_daemon(testbed.path(), &qmp, 1000);
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
    peers.end();
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
