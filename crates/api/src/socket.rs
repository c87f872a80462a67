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

/// Where a daemon of this user listens, and where its commands look for it.
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
