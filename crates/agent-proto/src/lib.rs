//! The protocol between the agent inside a guest and the host, and the rules of both sides.
//!
//! - [`wire`]: frames, messages, and the statistics in them.
//! - [`host`]: the host's side of a conversation, as a state machine without I/O, with a validator
//!   that rejects implausible messages.
//! - [`request`]: when a guest asks for memory, offers memory, or declares an emergency. The agent
//!   uses these rules in a real guest, the simulator in a simulated one.
//!
//! Begin here: `wire/frame.rs`, then `wire/message.rs`, `host/session.rs`, `request/linux.rs`.
//! Limits: no clock and no I/O; callers pass in the bytes and the time.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

pub mod host;
pub mod request;
pub mod wire;
