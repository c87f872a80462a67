//! What a guest brings along from another host, as the controller and the journal take it.
//!
//! Idea: a guest that was moved pays with the credits that it had, and is not shrunk to where it
//! thrashed. Its limits come along, too; these are set like an operator's.
//! Limits: moments are of the clock of the host that it has come to.

#[cfg(feature = "serde")]
use crate::unit::is_none;
use crate::{GuestId, Thrashed};

/// What one guest has brought along.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CarriedGuest {
    /// The guest.
    pub guest: GuestId,
    /// What it pays rent with, under a policy of rent; `None`: it starts as a new guest does.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub credits: Option<u64>,
    /// Where it thrashed last; `None`: it did not, or was content since.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub thrashed: Option<Thrashed>,
}
