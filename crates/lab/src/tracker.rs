//! Guests whose page tracker waits for a client.
//!
//! Idea: the tracker is a library (`crates/track`) that is loaded into QEMU; what it sees, and when it
//! looks, is the business of whoever connects to it.

use std::path::Path;
use std::process::Command;

use ballast_track_wire::SOCKET_VARIABLE;

use crate::LabError;
use crate::artifact::{Artifact, Missing};

/// The library.
pub const TRACK_LIBRARY: Artifact =
    Artifact { variable: "BALLAST_TRACK_LIBRARY", built: "release/libballast_track.so" };

/// Has QEMU load the library, which is to listen at `socket`.
///
/// # Errors
/// The library is not built.
pub(crate) fn preload(command: &mut Command, socket: &Path) -> Result<(), LabError> {
    let library = TRACK_LIBRARY
        .find()
        .map_err(|Missing { looked_for }| LabError::TrackerMissing { looked_for })?;
    command.env("LD_PRELOAD", library).env(SOCKET_VARIABLE, socket);
    Ok(())
}
