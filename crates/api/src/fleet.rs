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
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// What to do if there is no fleet to show, a sentence for people; `null`: there is one.
    pub hint: Option<String>,
    /// What `ballast fleet status --json` prints; `null`: there is no fleet to show.
    pub status: Option<Value>,
    /// What `ballast fleet plan --json` prints; `null`: there is no plan.
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
