//! Which libvirt a run has, and where it listens.

use std::path::{Path, PathBuf};

use crate::nested;

/// Where the system's libvirtd keeps what it does.
pub(crate) const SYSTEM_FOLDER: &str = "/run/libvirt";

/// Whether the run's libvirtd is the system's. Nobody else has one in an outer machine; and root
/// may not be somebody else there, as its root folder is not that of its mounts.
pub(crate) fn is_system() -> bool {
    nested::is_inside() && rustix::process::geteuid().is_root()
}

/// Where the libvirtd whose files are in `folder` listens.
pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    let folder = if is_system() { SYSTEM_FOLDER.into() } else { folder.join("libvirt") };
    folder.join("libvirt-sock")
}
