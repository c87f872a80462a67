//! Reads TOML files strictly.
//!
//! Idea: an error in a file names its place (`file:line:column`), its key (`guests.web.floor`),
//! what was expected, and for an unknown key the nearest known one. Types refuse unknown keys with
//! `#[serde(deny_unknown_fields)]`; checks across several values attach their own message to a key
//! with [`Error::at`], or with [`Mistake::at`] where they do not have the document.
//!
//! Cost: one parse; a second one, for the place, only after an error.
//!
//! Limits: pure, so the caller reads the file; at most [`DOCUMENT_BYTES_MAX`] bytes. Only the first
//! error is reported. Inside untagged, flattened and internally tagged types serde loses the place:
//! there the error names the nearest enclosing key.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod duration;
mod error;
mod locate;
mod nearest;
mod suggest;

use std::path::Path;

use serde::de::DeserializeOwned;

pub use error::{Error, Mistake};
pub use nearest::nearest;

/// Longest document accepted, in bytes. A host with 10,000 guests, each with its own table of some
/// ten short lines, needs less than 3 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// Reads `text`, the contents of `file`, as a `T`. `file` serves only to name it in errors.
///
/// # Errors
///
/// The first mistake in `text`, with its place, its key and what was expected.
pub fn parse<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, Error> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Err(Error::too_long(file, text.len()));
    }
    // A byte order mark is accepted; columns are counted without it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    toml::from_str(text).map_err(|error| Error::from_toml(text, file, &error))
}

#[cfg(test)]
mod tests;
