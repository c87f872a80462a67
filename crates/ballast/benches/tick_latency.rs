//! How punctual ticks are: idle, and in a flood, while many clients read from the API as fast as
//! they can and all guests' agents send as fast as they can.
//!
//! Goal: the 99th percentile of the time between two ticks is at most a fifth longer in the flood.
//! The daemon is the real program with its journal. Its guests are peers with agents in a process
//! of their own. In another process are the readers: [`READERS`] clients that send [`PIPELINED`]
//! requests at once, read the replies and start again. The server keeps as many clients as it may
//! and turns the others away. In the flood an agent sends statistics without end, and between them
//! emergencies, which ask for a tick each; while idle it only answers the greeting. The times are
//! those of the ticks in the journal. Turns alternate, because the machine's speed drifts.
//!
//! `cargo bench -p ballast --bench tick_latency`; with `--test` turns are short.

mod harness;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_agent_proto::wire::{
    FrameReader, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage, RequestReason,
    RequestRule, WireRequestKind, message,
};
use ballast_store::{Range, Reader};
use harness::{
    Peers, agents, api_socket, journal, own_role, role, serve_peers_and, start_daemon, stop,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

const GUESTS: usize = 100;
const TICK_MS: u64 = 100;
const READERS: usize = 1_000;
const PIPELINED: usize = 16;
const STATISTICS_PER_EMERGENCY: usize = 16;

fn main() {
    match own_role() {
        Some((role, testbed)) if role == "peers" => {
            serve_peers_and(&testbed.join("qmp"), GUESTS, || serve_agents(&testbed));
        }
        Some((_, folder)) => read_without_end(&folder),
        None => measure(),
    }
}

fn measure() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (turn, rounds) = match is_test {
        true => (Duration::from_secs(3), 1),
        false => (Duration::from_secs(30), 3),
    };
    let testbed = tempfile::tempdir().expect("a folder");
    let qmp = testbed.path().join("qmp");
    for folder in [&qmp, &agents(testbed.path())] {
        std::fs::create_dir(folder).expect("a folder for sockets");
    }
    let peers = Peers::start("peers", testbed.path());
    let flood = flood_file(testbed.path());
    let (mut idle, mut flooded) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let mut daemon = start_daemon(testbed.path(), &qmp, TICK_MS);
        std::thread::sleep(turn);
        stop(&mut daemon);
        idle.extend(intervals(testbed.path()));
        std::fs::write(&flood, "").expect("a file");
        let mut daemon = start_daemon(testbed.path(), &qmp, TICK_MS);
        let mut readers = role("readers", testbed.path()).spawn().expect("the readers");
        std::thread::sleep(turn);
        stop(&mut daemon);
        readers.kill().expect("the readers");
        readers.wait().expect("their end");
        std::fs::remove_file(&flood).expect("the file");
        flooded.extend(intervals(testbed.path()));
        println!("round {round} of {rounds} done");
    }
    peers.end();
    println!("{GUESTS} guests, a tick every {TICK_MS} ms, {rounds} turns of {turn:?} each");
    let (idle, flooded) = (Percentiles::of(idle), Percentiles::of(flooded));
    println!("idle: {idle}");
    println!("{READERS} readers, {PIPELINED} requests at once, {GUESTS} agents: {flooded}");
    println!(
        "ratio flooded / idle: p50 {:.3}, p99 {:.3} (goal: p99 at most 1.2)",
        flooded.p50 as f64 / idle.p50 as f64,
        flooded.p99 as f64 / idle.p99 as f64,
    );
}

/// Times between the ticks of the last daemon, in ms, without its first second. Removes its
/// journal.
fn intervals(testbed: &Path) -> Vec<u64> {
    let reader = Reader::open(&journal(testbed)).expect("a journal");
    let ticks = reader.ticks(Range::default()).map(|tick| tick.expect("a tick").mono.as_millis());
    let ticks: Vec<u64> = ticks.collect();
    let first = ticks.first().expect("some ticks") + 1000;
    let ticks: Vec<u64> = ticks.into_iter().filter(|&at| at >= first).collect();
    drop(reader);
    for ending in ["", "-wal", "-shm"] {
        let mut path = journal(testbed).into_os_string();
        path.push(ending);
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }
    ticks.windows(2).map(|two| two[1] - two[0]).collect()
}

/// Times in ms.
struct Percentiles {
    p50: u64,
    p99: u64,
    max: u64,
    count: usize,
}

