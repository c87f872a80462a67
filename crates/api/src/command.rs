//! What the daemon can be told, and its answers.

use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::version;

/// Body of `POST /v1/guests/{id}/set`. A field that is absent or `null` leaves the bound as it is;
/// at least one must be present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetGuest {
    /// New guaranteed minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_bytes: Option<u64>,
    /// New largest allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bytes: Option<u64>,
    /// New weight, 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u32>,
    /// New priority: when memory is short, guests of lower priority go without first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// New objective, in misses a second; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss_rate_max_per_s: Option<u64>,
    /// Whether Ballast may move the guest's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<bool>,
}

impl SetGuest {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == SetGuest::default()
    }
}

/// Body of `POST /v1/policy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The policy's name.
    pub policy: String,
}

/// Answer to every command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReply {
    /// Version of the format.
    pub api_version: u32,
    /// What is now the case, for people.
    pub message: String,
}

impl CommandReply {
    /// The answer saying `message`.
    pub fn new(message: impl Into<String>) -> Self {
        CommandReply { api_version: version(), message: message.into() }
    }
}

/// Answer to every request that was refused, with an HTTP status of 400 or above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// Version of the format.
    pub api_version: u32,
    /// What is wrong and what to do.
    pub error: Coded,
    /// The known name nearest to the unknown one asked for.
    pub nearest: Option<String>,
}

impl ErrorReply {
    /// The refusal `code` with its sentence.
    pub fn new(code: &str, text: impl ToString) -> Self {
        ErrorReply { api_version: version(), error: Coded::new(code, text), nearest: None }
    }
}
