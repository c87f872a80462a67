//! The journal: what the daemon observed and decided, and what operators commanded, on disk.
//!
//! Idea: one SQLite file (WAL), one row per tick and per event, one transaction per tick. Of every
//! sixty ticks one is written whole, the others as their difference from that one (`whole.rs`).
//! [`Journal`] writes on its own thread behind a bounded queue and never delays a decision;
//! [`Reader`] reads with or without a running daemon. Begin here: [`Tick`], then `writer.rs`.
//!
//! Rows are the model's types as JSON by serde (feature `serde` of `ballast-model`), with a
//! version number, [`RECORD_FORMAT`]. Rationale: `docs/decisions/0005-journal.md`.
//!
//! Limits: `kill -9` loses nothing that SQLite accepted; a power failure loses everything after
//! the last checkpoint. Spans are in nanoseconds (up to 584 years), wall-clock times in
//! milliseconds. Rows are ordered by number, never by a clock.

#![forbid(unsafe_code)]

mod aside;
mod codec;
mod curves;
mod delta;
mod entry;
mod error;
mod export;
mod journal;
mod latest;
mod lock;
mod reader;
mod retention;
mod row;
mod schema;
mod seek;
mod tree;
mod whole;
mod writer;

pub use aside::{ASIDE_MAX, MovedAside};
pub use entry::{
    Config, Entry, EntryContent, Event, RECORD_FORMAT, RECORD_FORMAT_WHOLE, Session, Start, Tick,
    TickEntry, wall_ms,
};
pub use error::JournalError;
pub use export::EXPORT_FORMAT;
pub use journal::{Journal, JournalStatus, QUEUE_MAX};
pub use latest::{JournalTail, Latest};
pub use reader::{Entries, Info, Range, Reader};
pub use retention::JournalConfig;
pub use schema::FORMAT;
pub use seek::{Place, Seek};
pub use whole::DELTAS_MAX;
pub use writer::Writer;
