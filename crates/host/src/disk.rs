//! Room on a disk.

use std::path::Path;

use ballast_model::Bytes;
use rustix::io::Errno;

use crate::ReadError;

/// Most folders climbed from a path that does not exist yet to one that does.
const CLIMB_MAX: usize = 64;

/// Space that an ordinary user may still write where `path` is or, if it does not exist yet, would
/// be created.
///
/// # Errors
/// Neither the path nor a folder above it can be asked.
pub fn disk_free(path: &Path) -> Result<Bytes, ReadError> {
    // A relative path climbs to the empty one, which means the working folder.
    let asked =
        |at: &Path| if at.as_os_str().is_empty() { Path::new(".").into() } else { at.to_owned() };
    for at in path.ancestors().take(CLIMB_MAX) {
        match rustix::fs::statvfs(asked(at)) {
            Ok(room) => return Ok(Bytes::new(room.f_bavail.saturating_mul(room.f_frsize))),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(e) => return Err(ReadError::io(at, e)),
        }
    }
    Err(ReadError::io(path, Errno::NOENT))
}
