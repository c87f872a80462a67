//! The program itself, and an agent in Python, in conversation with hosts.
//!
//! Limits: waits for states; nothing here depends on how long anything takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ballast_agent_host::{Event, Known, Link, Session, Settings};
use ballast_model::{Bytes, Timestamp};

/// Far beyond what anything here takes, so that only a hang fails.
const PATIENCE: Duration = Duration::from_secs(120);
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-wire/tests/client.py");

/// A process that ends with its test.
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
    session: Session,
    began: Instant,
}

impl Host {
    fn accept(listener: &UnixListener, number: u64) -> Host {
        let settings = Settings {
            statistics_period: Duration::from_millis(100),
            emergency_period: Duration::from_secs(1),
            known: Known { memory_max: None },
        };
        Host::accept_with(listener, number, Session::new(settings, Timestamp::ZERO))
    }

    fn accept_with(listener: &UnixListener, number: u64, mut session: Session) -> Host {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let began = Instant::now();
        session.connected(number, Timestamp::ZERO);
        Host { stream, session, began }
    }

    /// The next event that `wanted` makes something of.
    fn wait<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Some(event) = self.session.poll_event() {
                if let Some(found) = wanted(&event) {
                    return found;
                }
            }
            assert!(Instant::now() < end, "did not come about; link {:?}", self.session.link());
            let now = self.now();
            self.session.handle_timeout(now);
            while let Some(bytes) = self.session.poll_transmit() {
                self.stream.write_all(&bytes).unwrap();
            }
            let mut chunk = [0; 4096];
            if let Ok(n) = self.stream.read(&mut chunk) {
                assert!(n > 0, "the agent has closed");
                let now = self.now();
                self.session.handle_bytes(&chunk[..n], now);
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }
}

fn up(event: &Event) -> Option<bool> {
    match event {
        Event::Up { restarted, .. } => Some(*restarted),
        _ => None,
    }
}

fn statistics(event: &Event) -> Option<ballast_agent_wire::Statistics> {
    match event {
        Event::Statistics { statistics, .. } => Some(**statistics),
        Event::Implausible(why) => panic!("{why}"),
        _ => None,
    }
}

#[test]
fn the_agent_reports_reconnects_and_its_restart_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let first = agent(&socket);
    let mut host = Host::accept(&listener, 1);
    assert!(!host.wait(up));
    let (one, two) = (host.wait(statistics), host.wait(statistics));
    assert_eq!(one.memory.total_bytes, two.memory.total_bytes);
    assert!(one.memory.total_bytes > Some(0) && one.watermarks.low_bytes.is_some());

    // The host is started again: the same agent comes back, and is not taken for another.
    let Host { stream, mut session, .. } = host;
    session.disconnected();
    drop(stream);
    let mut host = Host::accept_with(&listener, 2, session);
    assert!(!host.wait(up));
    host.wait(statistics);

    // An order without shrinkers is answered.
    let now = host.now();
    let order = host.session.shrink(Bytes::mib(1), Duration::from_secs(1), now);
    let gave = host.wait(|event| match event {
        Event::Shrunk { number, gave, .. } if *number == order => Some(*gave),
        _ => None,
    });
    assert_eq!(gave, Bytes::ZERO);

    // The agent is started again.
    drop(first);
    let Host { mut session, .. } = host;
    session.disconnected();
    let _second = agent(&socket);
    let mut host = Host::accept_with(&listener, 3, session);
    assert!(host.wait(up));
    host.wait(statistics);
}

#[test]
fn one_sample_is_printed_in_the_protocols_form() {
    let output = Command::new(env!("CARGO_BIN_EXE_ballast-agent"))
        .args(["--once", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let statistics: ballast_agent_wire::Statistics = serde_json::from_str(&text).unwrap();
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

/// An agent that was written from the document is understood.
#[test]
fn an_agent_in_python_is_a_guest_like_any_other() {
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
        Event::Request { request, .. } => Some(*request),
        _ => None,
    });
    assert_eq!((request.number, request.amount), (1, Bytes::mib(1)));
    let now = host.now();
    host.session.shrink(Bytes::new(9), Duration::from_secs(1), now);
    let gave = host.wait(|event| match event {
        Event::Shrunk { gave, .. } => Some(*gave),
        _ => None,
    });
    assert_eq!((gave, host.session.link()), (Bytes::new(5), Link::Up));
}

/// A host that was written from the document is reported to.
#[test]
fn a_host_in_python_is_reported_to() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.sock");
    let mut host = python(&["host", socket.to_str().unwrap(), "3"]);
    // Started first or second, the agent finds it.
    let _agent = agent(&socket);
    let lines = BufReader::new(host.0.stdout.take().unwrap()).lines();
    let said: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let kinds: Vec<&str> = said.iter().map(|it| it["message"]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "statistics").count(), 3, "{kinds:?}");
    let hello = said.iter().find(|it| it["message"]["session"] == 4_711).unwrap();
    assert_eq!(hello["message"]["version"], 1);
    let seqs: Vec<u64> = said.iter().map(|it| it["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
}
