//! Frames and messages between agent and host.
//!
//! [`frame`] splits a lossy byte stream into payloads, [`message`] defines the payloads,
//! [`statistics`] defines what a guest reports about its memory. Payloads are JSON, so that a
//! reader can ignore fields it does not know. `docs/agent-protocol.md` suffices to write either
//! side; `vectors/` has test streams. Decision 9 has the reasons.
//!
//! Limits: every frame, text and list has a named bound, checked when sending and when receiving.
//! Whether values are plausible is checked by [`crate::host::MessageValidator`].

pub mod frame;
pub mod message;
pub mod statistics;

pub use frame::{FrameError, FrameReader, PAYLOAD_BYTES_MAX};
pub use message::{
    BalloonActivity, GuestFrame, GuestGreeting, GuestMessage, HostFrame, HostMessage, MessageError,
    RequestOutcome, RequestReason, RequestRule, ShrinkerOffer, ShrinkerResult, VERSION,
    VERSION_OLDEST, WireRequestKind, capability,
};
pub use statistics::{
    AgeGroup, Ages, KernelCounters, MemorySizes, Pressure, Stall, Statistics, Watermarks,
};

/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "org.ballast.agent";
/// The `AF_VSOCK` port on which a host listens for agents.
pub const VSOCK_PORT: u32 = 9_873;
