//! A process that is measured: its resource use, and that it ends with the measuring process.
//!
//! Source: `/proc/PID/task/TID/schedstat`, `/proc/PID/status`. Limits: threads that have ended are
//! not counted.

use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use ballast_model::Bytes;
use rustix::process::{Pid, Signal, kill_process};

/// A child that is killed when it is dropped.
pub(crate) struct Guarded(Child);

impl Guarded {
    /// Starts the process.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Guarded> {
        let child = command.spawn();
        let named = || format!("cannot start {}", command.get_program().display());
        child.map(Guarded).with_context(named)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// The child, for its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Ends it as a service manager does, and waits until it has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn stop(mut self) -> anyhow::Result<ExitStatus> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).context("cannot end a process")?;
        self.0.wait().context("cannot wait for a process")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of all threads of process `pid`.
///
/// # Errors
/// The process is gone.
pub(crate) fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).context("the process is gone")?;
    let ran = |entry: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Ok(Duration::from_nanos(threads.filter_map(ran).sum()))
}

/// Resident memory of process `pid`.
///
/// # Errors
/// The process is gone.
pub(crate) fn resident(pid: u32) -> anyhow::Result<Bytes> {
    of_status(pid, "VmRSS:")
}

/// The greatest resident memory that process `pid` ever had.
///
/// # Errors
/// The process is gone.
pub(crate) fn resident_most(pid: u32) -> anyhow::Result<Bytes> {
    of_status(pid, "VmHWM:")
}

fn of_status(pid: u32, key: &str) -> anyhow::Result<Bytes> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let kib = status.lines().find_map(|line| line.strip_prefix(key)?.trim().split(' ').next());
    let kib = kib.and_then(|text| text.parse().ok()).with_context(|| format!("no {key}"))?;
    Ok(Bytes::kib(kib))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_measured_and_ends_on_request() {
        let child = Guarded::start(Command::new("sleep").arg("600")).unwrap();
        assert!(processor_time(child.id()).is_ok());
        assert!(resident(child.id()).unwrap() <= resident_most(child.id()).unwrap());
        let id = child.id();
        assert!(!child.stop().unwrap().success());
        assert!(processor_time(id).is_err());
        assert!(Guarded::start(&mut Command::new("no-such-program")).is_err());
    }
}
