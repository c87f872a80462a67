//! The guest's agent, as a service manager would have it.
//!
//! Idea: where [`AGENT_PATH`] is, it is started, and started again when it ends.
//! Limits: [`PAUSE`] between its end and its next start; what it writes goes to the console when it
//! has ended.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::{AGENT_PATH, ERROR_TEXT_LEN_MAX};
use rustix::process::Pid;

use crate::child::Child;
use crate::pipe::Pipe;

/// Time between an end and the next start.
const PAUSE: Duration = Duration::from_secs(1);

/// The agent, if this guest has one.
pub(crate) struct GuestAgent {
    running: Option<(Child, Pipe)>,
    start_at: Option<Instant>,
}

impl GuestAgent {
    /// To be started, if it is there.
    pub(crate) fn find() -> GuestAgent {
        let start_at = Path::new(AGENT_PATH).exists().then(Instant::now);
        GuestAgent { running: None, start_at }
    }

    /// Starts it when it is due, and reads what it writes.
    pub(crate) fn tend(&mut self, now: Instant) {
        if let Some((_, errors)) = &mut self.running {
            errors.read();
        }
        if self.start_at.is_none_or(|at| now < at) {
            return;
        }
        match start() {
            Ok(running) => (self.running, self.start_at) = (Some(running), None),
            Err(error) => {
                eprintln!("lab-guest: {AGENT_PATH}: {error}");
                self.start_at = Some(now + PAUSE);
            }
        }
    }

    /// A process has ended.
    pub(crate) fn ended(&mut self, pid: Pid, now: Instant) {
        if let Some((_, mut errors)) = self.running.take_if(|(child, _)| child.pid() == pid) {
            errors.read();
            eprintln!("lab-guest: {AGENT_PATH} has ended: {}", errors.into_text().0.trim_end());
            self.start_at = Some(now + PAUSE);
        }
    }

    /// What to wait for.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let running = self.running.iter();
        running.flat_map(|(child, errors)| [Some(child.fd()), errors.fd()]).flatten()
    }

    /// When it is to be started.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.start_at
    }
}

fn start() -> Result<(Child, Pipe), String> {
    let spawned = Child::spawn(&["exec", AGENT_PATH], Stdio::null(), Stdio::null())?;
    let errors = spawned.stderr.ok_or("a process without its pipe")?;
    Ok((spawned.child, Pipe::new(errors, ERROR_TEXT_LEN_MAX)?))
}
