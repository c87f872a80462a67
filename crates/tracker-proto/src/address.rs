//! The address of a tracker's socket, and who may connect to it.
//!
//! Idea: a socket with a path has an owner and a mode, and its folder's permissions decide who may
//! create one. An abstract name has neither: any process of the host may take it first, or connect
//! to it. So only paths are addresses.

use std::fmt;
use std::path::{Path, PathBuf};

/// The hypervisor's environment variable with the path of its tracker's socket.
pub const SOCKET_VARIABLE: &str = "BALLAST_TRACK_SOCKET";

/// The hypervisor's environment variable with the number of the user that the daemon runs as.
/// Without it only root and the hypervisor's own user may connect.
pub const USER_VARIABLE: &str = "BALLAST_TRACK_USER";

/// The address of a tracker's socket: a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackerAddress(PathBuf);

/// An address that is the name of an abstract socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbstractAddress(String);

impl TrackerAddress {
    /// The socket at `path`.
    pub fn new(path: impl Into<PathBuf>) -> TrackerAddress {
        TrackerAddress(path.into())
    }

    /// Parses the form of [`SOCKET_VARIABLE`].
    ///
    /// # Errors
    /// It begins with `@`, as names of abstract sockets are written.
    pub fn parse(text: &str) -> Result<TrackerAddress, AbstractAddress> {
        match text.strip_prefix('@') {
            Some(_) => Err(AbstractAddress(text.to_owned())),
            None => Ok(TrackerAddress::new(text)),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// For people. Whoever starts the hypervisor chooses the path, so characters that do not print are
/// escaped.
impl fmt::Display for TrackerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.to_string_lossy().escape_debug().fmt(f)
    }
}

impl fmt::Display for AbstractAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AbstractAddress(name) = self;
        write!(f, "{name:?} is an abstract socket, which has no owner and no mode: give a path")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_are_addresses() {
        let address = TrackerAddress::parse("/run/a").unwrap();
        assert_eq!((address.to_string().as_str(), address.path()), ("/run/a", Path::new("/run/a")));
        assert_eq!(TrackerAddress::new("/a\n").to_string(), r"/a\n");
        let refused = TrackerAddress::parse("@guest").unwrap_err().to_string();
        assert!(refused.contains("\"@guest\" is an abstract socket"), "{refused}");
    }
}
