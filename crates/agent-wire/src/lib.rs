//! What the agent inside a guest and the host say to each other.
//!
//! Idea: [`frame`] cuts a stream that loses bytes into payloads, [`message`] says what a payload
//! means, [`statistics`] has the figures a guest reports of itself. Payloads are JSON, so that whoever
//! reads one without knowing all of it still understands the rest; `docs/agent-protocol.md` is enough
//! to write either side anew, `vectors/` has frames to try it with.
//!
//! Source: decision 9. Limits: no clock, no I/O; the caller pushes the bytes it read, in pieces of
//! any size. Every frame, text and list has a named bound, checked in both directions; whether figures
//! are likely is for `ballast-agent-host` to judge.

#![forbid(unsafe_code)]

pub mod frame;
pub mod message;
pub mod statistics;

pub use frame::{FrameError, FrameReader, PAYLOAD_BYTES_MAX};
pub use message::{
    Balloon, Given, GuestFrame, GuestMessage, HostFrame, HostMessage, Kind, MessageError, Offer,
    Outcome, Rule, VERSION, VERSION_OLDEST, Why, capability,
};
pub use statistics::{AgeGroup, Ages, Counters, Memory, Pressure, Stall, Statistics, Watermarks};

/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "org.ballast.agent";
/// The port over `AF_VSOCK` at which a host listens for its guests' agents.
pub const VSOCK_PORT: u32 = 9_873;
