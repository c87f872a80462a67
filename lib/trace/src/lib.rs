//! Traces of memory references, in the formats people have them in.
//!
//! Idea: [`TraceReader`] streams a file or standard input through three layers: bytes and their
//! decompression (`source.rs`), a [`Parser`] that is pushed bytes in any pieces and does no I/O,
//! and blocks of plain `u64` references. What a reference means is decided here once: values stand
//! as they are, and with [`Options::page_size`] each is an address, divided down to its page. Cost:
//! memory is constant, less than 1 MiB and what a decompressor needs ([`WINDOW_LOG_MAX`] bounds
//! it). `lib/trace/benches/read.rs` measures the speed of each format. Limits: damaged compression
//! ends a trace, [`Options::skip_bad`] or not: nothing behind the damage can be trusted to begin at
//! a record.
#![forbid(unsafe_code)]

mod error;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod options;
mod parser;
mod reader;
mod source;

pub use error::{Fault, Place, TraceError};
pub use format::{Format, UnknownFormat};
pub use options::{Column, Options};
pub use parser::{ACCESS_BYTES_MAX, BLOCK_REFERENCES, CSV_COLUMNS_MAX, LINE_BYTES_MAX, Parser};
pub use reader::{Progress, TraceReader};
pub use source::{Compression, WINDOW_LOG_MAX};
