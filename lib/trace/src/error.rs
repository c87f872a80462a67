//! What can be wrong with a trace, said so that it can be found and put right.
//!
//! Idea: a [`Fault`] is what a parser knows (place, found, expected); a [`TraceError`] adds the
//! file and how many references were read before. What was found is shortened and escaped: a trace
//! is foreign bytes, and a message goes to a terminal.

use std::fmt;
use std::io;

use crate::format;
use crate::{Column, Compression, Format, WINDOW_LOG_MAX};

/// Most bytes of what was found that a message repeats.
const FOUND_BYTES_MAX: usize = 40;
/// Most columns of a header that a message lists.
const COLUMNS_LISTED_MAX: usize = 20;

/// Why a trace cannot be read, or not further.
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
    /// Nothing tells the format.
    #[error("{name}: its name does not tell the format; give --format: {}", format::list())]
    FormatUnknown {
        /// The file.
        name: String,
    },
    /// Nothing says the format of a stream, which has no name to tell it.
    #[error("{name}: give --format: {}", format::list())]
    FormatNotSaid {
        /// The stream, such as `standard input`.
        name: String,
    },
    /// Reading failed half-way.
    #[error("{name}: reading failed after {references} references: {source}")]
    Read {
        /// The file, or `standard input`.
        name: String,
        /// References read before.
        references: u64,
        /// Why.
        source: io::Error,
    },
    /// What is compressed is damaged, cut short, or not compressed so at all. Never skipped.
    #[error(
        "{name}: {compression} data damaged or cut short{} after {references} references: {source}",
        or_window(*compression)
    )]
    Decompress {
        /// The file, or `standard input`.
        name: String,
        /// How it is, or says it is, compressed.
        compression: Compression,
        /// References read before.
        references: u64,
        /// What the decompressor says.
        source: io::Error,
    },
    /// Something in the trace, or in the options for it, is wrong.
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
    /// A record is not what the format says. The only fault that can be skipped.
    #[error("{place}: found {found}, expected {expected}")]
    BadRecord {
        /// Where.
        place: Place,
        /// What stands there, shortened and escaped.
        found: String,
        /// What should.
        expected: String,
    },
    /// The header lacks the column.
    #[error("line 1: no column {column}; there are {columns}")]
    NoColumn {
        /// The one asked for.
        column: Column,
        /// Those there are.
        columns: String,
    },
    /// The header has several columns, and none was chosen.
    #[error("line 1: which column holds the references? choose with --column: {columns}")]
    ColumnNotSaid {
        /// Those there are.
        columns: String,
    },
    /// The header goes beyond the bounds of a row.
    #[error("line 1: the header is longer than {bytes_max} bytes or {columns_max} columns")]
    HeaderTooLong {
        /// Most bytes.
        bytes_max: usize,
        /// Most columns.
        columns_max: usize,
    },
    /// A column by name in lines that have no header.
    #[error("text has no header: --column takes a number from 1, found {column}")]
    ColumnNotANumber {
        /// The one asked for.
        column: Column,
    },
    /// A column where there are none.
    #[error("{format} has no columns: leave out --column")]
    NoColumns {
        /// The format.
        format: Format,
    },
}

/// Where in a trace, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a text format; of a CSV row, the one it begins at.
    Line(u64),
    /// A record of a binary format.
    Record(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(number) => write!(f, "line {number}"),
            Place::Record(number) => write!(f, "record {number}"),
        }
    }
}

/// What else may be wrong with data compressed so.
fn or_window(compression: Compression) -> String {
    match compression {
        Compression::Gzip => String::new(),
        Compression::Zstd => {
            format!(", or its window is above {} MiB,", (1_u64 << WINDOW_LOG_MAX) >> 20)
        }
    }
}

/// Foreign bytes as a message shows them: quoted, escaped, the end cut off.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let short = &bytes[..bytes.len().min(FOUND_BYTES_MAX)];
    let more = if short.len() < bytes.len() { "…" } else { "" };
    format!("`{}{more}`", String::from_utf8_lossy(short).escape_debug())
}

/// The columns of a header, for messages.
pub(crate) fn listed<'a>(columns: impl ExactSizeIterator<Item = &'a [u8]>) -> String {
    let more = columns.len().saturating_sub(COLUMNS_LISTED_MAX);
    let mut text = columns.take(COLUMNS_LISTED_MAX).map(shown).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}
