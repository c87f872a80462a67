//! A running program with the tracker's library.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_lab_host::{Artifact, TRACK_LIBRARY};
use ballast_tracker::{TrackableGuest, TrackerClient, TrackerError};
use ballast_tracker_proto::{
    CAPACITY_DEFAULT, RegionName, RegionSpec, SOCKET_VARIABLE, TrackerAddress,
};
use clap::ValueEnum;
use rustix::process::Pid;
use serde::Serialize;
use tempfile::NamedTempFile;

use super::clock::Clock;
use super::program::Program;
use crate::machine;
use crate::process::Guarded;

/// The program that touches memory.
const PROGRAM: Artifact =
    Artifact { variable: "BALLAST_TRACK_SUBJECT", built: "release/track-subject" };
/// How long to wait for the tracker's socket.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the tracker's thread runs that answers faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HandlerPlacement {
    /// On the program's core
    #[default]
    Beside,
    /// On another core, with this benchmark
    Apart,
    /// Where the kernel schedules it
    Free,
}

/// A running program with the tracker's library.
pub(crate) struct RunningProgram {
    child: Guarded,
    stdin: ChildStdin,
    answers: BufReader<ChildStdout>,
    region: RegionSpec,
    address: TrackerAddress,
    core: usize,
    /// All cores that may be used.
    cores: Vec<usize>,
    tid: i32,
    _file: Option<NamedTempFile>,
}

impl RunningProgram {
    /// Starts `program` on the first of `cores`.
    pub(crate) fn start(program: &Program, cores: Vec<usize>) -> anyhow::Result<RunningProgram> {
        let (arguments, file) = program.arguments()?;
        let program = PROGRAM.find().context("the program that touches memory")?;
        let library = TRACK_LIBRARY.find().context("the tracker's library")?;
        let name = format!("ballast-bench-{}.sock", std::process::id());
        let address = TrackerAddress::new(std::env::temp_dir().join(name));
        let mut command = Command::new(&program);
        command.args(arguments).env("LD_PRELOAD", &library).env(SOCKET_VARIABLE, address.path());
        let mut child = Guarded::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let pipes = child.child();
        let (Some(stdin), Some(answers)) = (pipes.stdin.take(), pipes.stdout.take()) else {
            bail!("the program has no pipes");
        };
        let mut answers = BufReader::new(answers);
        let mut line = String::new();
        answers.read_line(&mut line).context("the program says nothing")?;
        let (region, tid) = ready(&line).with_context(|| {
            format!("{} says {line:?}: is it of this version?", program.display())
        })?;
        let core = cores.first().copied().unwrap_or(0);
        machine::pin(Pid::from_raw(tid), core).context("cannot place the program's thread")?;
        Ok(RunningProgram { child, stdin, answers, region, address, core, cores, tid, _file: file })
    }

    /// The program in the form in which the daemon finds a guest.
    pub(super) fn as_guest(&self) -> TrackableGuest {
        let (pid, address) = (self.child.id(), self.address.clone());
        TrackableGuest { pid, name: None, address, paths: Vec::new() }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.region.len
    }

    /// The number of touches so far, and when it was read.
    pub(crate) fn touches(&mut self) -> anyhow::Result<(u64, Instant)> {
        self.stdin.write_all(b"\n").context("the program has ended")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the program has ended")?;
        let count = line.trim().parse().with_context(|| format!("the program says {line:?}"))?;
        Ok((count, Instant::now()))
    }

    /// How the program's thread has spent its time so far.
    pub(super) fn clock(&self) -> anyhow::Result<Clock> {
        Clock::read(self.child.id(), self.tid)
    }

    /// Connects a client to its tracker; `place` is for the tracker's thread that answers faults.
    pub(super) fn track(&self, place: HandlerPlacement) -> anyhow::Result<TrackerClient> {
        let end = Instant::now() + PATIENCE;
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok();
        let device = device.as_ref().map(AsFd::as_fd);
        let mut client = loop {
            match TrackerClient::connect(&self.address, self.child.id(), CAPACITY_DEFAULT, device) {
                // The previous client may not have ended yet.
                Err(TrackerError::Connect { .. } | TrackerError::Refused(_))
                    if Instant::now() < end =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                connected => break connected?,
            }
        };
        let is_wanted = |core: &usize| match place {
            HandlerPlacement::Beside => *core == self.core,
            HandlerPlacement::Apart => *core != self.core,
            HandlerPlacement::Free => true,
        };
        let cores: Vec<usize> = self.cores.iter().copied().filter(is_wanted).collect();
        client.pin(&cores)?;
        client.add_region(self.region)?;
        Ok(client)
    }
}

/// Parses the program's first line: `ready MAJOR MINOR INODE BYTES TID`.
fn ready(line: &str) -> Option<(RegionSpec, i32)> {
    let mut words = line.strip_prefix("ready ")?.split_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok();
    let device = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
    let (inode, len, tid) = (next()?, next()?, i32::try_from(next()?).ok()?);
    let name = RegionName::new("program");
    Some((RegionSpec { id: 0, device, inode, offset: 0, len, first_page: 0, name }, tid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_of_itself_is_read() {
        let (region, tid) = ready("ready 0 1 77 8192 500\n").unwrap();
        assert_eq!((region.device, region.inode, region.len, tid), ((0, 1), 77, 8192, 500));
        for wrong in ["", "ready", "ready 0 1 77 8192", "ready 0 1 x 8192 5"] {
            assert!(ready(wrong).is_none(), "{wrong}");
        }
    }
}
