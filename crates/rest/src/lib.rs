//! The common part of backends for hypervisors with a REST API on a Unix socket: Cloud Hypervisor,
//! Firecracker.
//!
//! Idea: a hypervisor's crate defines the calls of a sample and of an order, and interprets the
//! answers ([`RestGuest`], without I/O). This crate finds the sockets, makes the calls, and is the
//! `Backend` for all guests of one kind ([`RestGuests`]).
//!
//! ```text
//! call      a call and its answer, without I/O
//! client    the calls of one exchange, by HTTP over a Unix socket
//! pattern   the sockets that the configuration names, and their guests' names
//! guest     the interface that a hypervisor's crate implements
//! probe     one reading of a guest, for a diagnosis
//! slot      one guest and the exchange with it
//! guests    all guests of one kind, as a `Backend`
//! ```
//!
//! Cost: one connection per guest and sample, some 100 µs; no thread and no task between samples.
//! Limits: HTTP/1.1 only; an answer has at most [`BODY_BYTES_MAX`].

#![forbid(unsafe_code)]

mod call;
mod client;
mod guest;
mod guests;
mod pattern;
mod probe;
mod slot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use call::{Answer, BODY_BYTES_MAX, Call, Method, shown};
pub use client::{CallError, exchange};
pub use guest::{HypervisorKind, RestGuest};
pub use guests::{RestConfig, RestGuests};
pub use pattern::{FoundSocket, SocketPattern, SocketPatternError};
pub use probe::probe_guest;
