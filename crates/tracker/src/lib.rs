//! Page tracking from outside of the hypervisor.
//!
//! Idea: a [`Client`] steers the library inside ([`ballast_track_wire`] is what they say to each other),
//! and reads what was touched.
//!
//! Limits: blocks for as long as a request takes; each tracked guest wants a thread of its own, and to be
//! heard of several times a second ([`HEARTBEAT_EVERY`]).

mod client;
mod error;
mod ring_file;

pub use client::{Client, HEARTBEAT_EVERY, Revoked};
pub use error::TrackerError;
