//! Programs that end with whoever started them.
//!
//! Idea: this program, started with a hidden command, first asks the kernel for a signal when its
//! parent dies, and then becomes the other program, for which that still holds.
//! Source: prctl(2), PR_SET_PDEATHSIG.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail};
use ballast_lab_host::Helper;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::process::Command;

/// Hidden command.
pub const COMMAND: &str = "lab-follow";

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

/// Becomes the program; returns only on failure.
///
/// # Errors
/// The parent is gone, or the program cannot be executed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    follow(args.parent)?;
    let Some((program, arguments)) = args.command.split_first() else { bail!("no program") };
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot execute {}", Path::new(program).display()))
}

/// From now on this process gets SIGTERM when its parent, which has to be `parent`, dies.
///
/// # Errors
/// It has died already.
pub(super) fn follow(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the parent")?;
    // A parent that died before that call sends no signal.
    if getppid() != Pid::from_raw(parent) {
        bail!("the process that started this one is gone");
    }
    Ok(())
}

/// A command that runs `program` so that it ends with this process; it has no input.
pub(super) fn command(program: &OsStr) -> Command {
    let mut command = Command::new(Helper::default().program);
    command.arg0("ballast").arg(COMMAND);
    command.args(["--parent", &std::process::id().to_string(), "--"]).arg(program);
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).kill_on_drop(true);
    command
}
