//! What the agent's program costs on the machine where it runs.
//!
//! Idea: this file plays the agent's host, greets it and accepts its messages for a while; then the
//! processor time of the agent's processes is read from the kernel. What comes before the first
//! sample (start, greeting) is left out.
//! Limits: its shrinkers are idle; a guest under emulation pays many times as much for each read of
//! `/proc`.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_agent_proto::host::{AgentEvent, AgentSession, HostFacts, SessionSettings};
use ballast_lab_host::{AGENT, AccelChoice, GuestSpec};
use ballast_model::{Bytes, Timestamp};

use super::super::process::{Guarded, processor_time, resident};
use super::report::ProgramCost;
use crate::lab_guest::LabGuest;

/// Time between two samples: the default's.
const PERIOD: Duration = Duration::from_secs(1);
/// Memory of the guest that is booted.
const MEMORY: Bytes = Bytes::mib(384);
/// Far longer than an agent takes to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one read of the socket waits.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// The agent on this machine.
///
/// # Errors
/// The agent is not built, or does not answer.
pub(super) fn here(is_quick: bool, say: &dyn Fn(&str)) -> anyhow::Result<ProgramCost> {
    say("the agent on this machine");
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let socket = folder.path().join("host.sock");
    let listener = UnixListener::bind(&socket)?;
    let mut command = Command::new(AGENT.find()?);
    command.arg("--connect").arg(format!("unix:{}", socket.display()));
    let child = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let (stream, _) = listener.accept()?;
    let used = || processor_time(child.id());
    cost("this machine", is_quick, stream, used, || resident(child.id()))
}

/// The agent in an emulated guest of the lab.
///
/// # Errors
/// Something needed is missing, or the guest or its agent does not answer.
pub(super) fn emulated(is_quick: bool, say: &dyn Fn(&str)) -> anyhow::Result<ProgramCost> {
    say("the agent in an emulated guest");
    let with_agent = |spec: &mut GuestSpec| spec.agent = true;
    let guest = LabGuest::start("agent", MEMORY, AccelChoice::Tcg, with_agent, say)?;
    let socket = guest.guest()?.agent_socket().context("the guest has no port for its agent")?;
    let used = || {
        let text = guest.shell("cat /proc/$(pidof ballast-agent)/task/*/schedstat")?;
        let ran = text.lines().filter_map(|it| it.split_whitespace().next()?.parse::<u64>().ok());
        anyhow::Ok(Duration::from_nanos(ran.sum()))
    };
    let resident = || {
        let line = guest.shell("grep VmRSS /proc/$(pidof ballast-agent)/status")?;
        let kib = line.split_whitespace().nth(1).and_then(|text| text.parse().ok());
        anyhow::Ok(Bytes::kib(kib.with_context(|| format!("no VmRSS in `{line}`"))?))
    };
    cost("emulated guest", is_quick, UnixStream::connect(socket)?, used, resident)
}

/// The cost of the agent at the other end of `stream`; `used` and `resident` return its processor
/// time so far and its resident memory.
fn cost(
    place: &'static str,
    is_quick: bool,
    stream: UnixStream,
    used: impl Fn() -> anyhow::Result<Duration>,
    resident: impl Fn() -> anyhow::Result<Bytes>,
) -> anyhow::Result<ProgramCost> {
    let samples = if is_quick { 5 } else { 60 };
    let mut host = AgentHost::new(stream)?;
    host.samples(1)?;
    let before = used()?;
    let began = Instant::now();
    host.samples(samples)?;
    let length = began.elapsed();
    let used = used()?.saturating_sub(before);
    let program_bytes = fs::metadata(AGENT.find()?)?.len();
    Ok(ProgramCost::new(place, samples, length, used, resident()?, program_bytes))
}

/// The host's side of the conversation.
struct AgentHost {
    stream: UnixStream,
    session: AgentSession,
    began: Instant,
}

impl AgentHost {
    fn new(stream: UnixStream) -> anyhow::Result<AgentHost> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let settings = SessionSettings {
            statistics_period: PERIOD,
            emergency_period: PERIOD,
            host_facts: HostFacts { memory_max: None },
        };
        let mut session = AgentSession::new(settings, Timestamp::ZERO);
        session.connected(1, Timestamp::ZERO);
        Ok(AgentHost { stream, session, began: Instant::now() })
    }

    /// Waits for `count` samples.
    fn samples(&mut self, count: u64) -> anyhow::Result<()> {
        let patience = PATIENCE + PERIOD * u32::try_from(count).unwrap_or(u32::MAX);
        let end = Instant::now() + patience;
        let mut received = 0;
        while received < count {
            while let Some(event) = self.session.poll_event() {
                received += u64::from(matches!(event, AgentEvent::Statistics { .. }));
            }
            if Instant::now() > end {
                bail!("the agent sent {received} of {count} samples: {:?}", self.session.link());
            }
            self.session.handle_timeout(self.now());
            while let Some(bytes) = self.session.poll_transmit() {
                self.stream.write_all(&bytes)?;
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the agent is gone"),
                Ok(n) => self.session.handle_bytes(&chunk[..n], self.now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot hear the agent"),
            }
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }
}
