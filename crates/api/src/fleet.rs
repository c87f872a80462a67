//! What the daemon's page shows of the fleet that the host is in.
//!
//! Idea: the daemon knows nothing of fleets. It passes on the answers of the program
//! `ballast-fleet`, which are what the fleet's commands print with `--json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::API_VERSION;

/// Answer to `GET /v1/fleet`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetReply {
    /// Version of this format.
    pub api_version: u32,
    /// What to do where there is no fleet to show.
    pub hint: Option<String>,
    /// As `ballast fleet status --json` prints it; `null`: there is no fleet.
    pub status: Option<Value>,
    /// As `ballast fleet plan --json` prints it; `null`: there is no plan.
    pub plan: Option<Value>,
}

impl FleetReply {
    /// The reply with a fleet and its latest plan.
    pub fn of(status: Value, plan: Option<Value>) -> FleetReply {
        FleetReply { api_version: API_VERSION, hint: None, status: Some(status), plan }
    }

    /// The reply without a fleet: `hint` says what to do.
    pub fn none(hint: impl Into<String>) -> FleetReply {
        FleetReply { api_version: API_VERSION, hint: Some(hint.into()), status: None, plan: None }
    }
}
