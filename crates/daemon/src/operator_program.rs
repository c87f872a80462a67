//! What the operator's programs have in common, whatever they are run for: how they are started,
//! and how they are killed together with what they started.
//!
//! Limits: a process that leaves the program's process group is not killed.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Where a script finds other programs.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Longest wait for a program that was killed.
const KILLED_IN: Duration = Duration::from_secs(1);

/// Runs `program` without a shell, in a process group of its own and with nothing of the daemon's
/// environment. Dropping the child kills it.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", SEARCH_PATH).env("LANG", "C.UTF-8");
    command.current_dir("/").process_group(0).kill_on_drop(true);
    command
}

/// Kills `child` and its process group, unless it was waited for: its number may be another's then.
pub(crate) fn kill_group(child: &Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
        // It may have ended just now; then nothing is left to do.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Kills `child` and its process group, and waits for its end.
pub(crate) async fn kill(child: &mut Child) {
    kill_group(child);
    let _ = timeout(KILLED_IN, child.wait()).await;
}
