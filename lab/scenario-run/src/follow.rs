//! Programs that end when the process that started them ends.
//!
//! Idea: this program, started with a hidden command, first asks the kernel for a signal when its
//! parent dies and then executes the other program; the request survives the exec.
//! Source: prctl(2), PR_SET_PDEATHSIG.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use ballast_lab_host::Helper;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::process::{Child, Command};

/// The hidden command.
pub const COMMAND: &str = "lab-follow";
/// How long a program may take to end.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of the hidden command.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Started by `ballast lab run`.")]
pub struct Args {
    /// The process to end with
    #[arg(long)]
    parent: i32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes the program in this process; returns only on failure.
///
/// # Errors
/// The parent is gone, or the program cannot be executed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    follow(args.parent)?;
    let Some((program, arguments)) = args.command.split_first() else { bail!("no program") };
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot execute {}", Path::new(program).display()))
}

/// Has the kernel send SIGTERM to this process when its parent dies; the parent has to be `parent`.
///
/// # Errors
/// The parent has died already.
pub(super) fn follow(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the parent")?;
    // If the parent died before that call, no signal is sent.
    if getppid() != Pid::from_raw(parent) {
        bail!("the process that started this one is gone");
    }
    Ok(())
}

/// A hidden command of this program, without input, which ends with this process.
pub(super) fn hidden(name: &str) -> Command {
    let mut command = Command::new(Helper::default().program);
    command.arg0("ballast").arg(name).args(["--parent", &std::process::id().to_string()]);
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// A command that runs `program` without input, so that it ends with this process.
pub(super) fn command(program: &OsStr) -> Command {
    let mut command = hidden(COMMAND);
    command.arg("--").arg(program);
    command
}

/// Ends a program, called `what` in errors, and waits until it has ended; `None`: it does not end
/// in time.
///
/// # Errors
/// No signal can be sent to it, or it cannot be waited for.
pub(super) async fn end(child: &mut Child, what: &str) -> anyhow::Result<Option<ExitStatus>> {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM).with_context(|| format!("cannot end {what}"))?;
    }
    let ended = tokio::time::timeout(END_PATIENCE, child.wait()).await;
    ended.ok().transpose().with_context(|| format!("cannot wait for {what}"))
}

/// The last `count` lines of a log; empty if it cannot be read.
pub(super) fn log_tail(log: &Path, count: usize) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
