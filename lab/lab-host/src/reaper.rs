//! The process that cleans up after a killed owner of a run.
//!
//! Idea: an owner killed by SIGKILL cannot clean up. The kernel kills its QEMUs (parent-death
//! signal), and a small process in a session of its own notices that the owner's end of a pipe has
//! closed and ends everything that the run's folder names. It is this same program, started with a
//! hidden command.
//! Limits: if owner and reaper are killed together, the QEMUs still die with the owner, and the
//! next run removes the folder.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::LabError;
use crate::run_folder::RunFolder;

/// Hidden command of the reaper; its one argument is the run's folder.
pub const REAPER_COMMAND: &str = "lab-reaper";
/// Hidden command of the supervisor, without arguments.
pub const SUPERVISOR_COMMAND: &str = "lab-supervisor";
/// Timeout for starting a helper.
const START_PATIENCE_S: i64 = 20;
/// How long an owner may take to exit after it closed its pipe.
const OWNER_DEATH_PATIENCE: Duration = Duration::from_secs(10);
/// What the reaper writes once it is watching.
const WATCHING: &[u8] = b"watching\n";

/// The program that has the hidden commands [`REAPER_COMMAND`] and [`SUPERVISOR_COMMAND`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The program's file.
    pub program: PathBuf,
}

impl Default for Helper {
    /// This program, even if its file was replaced since it started.
    fn default() -> Self {
        Helper { program: PathBuf::from("/proc/self/exe") }
    }
}

impl Helper {
    /// A command that runs it in a session of its own, out of reach of the terminal's signals.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0("ballast").arg(name).current_dir("/");
        // SAFETY: between fork and exec the closure makes one system call, setsid, and touches
        // neither memory nor locks of the parent.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                Ok(())
            });
        }
        command
    }
}

/// A reaper that watches this process.
#[derive(Debug)]
pub(crate) struct Reaper {
    child: Child,
}

impl Reaper {
    /// Starts a reaper for `folder` and waits until it is watching.
    pub(crate) fn start(helper: &Helper, folder: &RunFolder) -> Result<Reaper, LabError> {
        let mut child = helper
            .command(REAPER_COMMAND)
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(LabError::io("start", &helper.program))?;
        if reports_watching(&mut child) {
            return Ok(Reaper { child });
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(LabError::Invalid(format!(
            "{} has no working `{REAPER_COMMAND}` command, which must clean up \
             after a killed lab: give the lab a helper program that has",
            helper.program.display()
        )))
    }

    /// Dismisses the reaper after the run's folder is gone, and waits for its exit.
    pub(crate) fn finish(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn reports_watching(child: &mut Child) -> bool {
    let Some(stdout) = child.stdout.as_mut() else { return false };
    let timeout = Timespec { tv_sec: START_PATIENCE_S, tv_nsec: 0 };
    let mut line = [0; WATCHING.len()];
    let readable = poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&timeout)) == Ok(1);
    readable && stdout.read_exact(&mut line).is_ok() && line == WATCHING
}

/// Implements the hidden command [`REAPER_COMMAND`]; `arguments` follow its name. Returns after the
/// owner has exited.
pub fn reaper_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(path) = arguments.next().map(PathBuf::from) else { return ExitCode::FAILURE };
    let folder = RunFolder::at(path);
    let Some(owner) = folder.owner() else { return ExitCode::FAILURE };
    let mut stdout = io::stdout();
    if stdout.write_all(WATCHING).and_then(|()| stdout.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    // The owner never writes: the read ends when the owner exits.
    if io::copy(&mut io::stdin().lock(), &mut io::sink()).is_err() {
        return ExitCode::FAILURE;
    }
    // Its files close a moment before it is dead. An owner that stays alive has ended the run
    // itself.
    let end = Instant::now() + OWNER_DEATH_PATIENCE;
    while owner.is_alive() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        if folder.owner() != Some(owner) {
            return ExitCode::SUCCESS;
        }
    }
    // A later run of the same name has another owner.
    if folder.owner() == Some(owner) {
        folder.end();
    }
    ExitCode::SUCCESS
}
