//! The standing fence around a guest, as it was found.
//!
//! Idea: a fence is a limit on the memory of a guest's cgroup on the host. An operator who wants
//! one needs to see whether it stands, how high, and what keeps it from standing. Limits: nothing
//! is decided by these figures.

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
    /// Why the fence does not stand as it is to, and what to do about it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub trouble: Option<String>,
}
