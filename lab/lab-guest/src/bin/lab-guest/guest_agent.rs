//! The supervisor of the guest's Ballast agent.
//!
//! Idea: if [`AGENT_PATH`] exists, it is started, and restarted when it exits. In a Xen domain,
//! which has no virtio-serial ports, the agent reports through xenstore.
//! Limits: it is restarted after [`RESTART_DELAY`]; what it wrote to standard error is printed on
//! the console when it exits.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ballast_lab_guest::protocol::{AGENT_PATH, ERROR_TEXT_LEN_MAX};
use rustix::process::Pid;

use crate::child::Child;
use crate::pipe::Pipe;
use crate::port;

/// Time between its exit and its next start.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The agent, if this guest has one.
pub(crate) struct GuestAgent {
    running: Option<(Child, Pipe)>,
    start_at: Option<Instant>,
}

impl GuestAgent {
    /// Schedules its start if it exists.
    pub(crate) fn find() -> GuestAgent {
        let start_at = Path::new(AGENT_PATH).exists().then(Instant::now);
        GuestAgent { running: None, start_at }
    }

    /// Starts it when it is due, and reads its standard error.
    pub(crate) fn poll(&mut self, now: Instant) {
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
                self.start_at = Some(now + RESTART_DELAY);
            }
        }
    }

    /// Records that a process was reaped.
    pub(crate) fn reaped(&mut self, pid: Pid, now: Instant) {
        if let Some((_, mut errors)) = self.running.take_if(|(child, _)| child.pid() == pid) {
            errors.read();
            eprintln!("lab-guest: {AGENT_PATH} has exited: {}", errors.into_text().0.trim_end());
            self.start_at = Some(now + RESTART_DELAY);
        }
    }

    /// File descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let running = self.running.iter();
        running.flat_map(|(child, errors)| [Some(child.fd()), errors.fd()]).flatten()
    }

    /// When it is due to start.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.start_at
    }
}

fn start() -> Result<(Child, Pipe), String> {
    let mut arguments = vec!["exec", AGENT_PATH];
    if port::console().is_some() {
        arguments.extend(["--connect", "xenstore"]);
    }
    let spawned = Child::spawn(&arguments, Stdio::null(), Stdio::null())?;
    let errors = spawned.stderr.ok_or("a process without its pipe")?;
    Ok((spawned.child, Pipe::new(errors, ERROR_TEXT_LEN_MAX)?))
}
