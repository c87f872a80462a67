//! A mistake in a file, with its place.
//!
//! Idea: one line that an operator can act on and an editor can jump to:
//! `ballast.toml:12:1: unknown key `flor` in [guests.web]: did you mean `floor`?`
//! Limits: messages are cut at [`MESSAGE_CHARS_MAX`], since they may quote the document.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::locate::{self, KeyPath, Position};
use crate::{DOCUMENT_BYTES_MAX, suggest};

/// Longest message, in characters: it fits some forty known keys, and one terminal screen.
const MESSAGE_CHARS_MAX: usize = 1000;

/// A mistake in a TOML file: where, at which key, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    file: PathBuf,
    position: Option<Position>,
    key: String,
    message: String,
}

impl Error {
    /// A mistake found by the caller in the value of `key`, such as a floor above a ceiling.
    ///
    /// `key` is the path from the root, one name per step; a number selects an item of an array
    /// (`["guest", "2", "floor"]`). If the document does not have the key, because its value is a
    /// default, the place is that of the nearest enclosing table. `text` is the document that
    /// [`parse`](crate::parse) accepted.
    pub fn at(text: &str, file: &Path, key: &[&str], message: impl fmt::Display) -> Error {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let found = locate::find(text, key);
        let key = found.path.to_string();
        Error::new(file, found.position, key, &message.to_string())
    }

    /// The file named in the error.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The key concerned, such as `guests.web.floor`; empty for the document as a whole.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn too_long(file: &Path, len: usize) -> Error {
        let message = format!("{len} bytes long, expected at most {DOCUMENT_BYTES_MAX}");
        Error::new(file, None, String::new(), &message)
    }

    pub(crate) fn from_toml(text: &str, file: &Path, error: &toml::de::Error) -> Error {
        let span = error.span();
        let position = span.as_ref().map(|span| locate::position(text, span.start));
        let path = span.map(|span| locate::path_at(text, &span)).unwrap_or_default();
        let message = error.message();

        if let Some(unknown) = suggest::Unknown::read(message, "unknown field ") {
            let mut table = path.clone();
            table.pop_if_last_is(unknown.name);
            let place = in_table(&table);
            let name = locate::quote(unknown.name);
            let message = format!("unknown key `{name}`{place}: {}", unknown.advice("keys"));
            let key = table.join(unknown.name).to_string();
            return Error { key, ..Error::new(file, position, String::new(), &message) };
        }
        if let Some(name) = message.strip_prefix("missing field ") {
            let message = format!("missing key {name}{}", in_table(&path));
            return Error {
                key: path.to_string(),
                ..Error::new(file, position, String::new(), &message)
            };
        }
        if let Some(unknown) = suggest::Unknown::read(message, "unknown variant ") {
            let name = unknown.name.escape_debug();
            let message = format!("unknown value \"{name}\": {}", unknown.advice("values"));
            return Error::new(file, position, path.to_string(), &message);
        }
        Error::new(file, position, path.to_string(), message)
    }

    /// An error whose line repeats `key`, unless it is empty.
    fn new(file: &Path, position: Option<Position>, key: String, message: &str) -> Error {
        let mut line = if key.is_empty() { String::new() } else { format!("{key}: ") };
        line.extend(message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }));
        if let Some((cut, _)) = line.char_indices().nth(MESSAGE_CHARS_MAX) {
            line.truncate(cut);
            line.push('…');
        }
        Error { file: file.to_owned(), position, key, message: line }
    }
}

/// A mistake found by a check that has values but not their document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    key: Vec<String>,
    message: String,
}

impl Mistake {
    /// A mistake in the value of `key`, which is a path as in [`Error::at`].
    pub fn at(key: &[&str], message: impl fmt::Display) -> Mistake {
        let key = key.iter().map(|&name| name.to_owned()).collect();
        Mistake { key, message: message.to_string() }
    }

    /// The error with its place in `text`, the contents of `file`.
    pub fn in_file(self, text: &str, file: &Path) -> Error {
        let key: Vec<&str> = self.key.iter().map(String::as_str).collect();
        Error::at(text, file, &key, self.message)
    }
}

/// ` in [guests.web]`, or nothing at the root.
fn in_table(path: &KeyPath) -> String {
    if path.is_root() { String::new() } else { format!(" in [{path}]") }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(Position { line, column }) = self.position {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for Error {}
