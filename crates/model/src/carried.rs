//! State that a guest brings along from another host, as controller and journal take it.
//!
//! Idea: a guest that was moved keeps its credits, and is not shrunk to where it thrashed. Its
//! limits come along too; these are set like an operator's.
//! Limits: moments are of the clock of the destination host.

#[cfg(feature = "serde")]
use crate::unit::is_none;
use crate::{GuestId, Thrashed};

/// State that one guest has brought along.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CarriedGuest {
    /// The guest.
    pub guest: GuestId,
    /// Its credits, under a policy of rent; `None`: it starts like a new guest.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub credits: Option<u64>,
    /// Where it thrashed last; `None`: it did not, or has been content since.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub thrashed: Option<Thrashed>,
}
