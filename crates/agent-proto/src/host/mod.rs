//! The host's side of the conversation with a guest's agent.
//!
//! [`AgentSession`] is a state machine without I/O: the caller passes in bytes, transport events
//! and the time, and takes out bytes to send, events, and the time of the next call. Every message
//! passes the [`MessageValidator`] first: a guest that lies, floods, repeats messages or turns its
//! clock back loses those messages and affects no other guest.
//!
//! Limits: one connection at a time; queues are bounded and drop the oldest entries.

mod convert;
mod event;
mod session;
mod validator;

pub use convert::{agent_report, guest_stats};
pub use event::{AgentEvent, AgentIdentity, AgentLink};
pub use session::{
    AgentSession, BYTES_PER_SECOND_MAX, EVENTS_MAX, HEARTBEAT_PERIOD, HELLO_PERIOD, SILENCE_MAX,
    SessionSettings, TRANSMITS_MAX,
};
pub use validator::{HostFacts, ImplausibleMessage, MessageValidator};
