//! Child processes of process 1.
//!
//! Idea: each child runs this program in a process group of its own and first drops the privileges
//! that process 1 needs to stay responsive. A pidfd signals its exit.
//! Limits: nothing here blocks; the caller reaps and passes the status on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use ballast_lab_guest::protocol::ProcessEnd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus};

/// `PATH` of all programs.
pub(crate) const SEARCH_PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";
/// Nice value of process 1: it does little, but must do it promptly.
pub(crate) const INIT_NICE: i32 = -10;
/// Makes the OOM killer prefer every other process to process 1.
const OOM_SCORE_ADJ: &str = "500";

/// A child process that was not reaped yet.
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

/// A new child and our ends of its pipes.
pub(crate) struct Spawned {
    pub(crate) child: Child,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

impl Child {
    /// Starts this program with other arguments.
    pub(crate) fn spawn(
        arguments: &[&str],
        stdin: Stdio,
        stdout: Stdio,
    ) -> Result<Spawned, String> {
        let mut process = Command::new("/proc/self/exe")
            .args(arguments)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", "/root")
            .current_dir("/")
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a process: {error}"))?;
        let pid = Pid::from_child(&process);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| format!("pidfd of process {}: {error}", pid.as_raw_nonzero()))?;
        Ok(Spawned {
            child: Child { pid, pidfd },
            stdout: process.stdout.take().map(OwnedFd::from),
            stderr: process.stderr.take().map(OwnedFd::from),
        })
    }

    /// Its process id.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Becomes readable when it exits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Kills it and its process group.
    pub(crate) fn kill(&self) {
        // It may have exited, or its group may not exist yet; then the other call works.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// Kills a child that is no longer tracked. Processes it left in its group may run on: that is how
/// a shell command starts a server.
impl Drop for Child {
    fn drop(&mut self) {
        // Fails if it has been reaped, which is the usual case.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// Converts a wait status.
pub(crate) fn end_of(status: WaitStatus) -> ProcessEnd {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => ProcessEnd::Killed { signal },
        (code, None) => ProcessEnd::Exited { code: code.unwrap_or(-1) },
    }
}

/// Drops what a child inherits from process 1.
pub(crate) fn give_up_privileges() {
    // Both are best effort: the child works without them.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    let _ = rustix::process::setpriority_process(None, 0);
}

/// Executes another program in this process; returns only with an error.
pub(crate) fn become_program(program: &str, arguments: &[&str]) -> String {
    give_up_privileges();
    let error = Command::new(program).args(arguments).exec();
    format!("{program}: {error}")
}
