//! Loading the page tracker into QEMU.
//!
//! Idea: the tracker is a library (`crates/tracker-preload`) that QEMU preloads; it tracks nothing
//! until a client connects and asks for it.

use std::ffi::OsString;
use std::path::Path;

use ballast_tracker_proto::SOCKET_VARIABLE;

use crate::LabError;
use crate::artifact::Artifact;

/// The tracker's library.
pub const TRACK_LIBRARY: Artifact =
    Artifact { variable: "BALLAST_TRACK_LIBRARY", built: "release/libballast_track.so" };

/// The environment in which QEMU preloads the library, which listens at `socket`.
///
/// # Errors
/// When the library is not built.
pub(crate) fn environment(socket: &Path) -> Result<[(&'static str, OsString); 2], LabError> {
    let library = TRACK_LIBRARY.find().map_err(LabError::TrackerMissing)?;
    Ok([("LD_PRELOAD", library.into()), (SOCKET_VARIABLE, socket.into())])
}

/// Whether guests that this user starts can be tracked. The kernel allows a userfaultfd that also
/// handles the kernel's own faults only with privileges, or if the host allows it to every user.
pub fn is_tracking_permitted() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    let is_for_everybody = setting.is_ok_and(|setting| setting.trim() == "1");
    let is_device_open = || std::fs::File::open("/dev/userfaultfd").is_ok();
    rustix::process::geteuid().is_root() || is_for_everybody || is_device_open()
}
