//! Programs that are tracked.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast_lab::{Artifact, TRACK_LIBRARY};
use ballast_track_wire::{Address, CAPACITY_DEFAULT, RegionName, RegionSpec, SOCKET_VARIABLE};
use ballast_tracker::{Client, TrackerError};
use clap::ValueEnum;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use tempfile::NamedTempFile;

/// The program that touches memory.
const PROGRAM: Artifact =
    Artifact { variable: "BALLAST_TRACK_SUBJECT", built: "release/track-subject" };
/// How long the tracker's socket is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program: what it touches in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Subject {
    /// A pointer chase through 200 MiB
    Chase,
    /// Pages of unequal popularity in 200 MiB
    Zipf,
    /// 200 MiB in the order of addresses
    Scan,
    /// The recorded pages of a perl program
    Perl,
    /// The recorded pages of a python program
    Python,
    /// The recorded pages of sort(1)
    Sort,
}

impl Subject {
    pub(super) const ALL: [Subject; 6] = [
        Subject::Chase,
        Subject::Zipf,
        Subject::Scan,
        Subject::Perl,
        Subject::Python,
        Subject::Sort,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Subject::Chase => "chase",
            Subject::Zipf => "zipf",
            Subject::Scan => "scan",
            Subject::Perl => "perl",
            Subject::Python => "python",
            Subject::Sort => "sort",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Subject::Chase | Subject::Zipf | Subject::Scan => self.name(),
            Subject::Perl | Subject::Python | Subject::Sort => "trace",
        }
    }

    /// The pages of a recorded program, compressed.
    const fn trace(self) -> Option<&'static [u8]> {
        Some(match self {
            Subject::Chase | Subject::Zipf | Subject::Scan => return None,
            Subject::Perl => include_bytes!("../../../../../mrc/tests/traces/perl.pg.zst"),
            Subject::Python => include_bytes!("../../../../../mrc/tests/traces/python.pg.zst"),
            Subject::Sort => include_bytes!("../../../../../mrc/tests/traces/sort.pg.zst"),
        })
    }
}

/// A program that runs, with the tracker's library in it.
pub(super) struct Running {
    subject: Subject,
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
    region: RegionSpec,
    address: Address,
    core: usize,
    _trace: Option<NamedTempFile>,
}

impl Running {
    /// Starts `subject` on `core`.
    pub(super) fn start(subject: Subject, core: usize) -> anyhow::Result<Running> {
        let program = PROGRAM.find().context("the program that touches memory")?;
        let library = TRACK_LIBRARY.find().context("the tracker's library")?;
        let name = format!("ballast-bench-{}-{}", std::process::id(), subject.name());
        let address = Address::Abstract(name);
        let trace = subject.trace().map(unpacked).transpose()?;
        let mut command = Command::new(&program);
        command.arg(subject.kind()).arg("--mib").arg(if trace.is_some() { "64" } else { "200" });
        if let Some(trace) = &trace {
            command.arg("--trace").arg(trace.path());
        }
        command.env("LD_PRELOAD", &library).env(SOCKET_VARIABLE, address.to_string());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let (Some(asked), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the program has no pipes");
        };
        let mut answers = BufReader::new(answers);
        let mut line = String::new();
        answers.read_line(&mut line).context("the program says nothing")?;
        let (region, tid) = ready(&line).with_context(|| {
            format!("{} says {line:?}: is it of this version?", program.display())
        })?;
        stay_on(tid, core)?;
        Ok(Running { subject, child, asked, answers, region, address, core, _trace: trace })
    }

    pub(super) const fn subject(&self) -> Subject {
        self.subject
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.region.len
    }

    /// How often it has touched memory so far, and when that was.
    pub(super) fn touches(&mut self) -> anyhow::Result<(u64, Instant)> {
        self.asked.write_all(b"\n").context("the program has ended")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).context("the program has ended")?;
        let count = line.trim().parse().with_context(|| format!("the program says {line:?}"))?;
        Ok((count, Instant::now()))
    }

    /// A client of its tracker, whose thread that answers faults runs on the program's core.
    pub(super) fn track(&self) -> anyhow::Result<Client> {
        let end = Instant::now() + PATIENCE;
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd").ok();
        let device = device.as_ref().map(AsFd::as_fd);
        let mut client = loop {
            match Client::connect(&self.address, CAPACITY_DEFAULT, device) {
                // The one before may not have ended yet.
                Err(TrackerError::Connect { .. } | TrackerError::Refused(_))
                    if Instant::now() < end =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                connected => break connected?,
            }
        };
        client.pin(&[self.core])?;
        client.add_region(self.region)?;
        Ok(client)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing of it is wanted any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the program says of itself: `ready MAJOR MINOR INODE BYTES TID`.
fn ready(line: &str) -> Option<(RegionSpec, i32)> {
    let mut words = line.strip_prefix("ready ")?.split_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok();
    let device = (u32::try_from(next()?).ok()?, u32::try_from(next()?).ok()?);
    let (inode, len, tid) = (next()?, next()?, i32::try_from(next()?).ok()?);
    let name = RegionName::new("program");
    Some((RegionSpec { id: 0, device, inode, offset: 0, len, first_page: 0, name }, tid))
}

fn stay_on(tid: i32, core: usize) -> anyhow::Result<()> {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(Pid::from_raw(tid), &one).context("cannot place the program's thread")
}

fn unpacked(trace: &[u8]) -> anyhow::Result<NamedTempFile> {
    let mut file = NamedTempFile::new().context("cannot make a file for a trace")?;
    let bytes = zstd::decode_all(trace).context("cannot unpack a trace")?;
    file.write_all(&bytes).context("cannot write a trace")?;
    Ok(file)
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
