//! Page tracking from outside of the hypervisor.
//!
//! Idea: a [`Client`] steers the library inside ([`ballast_track_wire`] is what they say to each other),
//! and reads what was touched. [`Tracking`] finds the guest's memory, and makes intervals of it. Where there
//! is no library, [`referenced()`] tells a total. [`DataTlb`] and [`ActivityReader`] read what tells phases while
//! nobody tracks.
//!
//! Limits: blocks for as long as a request takes; each tracked guest wants a thread of its own, and to be
//! heard of several times a second ([`HEARTBEAT_EVERY`]).

mod client;
mod error;
mod find;
mod place;
mod referenced;
mod regions;
mod ring_file;
mod signals;
mod tracking;

pub use client::{Client, HEARTBEAT_EVERY, Revoked};
pub use error::TrackerError;
pub use find::{Trackable, memory_paths_at, trackable, trackable_at};
pub use referenced::{clear_referenced, referenced};
pub use regions::{MemoryFile, check_shared, memory_files, memory_files_of};
pub use signals::{Activity, ActivityReader, DataTlb, parse_stat, parse_status};
pub use tracking::{Observed, TOUCHES_MAX, Tracking, Watching};
