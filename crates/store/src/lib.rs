//! The journal: everything the daemon saw, decided, did and was told, on disk.
//!
//! Idea: one SQLite file (WAL), one row per tick and per event, one transaction per tick. A row holds
//! the whole snapshot and the whole plan, so that any moment can be explained and replayed from its
//! row alone. [`Journal`] writes on a thread of its own behind a bounded queue and never makes a
//! decision wait; [`Reader`] reads beside a running daemon or without one.
//!
//! Record formats live in [`record`], carry a version, and convert to and from the model without
//! loss. Why it is made so: `docs/decisions/0005-journal.md`.
//!
//! Limits: what is on disk survives `kill -9` up to the last tick handed to SQLite; after a power
//! failure up to the last checkpoint. Spans are kept in nanoseconds up to 584 years, wall-clock time
//! in milliseconds. Rows are ordered by their number, never by a clock.

#![forbid(unsafe_code)]

mod codec;
mod curves;
mod entry;
mod error;
mod export;
mod journal;
mod reader;
pub mod record;
mod retention;
mod schema;
mod writer;

pub use entry::{Config, Entry, Event, Session, Start, Tick, TickEntry, What, wall_ms};
pub use error::JournalError;
pub use export::EXPORT_FORMAT;
pub use journal::{Journal, JournalStatus, QUEUE_MAX};
pub use reader::{Entries, Info, Latest, Range, Reader};
pub use retention::JournalConfig;
pub use schema::FORMAT;
pub use writer::Writer;
