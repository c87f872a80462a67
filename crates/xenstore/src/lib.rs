//! xenstore, the tree of keys that Xen's toolstack, its guests and Ballast share.
//!
//! Idea: in layers. [`Message`] and [`MessageBuffer`] are the wire format; [`Request`] and
//! [`Reply`] are the meaning of messages; [`XenstoreSession`] is one connection without I/O, and
//! [`GuardedWrite`] a transaction on it; [`Connection`] moves the bytes. Start reading at
//! `session.rs`.
//!
//! Source: Xen's `docs/misc/xenstore.txt` and `xs_wire.h`. Limits: only the requests of [`Request`]
//! are ever sent. Only the socket of xenstored is supported, not the ring of a guest.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "connection"))]
mod connection;
mod guarded_write;
mod message;
mod path;
mod request;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "connection"))]
pub use connection::{Connection, is_xenstore};
pub use guarded_write::{ATTEMPTS_MAX, GuardedWrite, WriteError};
pub use message::{Message, MessageBuffer, MessageError, MessageKind, PAYLOAD_MAX};
pub use path::{PATH_MAX, ParseStorePathError, StorePath};
pub use request::{Reply, Request, StoreError, TransactionId};
pub use session::{Answer, EVENTS_MAX, RequestId, WatchEvent, XenstoreSession};
