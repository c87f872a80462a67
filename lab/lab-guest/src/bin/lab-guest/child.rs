//! Processes of process 1.
//!
//! Idea: each is this program again, in a process group of its own, which gives up what process 1 needs
//! to stay responsive before it does anything else. Its end shows at a pidfd.
//! Limits: nothing here waits; whoever reaps tells what status came.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use ballast_lab_guest::protocol::End;
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus};

/// Where programs are looked for.
pub(crate) const SEARCH_PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";
/// Nice value of process 1: it does little, but that at once.
pub(crate) const PRIORITY_OF_FIRST_PROCESS: i32 = -10;
/// Whatever is not process 1 is to be killed first when memory runs out.
const OOM_SCORE_ADJ: &str = "500";

/// A process that was started and not reaped yet.
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

/// A new process and the ends of its pipes.
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

    /// Its number.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Readable once it has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Kills it and all of its process group.
    pub(crate) fn kill(&self) {
        // It may have ended, or not have made its group yet; then the other call finds it.
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// A child nobody keeps account of must not run on. What it left behind in its group may: that is how
/// a shell line starts a server.
impl Drop for Child {
    fn drop(&mut self) {
        // Refused where it has been reaped, which is the usual case.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// How a process ended, from what reaping it gave.
pub(crate) fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => End::Killed { signal },
        (code, None) => End::Exited { code: code.unwrap_or(-1) },
    }
}

/// Undoes what process 1 hands down to its children.
pub(crate) fn give_up_privileges() {
    // Without either it still does its work; there is nobody to tell.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    let _ = rustix::process::setpriority_process(None, 0);
}

/// Becomes another program; comes back only with an error.
pub(crate) fn become_program(program: &str, arguments: &[&str]) -> String {
    give_up_privileges();
    let error = Command::new(program).args(arguments).exec();
    format!("{program}: {error}")
}
