//! Which libvirtd a run has, and where it listens.

use std::path::{Path, PathBuf};

use crate::nested;

/// The folder of the system's libvirtd.
pub(crate) const SYSTEM_FOLDER: &str = "/run/libvirt";

/// Whether the run's libvirtd is the system's. In an outer machine no other libvirtd exists, and
/// root cannot become another user there, because its root folder is not that of its mount
/// namespace.
pub(crate) fn is_system() -> bool {
    nested::is_inside() && rustix::process::geteuid().is_root()
}

/// The socket of the libvirtd whose files are in `folder`.
pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    let folder = if is_system() { SYSTEM_FOLDER.into() } else { folder.join("libvirt") };
    folder.join("libvirt-sock")
}
