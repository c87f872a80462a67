//! Commands to the daemon, and its replies.

use std::fmt::Display;

use ballast_model::ModeChoice;
use serde::{Deserialize, Serialize};

use crate::API_VERSION;
use crate::Coded;

/// Body of `POST /v1/policy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The policy's name, as in `ballast policy list`.
    pub policy: String,
}

/// Body of `POST /v1/mode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetMode {
    /// The mode: `balance` or `observe`.
    pub mode: String,
}

/// Answer to `GET /v1/mode`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModeReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The mode in force: `balance` or `observe`.
    pub mode: String,
    /// The mode in the configuration file: `balance` or `observe`.
    pub configured: String,
}

impl From<ModeChoice> for ModeReply {
    fn from(choice: ModeChoice) -> Self {
        ModeReply {
            api_version: API_VERSION,
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
    /// Memory to keep free, in bytes, at least 1.
    pub size_bytes: u64,
    /// How long to keep it free, in seconds, 1 to 86,400. The reservation ends earlier if the guest
    /// appears.
    pub lasts_s: u64,
}

/// Answer to a command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The new state, a sentence for people.
    pub message: String,
}

impl CommandReply {
    /// A reply with `message`.
    pub fn new(message: impl Into<String>) -> Self {
        CommandReply { api_version: API_VERSION, message: message.into() }
    }
}

/// Answer to a request that was refused, with an HTTP status of 400 or above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// What is wrong, and what to do.
    pub error: Coded,
    /// The known name that is closest to an unknown one in the request; `null`: no name was
    /// unknown, or none is close.
    pub nearest: Option<String>,
}

impl ErrorReply {
    /// A refusal with its code and sentence.
    pub fn new(code: &str, text: impl Display) -> Self {
        ErrorReply { api_version: API_VERSION, error: Coded::new(code, text), nearest: None }
    }
}
