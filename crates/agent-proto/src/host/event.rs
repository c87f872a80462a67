//! What a session reports: its state, and the messages of its agent.

use ballast_model::{Bytes, MemoryRequest};

use super::validator::ImplausibleMessage;
use crate::wire::{Ages, RequestReason, ShrinkerOffer, ShrinkerResult, Statistics};

/// State of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentLink {
    /// No transport.
    Down,
    /// No answer yet.
    Greeting,
    /// The agent answers.
    Up,
    /// The agent has stopped answering.
    Silent,
    /// The agent and this host have no version in common.
    UnsupportedVersion,
}

/// What an agent says about itself in its hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The common version.
    pub version: u32,
    /// A number that is new for each start of the agent.
    pub instance: u64,
    /// Name and version of the agent.
    pub agent: String,
    /// The guest's kernel.
    pub system: String,
    /// The guest's page size.
    pub page: Bytes,
    /// What the agent can do.
    pub capabilities: Vec<String>,
    /// Its shrinkers.
    pub shrinkers: Vec<String>,
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// The agent answered.
    Up {
        /// The agent.
        agent: AgentIdentity,
        /// Whether the agent restarted, or its guest was restored, since the last answer.
        restarted: bool,
    },
    /// The agent and this host have no version in common.
    UnsupportedVersion {
        /// Newest version the agent speaks.
        version: u32,
        /// Oldest version the agent speaks.
        oldest: u32,
    },
    /// No message for [`super::SILENCE_MAX`]: the agent's last statistics are stale.
    Silent,
    /// This number of the agent's messages were lost.
    MessagesLost(u64),
    /// Statistics.
    Statistics {
        /// The guest's uptime.
        uptime_ms: u64,
        /// The statistics.
        statistics: Box<Statistics>,
    },
    /// Idle ages of memory.
    Ages(Ages),
    /// A request.
    Request {
        /// The request, capped at what the guest can have.
        request: MemoryRequest,
        /// Its reason.
        why: RequestReason,
    },
    /// Shrinkers work on an order: the balloon must wait.
    Shrinking {
        /// The order's number.
        number: u64,
        /// What each shrinker can give.
        offers: Vec<ShrinkerOffer>,
    },
    /// Shrinkers are done with an order.
    Shrunk {
        /// The order's number.
        number: u64,
        /// The total given.
        gave: Bytes,
        /// What each shrinker gave.
        given: Vec<ShrinkerResult>,
    },
    /// The agent could not carry out an order.
    Error(String),
    /// A rejected message.
    Implausible(ImplausibleMessage),
    /// Bytes that are not a message.
    Unreadable(String),
}
