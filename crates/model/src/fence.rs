//! The state of the fence around a guest.
//!
//! Idea: a fence is a standing limit on the memory of a guest's cgroup. An operator who wants one
//! needs to see whether it is in force, its height, and what prevents it. Limits: nothing is
//! decided by these figures.

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit::{self, is_none};

/// The fence around one guest whose configuration asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Fence {
    /// The limit in force; `None`: none.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "limit_bytes", default, with = "unit", skip_serializing_if = "is_none")
    )]
    pub limit: Option<Bytes>,
    /// Why the fence is not as it should be, and what to do about it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub trouble: Option<String>,
}
