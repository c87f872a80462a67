//! Traces of memory references, in the usual formats.
//!
//! Idea: [`TraceReader`] streams a file or standard input through three layers: bytes and their
//! decompression (`source.rs`); a [`Parser`], which accepts bytes in any pieces and does no I/O;
//! and blocks of plain `u64` references. The meaning of a reference is decided here once: by
//! default a value is the reference itself; with [`Options::page_size`] a value is an address, and
//! its page is the reference. Cost: constant memory, less than 1 MiB and what a decompressor needs
//! ([`WINDOW_LOG_MAX`] limits it). `lib/trace/benches/read.rs` measures the speed of each format.
//! Limits: damaged compression ends a trace, even with [`Options::skip_bad`]: behind the damage
//! nothing shows where a record begins.
#![forbid(unsafe_code)]

mod error;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod options;
mod parser;
mod reader;
mod source;

pub use error::{Fault, Position, TraceError};
pub use format::{Format, UnknownFormat};
pub use options::{Column, Options};
pub use parser::{ACCESS_BYTES_MAX, BLOCK_REFERENCES, CSV_COLUMNS_MAX, LINE_BYTES_MAX, Parser};
pub use reader::{Progress, TraceReader};
pub use source::{Compression, WINDOW_LOG_MAX};
