//! A path in the store.
//!
//! Idea: what xenstored would refuse is refused here, with a reason. So every path that is sent is
//! well-formed.
//! Source: Xen's `docs/misc/xenstore.txt`. Limits: no special watches (`@introduceDomain`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Longest path, in bytes; `XENSTORE_ABS_PATH_MAX`.
pub const PATH_MAX: usize = 3072;
/// Longest path without a slash at its beginning, in bytes; `XENSTORE_REL_PATH_MAX`.
const RELATIVE_MAX: usize = 2048;

/// A path, such as `/local/domain/3/memory/target`; without a slash at its beginning it is below
/// the client's own domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StorePath(String);

/// Why a text is not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseStorePathError {
    /// It is too long.
    #[error(
        "a path of {0} bytes: expected at most {PATH_MAX}, or {RELATIVE_MAX} without a slash at its beginning"
    )]
    Long(usize),
    /// A part of it is empty.
    #[error("a path with an empty part: expected one slash between parts, and none at the end")]
    EmptyPart,
    /// It has a character that is not allowed.
    #[error("a path with {0:?}: expected letters, digits, `-`, `/`, `_` and `@`")]
    Character(char),
}

impl StorePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for StorePath {
    type Err = ParseStorePathError;

    fn from_str(text: &str) -> Result<StorePath, ParseStorePathError> {
        let parts = text.strip_prefix('/');
        if text.len() > parts.map_or(RELATIVE_MAX, |_| PATH_MAX) {
            return Err(ParseStorePathError::Long(text.len()));
        }
        let is_allowed = |it: char| it.is_ascii_alphanumeric() || "-/_@".contains(it);
        if let Some(other) = text.chars().find(|it| !is_allowed(*it)) {
            return Err(ParseStorePathError::Character(other));
        }
        // The root is a path without parts.
        if text != "/" && parts.unwrap_or(text).split('/').any(str::is_empty) {
            return Err(ParseStorePathError::EmptyPart);
        }
        Ok(StorePath(text.to_owned()))
    }
}
