//! What was seen of the host in one tick.
//!
//! Limits: what could not be read is `None`.

#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{BalloonOwner, Bytes, PageMerging};

/// What was seen of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct HostSample {
    /// Memory the host kernel manages (`MemTotal`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "memory_total_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub memory_total: Option<Bytes>,
    /// Memory the host could hand out without swapping (`MemAvailable`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "memory_available_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub memory_available: Option<Bytes>,
    /// Swap configured on the host.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "swap_total_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub swap_total: Option<Bytes>,
    /// Swap not in use on the host.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "swap_free_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub swap_free: Option<Bytes>,
    /// Memory pressure of the whole host.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub pressure: Option<Pressure>,
    /// Merging of equal pages; `None`: the kernel has none, or it cannot be read.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub merging: Option<PageMerging>,
    /// A program on the host that moves balloons; `None`: none is known, or it was not looked for.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_none"))]
    pub balloon_owner: Option<BalloonOwner>,
}

/// Pressure stall information: the share of time in which tasks waited for memory, over the last 10
/// s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pressure {
    /// At least one task waited; hundredths of a percent, 0 to 10,000.
    pub some_basis_points: u32,
    /// All tasks waited; hundredths of a percent, 0 to 10,000.
    pub full_basis_points: u32,
}
