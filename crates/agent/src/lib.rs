//! The agent: a program inside a guest.
//!
//! It reports statistics that the host cannot see ([`linux`]), asks for memory before the guest has
//! to reclaim ([`requester`]), and makes caches give memory back ([`shrink`]). One thread runs a
//! loop ([`run`]) around a conversation without I/O ([`conversation`]); a second thread carries out
//! orders to shrink. The connection to the host is behind a trait ([`transport`]).
//!
//! Begin here: `run.rs`, then `conversation.rs`, `requester.rs`, `shrink/mod.rs`.
//! Cost: `docs/benchmarks`. Limits: Linux only; the host decides the guest's size.

#![forbid(unsafe_code)]

mod byte_stream;
pub mod cli;
pub mod config;
pub mod conversation;
pub mod linux;
pub mod once;
pub mod requester;
pub mod run;
pub mod shrink;
pub mod transport;
mod xenstore;
