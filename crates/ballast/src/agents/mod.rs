//! The agents inside guests, as the daemon hears and answers them.
//!
//! Idea: a guest whose port has a socket gets a task, which speaks with its agent by
//! [`ballast_agent_host::Session`] and leaves the latest of what it says where the next tick finds it; an
//! emergency wakes the daemon before. The daemon waits for nobody, and a guest that lies, floods or falls
//! silent loses its own say and nobody else's.

mod follow;
mod latest;
mod rare;
mod service;

pub(crate) use latest::News;
pub(crate) use service::{Agents, Answer, EMERGENCY_PERIOD};
