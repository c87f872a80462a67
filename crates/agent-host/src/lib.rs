//! The host's side of the conversation with a guest's agent.
//!
//! Idea: a state machine without I/O ([`Session`]) that is handed bytes, events of the transport and
//! the time, and gives back bytes to send, events, and when it wants to be called next. What the
//! agent says goes through a gate ([`Gate`]) first: a guest may lie, flood, repeat itself or turn back
//! its clock, and then loses its own say and nobody else's.
//!
//! Limits: one connection at a time; events that nobody takes are bounded, the oldest go first.

#![forbid(unsafe_code)]

mod gate;
mod report;
mod session;

pub use gate::{Gate, Implausible, Known};
pub use report::{agent_report, guest_stats};
pub use session::{
    Agent, BYTES_PER_SECOND_MAX, EVENTS_MAX, Event, HEARTBEAT_PERIOD, HELLO_PERIOD, Link,
    SILENCE_MAX, Session, Settings, TRANSMITS_MAX,
};