impl Percentiles {
    fn of(mut times: Vec<u64>) -> Percentiles {
        assert!(!times.is_empty(), "too few ticks to measure: the machine is too slow or too busy");
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        Percentiles { p50: at(50), p99: at(99), max: at(100), count: times.len() }
    }
}

impl std::fmt::Display for Percentiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Percentiles { p50, p99, max, count } = self;
        write!(f, "p50 {p50} ms, p99 {p99} ms, max {max} ms between {count} ticks")
    }
}

/// Reads from the API with all clients at once, until killed.
fn read_without_end(testbed: &Path) {
    let socket = api_socket(testbed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        for n in 0..READERS {
            let socket = socket.clone();
            tokio::spawn(async move {
                loop {
                    let _ = read_once(&socket, n).await;
                    // Turned away, or the daemon does not listen yet.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        }
        std::future::pending::<()>().await;
    });
}

/// Sends requests and reads whatever comes, until the server closes the connection.
async fn read_once(socket: &Path, n: usize) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    let path = if n.is_multiple_of(2) { "/v1/status" } else { "/v1/plan?dry_run=true" };
    let requests = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").repeat(PIPELINED);
    let (mut reader, mut writer) = stream.split();
    let write = async {
        loop {
            writer.write_all(requests.as_bytes()).await?;
        }
    };
    let read = async {
        let mut bytes = vec![0; 1 << 16];
        while reader.read(&mut bytes).await? > 0 {}
        Ok(())
    };
    tokio::select! {
        ended = write => ended,
        ended = read => ended,
    }
}

/// While this file exists, agents that are greeted send without end.
fn flood_file(testbed: &Path) -> PathBuf {
    testbed.join("flood")
}

/// Serves an agent for each guest, in the process that serves the guests.
fn serve_agents(testbed: &Path) {
    for n in 0..GUESTS {
        let socket = agents(testbed).join(format!("guest-{n}.sock"));
        let listener = UnixListener::bind(socket).expect("a socket");
        let flood = flood_file(testbed);
        tokio::spawn(async move {
            // Numbers go on across connections, as the host requires.
            let mut seq = 0;
            while let Ok((stream, _)) = listener.accept().await {
                // Fails when the host closes the connection.
                let _ = talk(stream, &flood, &mut seq).await;
            }
        });
    }
}

/// Answers the host's greeting, and floods the host if the file `flood` exists.
async fn talk(mut stream: UnixStream, flood: &Path, seq: &mut u64) -> std::io::Result<()> {
    let began = Instant::now();
    let mut frame = |message| {
        *seq += 1;
        let uptime_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let frame = GuestFrame { seq: *seq, uptime_ms, message };
        message::encode(&frame).expect("a message within its bounds")
    };
    let session = greeting(&mut stream).await?;
    stream.write_all(&frame(hello(session))).await?;
    if !flood.exists() {
        let mut rest = vec![0; 1 << 12];
        while stream.read(&mut rest).await? > 0 {}
        return Ok(());
    }
    let (mut reader, mut writer) = stream.split();
    let read = async {
        let mut bytes = vec![0; 1 << 12];
        while reader.read(&mut bytes).await? > 0 {}
        Ok(())
    };
    let write = async {
        for number in 1.. {
            for _ in 0..STATISTICS_PER_EMERGENCY {
                writer.write_all(&frame(GuestMessage::Statistics(Box::default()))).await?;
            }
            writer.write_all(&frame(emergency(number))).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = write => ended,
        ended = read => ended,
    }
}

/// The session's number in the host's greeting.
async fn greeting(stream: &mut UnixStream) -> std::io::Result<u64> {
    let mut frames = FrameReader::new();
    let mut bytes = vec![0; 1 << 12];
    loop {
        let length = stream.read(&mut bytes).await?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        frames.push(&bytes[..length]);
        while let Some(Ok(payload)) = frames.next_frame() {
            let Ok(HostFrame { message: HostMessage::Hello { session, .. }, .. }) =
                message::decode(&payload)
            else {
                continue;
            };
            return Ok(session);
        }
    }
}

fn hello(session: u64) -> GuestMessage {
    GuestMessage::Hello(GuestGreeting {
        session,
        instance: 1,
        agent: "flood".to_owned(),
        capabilities: vec!["statistics".to_owned(), "requests".to_owned()],
        ..GuestGreeting::default()
    })
}

fn emergency(number: u64) -> GuestMessage {
    let reason = RequestReason { rule: RequestRule::FreeFalling, text: "a flood".to_owned() };
    GuestMessage::Request { number, kind: WireRequestKind::Emergency, bytes: 1 << 20, why: reason }
}
