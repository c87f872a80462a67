//! The agent program with hosts, and a Python agent with our host.
//!
//! The tests wait for states, so nothing depends on how long anything takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ballast_agent_proto::host::{AgentEvent, AgentLink, AgentSession, HostFacts, SessionSettings};
use ballast_model::{Bytes, Timestamp};

/// Only a hang exceeds this.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-proto/tests/client.py");

/// A process that is killed when its test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn agent(socket: &Path) -> Process {
    let config = socket.with_file_name("agent.toml");
    std::fs::write(&config, "[shrinkers]\npage_cache = false\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ballast-agent"));
    command.arg("--config").arg(config).arg("--connect").arg(format!("unix:{}", socket.display()));
    Process(command.spawn().unwrap())
}

fn python(arguments: &[&str]) -> Process {
    let mut command = Command::new("python3");
    command.arg(CLIENT).args(arguments).stdout(Stdio::piped());
    Process(command.spawn().expect("python3 is needed: install the package python3"))
}

/// The host's side over a socket.
struct Host {
    stream: UnixStream,
    session: AgentSession,
    began: Instant,
}

impl Host {
    fn accept(listener: &UnixListener, number: u64) -> Host {
        let settings = SessionSettings {
            statistics_period: Duration::from_millis(100),
            emergency_period: Duration::from_secs(1),
            host_facts: HostFacts { memory_max: None },
        };
        Host::accept_with(listener, number, AgentSession::new(settings, Timestamp::ZERO))
    }

    fn accept_with(listener: &UnixListener, number: u64, mut session: AgentSession) -> Host {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let began = Instant::now();
        session.connected(number, Timestamp::ZERO);
        Host { stream, session, began }
    }

    /// Waits for an event for which `wanted` returns a value.
    fn wait<T>(&mut self, mut wanted: impl FnMut(&AgentEvent) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Some(event) = self.session.poll_event() {
                if let Some(found) = wanted(&event) {
                    return found;
                }
            }
            assert!(Instant::now() < end, "timed out; link {:?}", self.session.link());
            let now = self.now();
            self.session.handle_timeout(now);
            while let Some(bytes) = self.session.poll_transmit() {
                self.stream.write_all(&bytes).unwrap();
            }
            let mut chunk = [0; 4096];
            if let Ok(n) = self.stream.read(&mut chunk) {
                assert!(n > 0, "the agent closed the connection");
                let now = self.now();
                self.session.handle_bytes(&chunk[..n], now);
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }
}

fn up(event: &AgentEvent) -> Option<bool> {
    match event {
        AgentEvent::Up { restarted, .. } => Some(*restarted),
        _ => None,
    }
}

fn statistics(event: &AgentEvent) -> Option<ballast_agent_proto::wire::Statistics> {
    match event {
        AgentEvent::Statistics { statistics, .. } => Some(**statistics),
        AgentEvent::Implausible(why) => panic!("{why}"),
        _ => None,
    }
}

#[test]
fn the_agent_reports_and_reconnects_and_restarts_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let first = agent(&socket);
    let mut host = Host::accept(&listener, 1);
    assert!(!host.wait(up));
    let (one, two) = (host.wait(statistics), host.wait(statistics));
    assert_eq!(one.memory.total_bytes, two.memory.total_bytes);
    assert!(one.memory.total_bytes > Some(0) && one.watermarks.low_bytes.is_some());

    // The host restarts: the same agent reconnects and does not count as restarted.
    let Host { stream, mut session, .. } = host;
    session.disconnected();
    drop(stream);
    let mut host = Host::accept_with(&listener, 2, session);
    assert!(!host.wait(up));
    host.wait(statistics);

    // An order is answered even without shrinkers.
    let now = host.now();
    let order = host.session.shrink(Bytes::mib(1), Duration::from_secs(1), now);
    let gave = host.wait(|event| match event {
        AgentEvent::Shrunk { number, gave, .. } if *number == order => Some(*gave),
        _ => None,
    });
    assert_eq!(gave, Bytes::ZERO);

    // The agent restarts.
    drop(first);
    let Host { mut session, .. } = host;
    session.disconnected();
    let _second = agent(&socket);
    let mut host = Host::accept_with(&listener, 3, session);
    assert!(host.wait(up));
    host.wait(statistics);
}

#[test]
fn once_prints_a_sample_as_the_protocols_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_ballast-agent"))
        .args(["--once", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let statistics: ballast_agent_proto::wire::Statistics = serde_json::from_str(&text).unwrap();
    assert!(statistics.memory.free_bytes < statistics.memory.total_bytes);
    let wrong =
        Command::new(env!("CARGO_BIN_EXE_ballast-agent")).arg("--no-such").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let nowhere = Command::new(env!("CARGO_BIN_EXE_ballast-agent"))
        .args(["--config", "/nonexistent.toml", "--connect", "unix:/x"])
        .output()
        .unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
}

/// The Python agent was written from the protocol's document alone.
#[test]
fn the_host_understands_the_python_agent() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let _client = python(&["agent", socket.to_str().unwrap(), "3"]);
    let mut host = Host::accept(&listener, 4_711);
    assert!(!host.wait(up));
    let free: Vec<u64> =
        (0..3).map(|_| host.wait(statistics).memory.free_bytes.unwrap() >> 20).collect();
    assert_eq!(free, [0, 1, 2]);
    let request = host.wait(|event| match event {
        AgentEvent::Request { request, .. } => Some(*request),
        _ => None,
    });
    assert_eq!((request.number, request.amount), (1, Bytes::mib(1)));
    let now = host.now();
    host.session.shrink(Bytes::new(9), Duration::from_secs(1), now);
    let gave = host.wait(|event| match event {
        AgentEvent::Shrunk { gave, .. } => Some(*gave),
        _ => None,
    });
    assert_eq!((gave, host.session.link()), (Bytes::new(5), AgentLink::Up));
}

/// The Python host was written from the protocol's document alone.
#[test]
fn the_agent_reports_to_the_python_host() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.sock");
    let mut host = python(&["host", socket.to_str().unwrap(), "3"]);
    // The agent finds the host whichever starts first.
    let _agent = agent(&socket);
    let lines = BufReader::new(host.0.stdout.take().unwrap()).lines();
    let sent: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let kinds: Vec<&str> = sent.iter().map(|it| it["message"]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "statistics").count(), 3, "{kinds:?}");
    let hello = sent.iter().find(|it| it["message"]["session"] == 4_711).unwrap();
    assert_eq!(hello["message"]["version"], 1);
    let seqs: Vec<u64> = sent.iter().map(|it| it["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
}
