//! What is carried along with a guest to its new host.
//!
//! Idea: what the source's daemon reports and the destination's daemon takes over: the limits that
//! were set, the guest's credits, and where it thrashed. Times are durations, as no two hosts share
//! a clock.
//! Limits: the journal of samples stays on the host that wrote it. When a guest was moved is kept
//! by the leader, not by its hosts.

use ballast_model::GuestChange;
use serde::{Deserialize, Serialize};

/// What goes along with a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedState {
    /// The limits that were set for it.
    pub limits: GuestChange,
    /// What it can pay rent with, under a policy of rent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credits: Option<u64>,
    /// Where it thrashed last; `None` if it did not, or has been content since.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thrashed: Option<CarriedThrash>,
}

/// A guest that thrashed when memory was taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedThrash {
    /// The size below which it is not to be shrunk.
    pub least_bytes: u64,
    /// For how many milliseconds more.
    pub left_ms: u64,
    /// How long the pause is in all, in milliseconds; the next one is twice as long.
    pub pause_ms: u64,
}
