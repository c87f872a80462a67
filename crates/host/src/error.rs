//! Errors of reading kernel files.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Longest excerpt of a bad line shown in an error, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// Why a file could not be read or parsed. Names the path and, for a parse error, the line.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is longer than the limit.
    #[error("{path}: longer than {max} bytes: expected a short kernel file", path = path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        max: usize,
    },
    /// A line is malformed.
    #[error("{path} line {line}: `{found}`: expected {expected}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The line's text, shortened.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A required line is missing.
    #[error("{path}: no line `{name}`: expected {expected}", path = path.display())]
    MissingLine {
        /// The file.
        path: PathBuf,
        /// What the line begins with.
        name: &'static str,
        /// What should be there.
        expected: &'static str,
    },
}

impl ReadError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            ReadError::Io { path, .. }
            | ReadError::TooLong { path, .. }
            | ReadError::Malformed { path, .. }
            | ReadError::MissingLine { path, .. } => path,
        }
    }

    /// Whether it is this error of the system.
    pub(crate) fn is(&self, code: Errno) -> bool {
        matches!(self, ReadError::Io { source, .. } if Errno::from_io_error(source) == Some(code))
    }

    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        ReadError::Io { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn malformed(
        path: &Path,
        line: usize,
        found: &[u8],
        expected: &'static str,
    ) -> Self {
        let found = String::from_utf8_lossy(found.get(..4 * SHOWN_CHARS_MAX).unwrap_or(found))
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(SHOWN_CHARS_MAX)
            .collect();
        ReadError::Malformed { path: path.to_owned(), line, found, expected }
    }

    pub(crate) fn missing_line(path: &Path, name: &'static str, expected: &'static str) -> Self {
        ReadError::MissingLine { path: path.to_owned(), name, expected }
    }
}
