//! A subprocess of a workload.
//!
//! Idea: it runs in the workload's process group, so that stopping the workload stops it. Dropping
//! it sends SIGTERM first, so that it can stop its own children. A server is reached over its Unix
//! socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Time it has to exit after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two checks for its exit.
const EXIT_POLL_PERIOD: Duration = Duration::from_millis(20);
/// Longest wait for a server to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two attempts to connect.
const CONNECT_PERIOD: Duration = Duration::from_millis(200);
/// An unprivileged user id, for servers that refuse to run as root. Guests have no user database.
pub(super) const NOBODY: u32 = 65534;

/// A running program.
pub(super) struct Subprocess {
    name: String,
    process: Child,
}

impl Subprocess {
    /// Starts it with standard input and output closed, unless `change` sets them.
    pub(super) fn start(
        name: &str,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Result<Subprocess, String> {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        change(&mut command);
        let process = command
            .spawn()
            .map_err(|error| format!("{name}: {error}: is it packed into this guest?"))?;
        Ok(Subprocess { name: name.to_owned(), process })
    }

    /// The process, for its pipes.
    pub(super) fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it listens at `socket`, and connects.
    pub(super) fn connect(&mut self, socket: &Path) -> Result<UnixStream, String> {
        let end = Instant::now() + LISTEN_TIMEOUT;
        loop {
            self.check()?;
            match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() >= end => {
                    return Err(format!("{}: {error}", socket.display()));
                }
                Err(_) => std::thread::sleep(CONNECT_PERIOD),
            }
        }
    }

    /// Checks that it is still running.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{} exited: {status}", self.name)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }
}

impl Drop for Subprocess {
    fn drop(&mut self) {
        let end = Instant::now() + GRACE;
        // Fails if it has exited already.
        let _ = rustix::process::kill_process(Pid::from_child(&self.process), Signal::TERM);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(EXIT_POLL_PERIOD);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
