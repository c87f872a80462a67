//! Where a daemon listens, and where its clients look for it.

use std::path::{Path, PathBuf};

/// Where the daemon of the whole machine listens.
const SYSTEM_SOCKET: &str = "/run/ballast/ballast.sock";
/// The socket's name in the folder of a user's run-time files.
const USER_SOCKET: &str = "ballast.sock";

/// This user has no folder in which a daemon could listen.
#[derive(Debug, thiserror::Error)]
#[error("XDG_RUNTIME_DIR is not set: name the daemon's socket with --socket PATH")]
pub struct NoRuntimeFolder;

/// Where `ballast-fleet` answers the daemon that listens on `daemon`.
pub fn fleet_socket(daemon: &Path) -> PathBuf {
    daemon.with_extension("fleet.sock")
}

/// Where a daemon of this user listens.
///
/// # Errors
/// This user has no folder for run-time files.
pub fn default_socket() -> Result<PathBuf, NoRuntimeFolder> {
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from(SYSTEM_SOCKET));
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder.map(|folder| PathBuf::from(folder).join(USER_SOCKET)).ok_or(NoRuntimeFolder)
}

/// Where commands of this user look for a daemon: on the socket of the user's own daemon if it is
/// there, else on that of the machine's daemon.
///
/// # Errors
/// The machine has no daemon, and this user has no folder for run-time files.
pub fn client_socket() -> Result<PathBuf, NoRuntimeFolder> {
    own_or_system(default_socket(), Path::new(SYSTEM_SOCKET))
}

fn own_or_system(
    own: Result<PathBuf, NoRuntimeFolder>,
    system: &Path,
) -> Result<PathBuf, NoRuntimeFolder> {
    let has_own = own.as_ref().is_ok_and(|socket| socket.exists());
    // The folder stays while the machine's daemon is stopped, so that errors name the right socket.
    let has_system = system.parent().is_some_and(Path::is_dir);
    if has_system && !has_own { Ok(system.to_owned()) } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_daemon_asks_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        let (own, system) = (folder.path().join("own.sock"), folder.path().join("ballast.sock"));
        let absent = Path::new("/nonexistent/ballast.sock");
        let ask = |own: &Path, system: &Path| own_or_system(Ok(own.to_owned()), system).unwrap();
        assert_eq!(ask(&own, &system), system);
        assert_eq!(ask(&own, absent), own, "the error names what the user would start");
        std::fs::write(&own, "").unwrap();
        assert_eq!(ask(&own, &system), own);
        assert_eq!(own_or_system(Err(NoRuntimeFolder), &system).unwrap(), system);
        assert!(own_or_system(Err(NoRuntimeFolder), absent).is_err());
    }
}
