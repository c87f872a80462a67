//! Common parts of running an operator's program: which programs are refused, how they are started,
//! and how they are killed together with their children.
//!
//! Limits: of a script, the file is checked, but not its interpreter, nor the folders above. A
//! process that leaves the program's process group is not killed.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ballast_host::{PROC, give_ordinary_priority};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Where a script finds other programs.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Longest wait for a program that was killed.
const KILLED_IN: Duration = Duration::from_secs(1);

/// Refuses a program that belongs to another user than root, the daemon's and `user`, or that
/// everybody may write to: whoever can write it gains the rights with which it runs, those of
/// `user`.
///
/// # Errors
/// What is wrong, as the end of a sentence about the program.
pub(crate) fn check_owner(program: &Path, user: Option<u32>) -> Result<(), String> {
    const OTHERS_WRITE: u32 = 0o002;
    let file = std::fs::metadata(program).map_err(|error| format!("cannot be run: {error}"))?;
    let own = rustix::process::geteuid().as_raw();
    if ![Some(0), Some(own), user].contains(&Some(file.uid())) {
        return Err(format!("is refused: it belongs to user {}, not to the daemon's", file.uid()));
    }
    if file.mode() & OTHERS_WRITE != 0 {
        return Err("is refused: everybody may write to it (chmod o-w)".to_owned());
    }
    Ok(())
}

/// Runs `program` without a shell, in its own process group, and without the daemon's environment.
/// Dropping the child kills it.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", SEARCH_PATH).env("LANG", "C.UTF-8");
    command.current_dir("/").process_group(0).kill_on_drop(true);
    command
}

/// Starts a program with ordinary priority, whatever the daemon's is: the kernel's out-of-memory
/// killer should spare the daemon, but not what it starts.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let child = command.spawn()?;
    if let Some(pid) = child.id() {
        give_ordinary_priority(Path::new(PROC), pid);
    }
    Ok(child)
}

/// Kills `child` and its process group, unless it was waited for: then its PID may be another's.
pub(crate) fn kill_group(child: &Child) {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
        // It may have ended just now; then there is nothing to do.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Kills `child` and its process group, and waits for its end.
pub(crate) async fn kill(child: &mut Child) {
    kill_group(child);
    let _ = timeout(KILLED_IN, child.wait()).await;
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_program_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "").unwrap();
        for (mode, is_refused) in [(0o755, false), (0o775, false), (0o757, true), (0o777, true)] {
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            let found = check_owner(&program, None);
            assert_eq!(found.is_err(), is_refused, "{mode:o}: {found:?}");
            assert!(found.err().is_none_or(|why| why.contains("everybody may write to it")));
        }
        let why = check_owner(&folder.path().join("none"), None).unwrap_err();
        assert!(why.contains("cannot be run: No such file"), "{why}");
    }

    #[test]
    fn a_program_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "").unwrap();
        if chown(&program, Some(4001), None).is_err() {
            println!("SKIPPED: only root gives files to others");
            return;
        }
        let why = check_owner(&program, None).unwrap_err();
        assert!(why.contains("it belongs to user 4001"), "{why}");
        assert_eq!(check_owner(&program, Some(4001)), Ok(()), "it has only its owner's rights");
        assert!(check_owner(&program, Some(4002)).is_err());
    }
}
