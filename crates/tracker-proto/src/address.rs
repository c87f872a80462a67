//! The address of a tracker's socket.

use std::fmt;
use std::path::PathBuf;

/// The hypervisor's environment variable with the address of its tracker.
pub const SOCKET_VARIABLE: &str = "BALLAST_TRACK_SOCKET";

/// The address of a tracker's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackerAddress {
    /// A path.
    Path(PathBuf),
    /// The name of an abstract socket.
    Abstract(String),
}

impl TrackerAddress {
    /// Parses the form of [`SOCKET_VARIABLE`]: a path, or a name after `@`.
    pub fn parse(text: &str) -> TrackerAddress {
        match text.strip_prefix('@') {
            Some(name) => TrackerAddress::Abstract(name.to_owned()),
            None => TrackerAddress::Path(text.into()),
        }
    }
}

impl fmt::Display for TrackerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrackerAddress::Path(path) => path.display().fmt(f),
            TrackerAddress::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for (text, address) in [
            ("@guest", TrackerAddress::Abstract("guest".to_owned())),
            ("/run/a", TrackerAddress::Path("/run/a".into())),
        ] {
            assert_eq!(TrackerAddress::parse(text), address);
            assert_eq!(address.to_string(), text);
        }
    }
}
