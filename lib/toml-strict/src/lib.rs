//! TOML files read strictly.
//!
//! Idea: an operator's mistake is answered with its place (`file:line:column`), its key
//! (`guests.web.floor`), what was expected, and for an unknown key the nearest known one. Types
//! refuse unknown keys with `#[serde(deny_unknown_fields)]`; checks across values attach their own
//! message to a key with [`Error::at`].
//!
//! Cost: one parse; a second one, for the place, only when there is an error.
//!
//! Limits: pure, so callers read the file; at most [`DOCUMENT_BYTES_MAX`] bytes. The first error is
//! reported, not all. Inside untagged, flattened and internally tagged types serde forgets the
//! place: there the error names the nearest enclosing key.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod duration;
mod error;
mod locate;
mod nearest;
mod suggest;

use std::path::Path;

use serde::de::DeserializeOwned;

pub use error::Error;
pub use nearest::nearest;

/// Longest document that is read, in bytes. A host with 10,000 guests, each with its own table of
/// some ten short lines, stays below 3 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// Reads `text`, the contents of `file`, as a `T`. `file` is only named in errors.
///
/// # Errors
///
/// The first mistake in `text`, with its place, its key and what was expected.
pub fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, Error> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(Error::too_long(file, text.len()));
    }
    // A byte-order mark is not a mistake worth stopping for; columns then count without it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    toml::from_str(text).map_err(|error| Error::from_toml(text, file, &error))
}

#[cfg(test)]
mod tests;
