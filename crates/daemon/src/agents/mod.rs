//! The daemon's side of the conversation with agents inside guests.
//!
//! Idea: each guest with an agent gets a task. The task runs a
//! [`ballast_agent_proto::host::AgentSession`] and stores the latest state for the next tick; an
//! emergency wakes the daemon at once. The daemon never waits for an agent. An agent that lies,
//! floods or falls silent harms only its own guest, and no other process than the guest's
//! hypervisor can speak for it.

mod connection_limiter;
mod conversation;
mod follow;
mod hybrid_socket;
mod latest;
mod order;
mod service;
mod transport;

pub use conversation::Conversation;
pub(crate) use latest::AgentNotice;
pub use order::Answer;
pub(crate) use service::Agents;
