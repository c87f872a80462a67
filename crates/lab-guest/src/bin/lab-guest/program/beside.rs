//! A process beside this one.
//!
//! Idea: in the process group of the workload, so that stopping the workload stops it; and ended when it is
//! dropped, politely first, for what it has started itself.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Time it has to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two looks at whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// A program that runs.
pub(super) struct Beside {
    name: &'static str,
    process: Child,
}

impl Beside {
    /// Starts it with nothing to read and nobody to hear it, but as `change` says.
    pub(super) fn start(
        name: &'static str,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Result<Beside, String> {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        change(&mut command);
        let process = command
            .spawn()
            .map_err(|error| format!("{name}: {error}: is it packed into this guest?"))?;
        Ok(Beside { name, process })
    }

    /// Its pipes.
    pub(super) fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
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
