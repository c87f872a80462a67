//! A process beside this one.
//!
//! Idea: in the process group of the workload, so that stopping the workload stops it; and ended when it is
//! dropped, politely first, for what it has started itself. A server is talked to over its Unix socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Time it has to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(20);
/// What a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(200);
/// Somebody without privileges, as whom servers run that refuse to run as root. Guests have no list of users.
pub(super) const NOBODY: u32 = 65534;

/// A program that runs.
pub(super) struct Beside {
    name: String,
    process: Child,
}

impl Beside {
    /// Starts it with nothing to read and nobody to hear it, but as `change` says.
    pub(super) fn start(
        name: &str,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Result<Beside, String> {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        change(&mut command);
        let process = command
            .spawn()
            .map_err(|error| format!("{name}: {error}: is it packed into this guest?"))?;
        Ok(Beside { name: name.to_owned(), process })
    }

    /// Its pipes.
    pub(super) fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A connection to it, once it listens at `socket`.
    pub(super) fn connect(&mut self, socket: &Path) -> Result<UnixStream, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.check()?;
            match UnixStream::connect(socket) {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() >= end => {
                    return Err(format!("{}: {error}", socket.display()));
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    /// That it still runs.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{} ended: {status}", self.name)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let end = Instant::now() + GRACE;
        // What has ended cannot be asked to, and need not be.
        let _ = rustix::process::kill_process(Pid::from_child(&self.process), Signal::TERM);
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
