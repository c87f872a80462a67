//! Commands to the daemon, and its replies.

use ballast_model::ModeChoice;
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::version;

/// Body of `POST /v1/policy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The policy's name.
    pub policy: String,
}

/// Body of `POST /v1/mode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetMode {
    /// The mode's name: `balance` or `observe`.
    pub mode: String,
}

/// Answer to `GET /v1/mode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModeReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// The mode in force.
    pub mode: String,
    /// What the configuration file says.
    pub configured: String,
}

impl From<ModeChoice> for ModeReply {
    fn from(choice: ModeChoice) -> Self {
        ModeReply {
            api_version: version(),
            mode: choice.in_force().to_string(),
            configured: choice.configured().to_string(),
        }
    }
}

/// Body of `POST /v1/reservations/{id}/set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// Memory to keep free, in bytes, above 0.
    pub size_bytes: u64,
    /// How long at most, in seconds, 1 to 86,400; it ends earlier when the guest appears.
    pub lasts_s: u64,
}

/// Reply to a command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// The new state, for people.
    pub message: String,
}

impl CommandReply {
    /// A reply with `message`.
    pub fn new(message: impl Into<String>) -> Self {
        CommandReply { api_version: version(), message: message.into() }
    }
}

/// Reply to a refused request, with an HTTP status of 400 or above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// What is wrong, and what to do.
    pub error: Coded,
    /// The known name closest to the unknown one.
    pub nearest: Option<String>,
}

impl ErrorReply {
    /// A refusal with its code and sentence.
    pub fn new(code: &str, text: impl ToString) -> Self {
        ErrorReply { api_version: version(), error: Coded::new(code, text), nearest: None }
    }
}
