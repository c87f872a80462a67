//! The program inside a guest.
//!
//! Idea: it reports what the host cannot see ([`linux`]), asks for memory before the guest has to
//! reclaim ([`asker`]), and makes programs that can do without some memory give it back ([`shrink`]).
//! One thread and one loop ([`run`]) around a conversation without I/O ([`conversation`]), and one
//! thread more for orders to shrink; the way to the host is behind a trait ([`transport`]).
//!
//! Cost: docs/benchmarks. Limits: Linux; it decides nothing about the guest's size.

#![forbid(unsafe_code)]

pub mod asker;
pub mod cli;
pub mod config;
pub mod conversation;
pub mod linux;
pub mod once;
pub mod run;
pub mod shrink;
pub mod transport;
