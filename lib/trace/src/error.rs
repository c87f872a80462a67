//! What can be wrong with a trace, in messages by which the user can find the fault and mend it.
//!
//! Idea: a [`Fault`] is what a parser knows: the place, what it found, and what it expected. A
//! [`TraceError`] adds the file and the number of references read before. What the parser found is
//! shortened and escaped: a trace comes from elsewhere, and a message goes to a terminal.

use std::fmt;
use std::io;

use crate::format;
use crate::{Column, Compression, Format, WINDOW_LOG_MAX};

/// Most bytes of a faulty text that a message repeats.
const FOUND_BYTES_MAX: usize = 40;
/// Most columns of a header that a message lists.
const COLUMNS_LISTED_MAX: usize = 20;

/// Why a trace cannot be read, or cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{name}: cannot be opened: {source}")]
    Open {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The name does not show the format.
    #[error("{name}: its name does not tell the format; give --format: {}", format::list())]
    FormatUnknown {
        /// The file.
        name: String,
    },
    /// The format of a stream was not given, and a stream has no file name to show it.
    #[error("{name}: give --format: {}", format::list())]
    FormatNotSpecified {
        /// The stream, such as `standard input`.
        name: String,
    },
    /// Reading failed midway.
    #[error("{name}: reading failed after {references} references: {source}")]
    Read {
        /// The file, or `standard input`.
        name: String,
        /// References read before.
        references: u64,
        /// Why.
        source: io::Error,
    },
    /// The compressed data is damaged or cut short, or has another format. Never skipped.
    #[error(
        "{name}: {compression} data damaged or cut short{} after {references} references: {source}",
        or_window(*compression)
    )]
    Decompress {
        /// The file, or `standard input`.
        name: String,
        /// How it is compressed, by its name or its first bytes.
        compression: Compression,
        /// References read before.
        references: u64,
        /// The decompressor's message.
        source: io::Error,
    },
    /// Something in the trace is wrong, or does not fit the options.
    #[error("{name}: {fault}; references read before it: {references}")]
    Fault {
        /// The file, or `standard input`.
        name: String,
        /// What is wrong.
        fault: Fault,
        /// References read before.
        references: u64,
    },
    /// The options do not fit the format.
    #[error("{name}: {fault}")]
    Options {
        /// The file, or `standard input`.
        name: String,
        /// What does not fit.
        fault: Fault,
    },
}

/// What a parser finds wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A record does not have the form of its format. The only fault that can be skipped.
    #[error("{position}: found {found}, expected {expected}")]
    BadRecord {
        /// Where.
        position: Position,
        /// The text at this place, shortened and escaped.
        found: String,
        /// What is expected there.
        expected: String,
    },
    /// The header lacks the column.
    #[error("line 1: no column {column}; there are {columns}")]
    NoColumn {
        /// The wanted column.
        column: Column,
        /// The columns of the header.
        columns: String,
    },
    /// The header has several columns, and the options choose none.
    #[error("line 1: which column holds the references? choose with --column: {columns}")]
    ColumnNotSpecified {
        /// The columns of the header.
        columns: String,
    },
    /// The header exceeds the limits of a row.
    #[error("line 1: the header is longer than {bytes_max} bytes or {columns_max} columns")]
    HeaderTooLong {
        /// Most bytes of a row.
        bytes_max: usize,
        /// Most columns of a row.
        columns_max: usize,
    },
    /// A column given by name, in a text format without a header.
    #[error("text has no header: --column takes a number from 1, found {column}")]
    ColumnNotANumber {
        /// The wanted column.
        column: Column,
    },
    /// A column is given, but the format has none.
    #[error("{format} has no columns: leave out --column")]
    NoColumns {
        /// The format.
        format: Format,
    },
}

/// A place in a trace, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line of a text format; for a row of CSV, its first line.
    Line(u64),
    /// A record of a binary format.
    Record(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(number) => write!(f, "line {number}"),
            Position::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// A further possible fault of data with this compression, for the message.
fn or_window(compression: Compression) -> String {
    match compression {
        Compression::Gzip => String::new(),
        Compression::Zstd => {
            format!(", or its window is above {} MiB,", (1_u64 << WINDOW_LOG_MAX) >> 20)
        }
    }
}

/// Bytes of a trace for a message: quoted, escaped, and cut to [`FOUND_BYTES_MAX`].
pub(crate) fn shown(bytes: &[u8]) -> String {
    let short = &bytes[..bytes.len().min(FOUND_BYTES_MAX)];
    let more = if short.len() < bytes.len() { "…" } else { "" };
    format!("`{}{more}`", String::from_utf8_lossy(short).escape_debug())
}

/// The columns of a header, for a message.
pub(crate) fn listed<'a>(columns: impl ExactSizeIterator<Item = &'a [u8]>) -> String {
    let more = columns.len().saturating_sub(COLUMNS_LISTED_MAX);
    let mut text = columns.take(COLUMNS_LISTED_MAX).map(shown).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}
