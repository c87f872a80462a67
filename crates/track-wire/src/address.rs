//! Where a tracker listens.

use std::fmt;
use std::path::PathBuf;

/// The environment variable of the hypervisor that says where its tracker listens.
pub const SOCKET_VARIABLE: &str = "BALLAST_TRACK_SOCKET";

/// A socket of the tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// In the file system.
    Path(PathBuf),
    /// A name in the network namespace, of no file system.
    Abstract(String),
}

impl Address {
    /// An address as [`SOCKET_VARIABLE`] has it: a path, or a name after `@`.
    pub fn parse(text: &str) -> Address {
        match text.strip_prefix('@') {
            Some(name) => Address::Abstract(name.to_owned()),
            None => Address::Path(text.into()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => path.display().fmt(f),
            Address::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_they_are_typed() {
        for (text, address) in [
            ("@guest", Address::Abstract("guest".to_owned())),
            ("/run/a", Address::Path("/run/a".into())),
        ] {
            assert_eq!(Address::parse(text), address);
            assert_eq!(address.to_string(), text);
        }
    }
}
