//! The host's side of the conversation with the agent in a real guest, for tests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ballast_agent_proto::host::{
    AgentEvent, AgentIdentity, AgentSession, HostFacts, SessionSettings,
};
use ballast_agent_proto::wire::Statistics;
use ballast_lab_host::{Guest, GuestSpec, Helper, KernelChoice, Run, RunOptions};
use ballast_model::{Bytes, MemoryRequest, Timestamp};

/// Far longer than anything here takes, so that only a hang fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Memory of the guests.
pub(crate) const MEMORY: Bytes = Bytes::mib(384);

/// Starts `guest` with the kernel of the host's own sources.
pub(crate) fn start(folder: &Path, guest: GuestSpec) -> Run {
    start_with(folder, guest, KernelChoice::Default)
}

/// Starts `guest` with `kernel`.
pub(crate) fn start_with(folder: &Path, guest: GuestSpec, kernel: KernelChoice) -> Run {
    let options = RunOptions {
        kernel,
        helper: helper(),
        runs_folder: Some(folder.join("runs")),
        ..RunOptions::new("t".parse().unwrap(), vec![guest])
    };
    Run::start(&options, &|line| eprintln!("{line}")).unwrap()
}

pub(crate) fn helper() -> Helper {
    Helper { program: PathBuf::from(env!("CARGO_BIN_EXE_lab-helper")) }
}

/// A folder with a path short enough for sockets.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("lab").tempdir_in("/tmp").unwrap()
}

/// A guest with an agent.
pub(crate) fn spec() -> GuestSpec {
    GuestSpec { agent: true, ..GuestSpec::new("a".parse().unwrap(), MEMORY) }
}

/// The output of a command line in the guest.
pub(crate) fn shell(guest: &Guest, line: &str) -> String {
    let argv = ["/bin/sh", "-c", line].map(str::to_owned);
    let output = guest.exec(&argv, PATIENCE).unwrap();
    assert!(output.end.is_success(), "{line}: {output:?}");
    output.stdout.trim().to_owned()
}

/// The host's side, connected to the socket of the guest's port.
pub(crate) struct Host {
    pub(crate) stream: UnixStream,
    pub(crate) session: AgentSession,
    pub(crate) began: Instant,
}

impl Host {
    /// Connects to the guest's agent; `number` must grow with each connection.
    pub(crate) fn connect(guest: &Guest, number: u64) -> Host {
        let settings = SessionSettings {
            statistics_period: Duration::from_secs(1),
            emergency_period: Duration::from_secs(5),
            host_facts: HostFacts { memory_max: Some(MEMORY) },
        };
        Host::resume(guest, number, AgentSession::new(settings, Timestamp::ZERO), Instant::now())
    }

    /// Connects again and continues with `session`.
    pub(crate) fn resume(
        guest: &Guest,
        number: u64,
        mut session: AgentSession,
        began: Instant,
    ) -> Host {
        let stream = UnixStream::connect(guest.agent_socket().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        session.connected(number, Timestamp::ZERO + began.elapsed());
        Host { stream, session, began }
    }

    /// Waits for the next event for which `wanted` returns something.
    pub(crate) fn wait<T>(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&AgentEvent) -> Option<T>,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Some(event) = self.session.poll_event() {
                assert!(
                    !matches!(event, AgentEvent::Implausible(_) | AgentEvent::Unreadable(_)),
                    "{event:?}"
                );
                if let Some(found) = wanted(&event) {
                    return found;
                }
            }
            assert!(Instant::now() < end, "did not come about: {what}; {:?}", self.session.link());
            self.session.handle_timeout(self.now());
            while let Some(bytes) = self.session.poll_transmit() {
                self.stream.write_all(&bytes).unwrap();
            }
            let mut chunk = [0; 4096];
            if let Ok(n @ 1..) = self.stream.read(&mut chunk) {
                self.session.handle_bytes(&chunk[..n], self.now());
            }
        }
    }

    /// The agent's identity once it answers, and whether the agent was restarted.
    pub(crate) fn up(&mut self) -> (AgentIdentity, bool) {
        self.wait("the agent answers", |event| match event {
            AgentEvent::Up { agent, restarted } => Some((agent.clone(), *restarted)),
            _ => None,
        })
    }

    /// The next statistics, with the guest's uptime in milliseconds.
    pub(crate) fn statistics(&mut self) -> (u64, Statistics) {
        self.wait("statistics", |event| match event {
            AgentEvent::Statistics { uptime_ms, statistics } => Some((*uptime_ms, **statistics)),
            _ => None,
        })
    }

    /// The next request that `wanted` accepts, and the reason for it.
    pub(crate) fn request(
        &mut self,
        wanted: impl Fn(&MemoryRequest) -> bool,
    ) -> (MemoryRequest, String) {
        self.wait("a request", |event| match event {
            AgentEvent::Request { request, why } if wanted(request) => {
                Some((*request, why.text.clone()))
            }
            _ => None,
        })
    }

    /// The session's time.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }
}
