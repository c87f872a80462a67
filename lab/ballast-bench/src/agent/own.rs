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
use ballast_lab_host::{AGENT, AccelChoice, Guest, GuestSpec, Run, RunOptions};
use ballast_model::{Bytes, GuestId, Timestamp};

use super::super::process::{Guarded, processor_time, resident};
use super::report::ProgramCost;

/// Time between two samples: the default's.
const PERIOD: Duration = Duration::from_secs(1);
/// Memory of the guest that is booted.
const MEMORY: Bytes = Bytes::mib(384);
/// Far longer than an agent takes to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one read of the socket waits.
const READ_TIMEOUT: Duration = Duration::from_millis(50);

/// The number of samples to wait for.
const fn samples(is_quick: bool) -> u64 {
    if is_quick { 5 } else { 60 }
}

/// The agent on this machine.
///
/// # Errors
/// The agent is not built, or does not answer.
pub(super) fn here(is_quick: bool, say: &dyn Fn(&str)) -> anyhow::Result<ProgramCost> {
    say("the agent on this machine");
    let program = AGENT.find()?;
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let socket = folder.path().join("host.sock");
    let listener = UnixListener::bind(&socket)?;
    let mut command = Command::new(&program);
    command.arg("--connect").arg(format!("unix:{}", socket.display()));
    let child = Guarded::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let (stream, _) = listener.accept()?;
    let mut host = Host::new(stream)?;
    host.samples(1)?;
    let before = processor_time(child.id())?;
    let began = Instant::now();
    host.samples(samples(is_quick))?;
    let length = began.elapsed();
    let used = processor_time(child.id())?.saturating_sub(before);
    let program_bytes = fs::metadata(&program)?.len();
    Ok(ProgramCost::new(
        "this machine",
        samples(is_quick),
        length,
        used,
        resident(child.id())?,
        program_bytes,
    ))
}

/// The agent in an emulated guest of the lab.
///
/// # Errors
/// Something needed is missing, or the guest or its agent does not answer.
pub(super) fn emulated(is_quick: bool, say: &dyn Fn(&str)) -> anyhow::Result<ProgramCost> {
    say("the agent in an emulated guest");
    let id: GuestId = "bench".parse()?;
    let spec = GuestSpec { agent: true, ..GuestSpec::new(id.clone(), MEMORY) };
    let name: GuestId = format!("bench-agent-{}", std::process::id()).parse()?;
    let options = RunOptions {
        accel: AccelChoice::Tcg,
        // There is no other guest, so no limit is needed.
        limit_cpu: false,
        ..RunOptions::new(name, vec![spec])
    };
    let run = Run::start(&options, say)?;
    let guest = run.guest(id.as_str())?;
    let socket = guest.agent_socket().context("the guest has no port for its agent")?;
    let mut host = Host::new(UnixStream::connect(socket)?)?;
    host.samples(1)?;
    let before = processor_time_in(guest)?;
    let began = Instant::now();
    host.samples(samples(is_quick))?;
    let length = began.elapsed();
    let used = processor_time_in(guest)?.saturating_sub(before);
    let resident = shell(guest, "grep VmRSS /proc/$(pidof ballast-agent)/status")?;
    let kib = resident.split_whitespace().nth(1).and_then(|text| text.parse().ok());
    let resident = Bytes::kib(kib.with_context(|| format!("no VmRSS in `{resident}`"))?);
    let program_bytes = fs::metadata(AGENT.find()?)?.len();
    Ok(ProgramCost::new("emulated guest", samples(is_quick), length, used, resident, program_bytes))
}

/// Processor time of all threads of the agent in `guest`.
fn processor_time_in(guest: &Guest) -> anyhow::Result<Duration> {
    let text = shell(guest, "cat /proc/$(pidof ballast-agent)/task/*/schedstat")?;
    let ran = text.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(Duration::from_nanos(ran.sum()))
}

fn shell(guest: &Guest, line: &str) -> anyhow::Result<String> {
    let output = guest.exec(&["/bin/sh", "-c", line].map(str::to_owned), PATIENCE)?;
    if !output.end.is_success() {
        bail!("`{line}` failed in the guest: {}", output.stderr);
    }
    Ok(output.stdout.trim().to_owned())
}

/// The host's side of the conversation.
struct Host {
    stream: UnixStream,
    session: AgentSession,
    began: Instant,
}

impl Host {
    fn new(stream: UnixStream) -> anyhow::Result<Host> {
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        let settings = SessionSettings {
            statistics_period: PERIOD,
            emergency_period: PERIOD,
            host_facts: HostFacts { memory_max: None },
        };
        let mut session = AgentSession::new(settings, Timestamp::ZERO);
        session.connected(1, Timestamp::ZERO);
        Ok(Host { stream, session, began: Instant::now() })
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
