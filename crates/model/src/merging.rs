//! Merging of like pages by the kernel (KSM): how it is set, and what it saves.

use std::time::Duration;

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// What can be set of the kernel's search for like pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MergingKnobs {
    /// Whether it searches. What was merged stays merged while it does not.
    pub is_running: bool,
    /// Pages it looks at before it sleeps.
    pub pages_to_scan: u64,
    /// How long it sleeps then.
    #[cfg_attr(feature = "serde", serde(rename = "sleep_ns", with = "unit"))]
    pub sleep: Duration,
}

/// Merging of like pages on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PageMerging {
    /// How it is set.
    pub knobs: MergingKnobs,
    /// Pages that stand for several like ones.
    #[cfg_attr(feature = "serde", serde(rename = "shared_bytes", with = "unit"))]
    pub shared: Bytes,
    /// What that saves: the memory that all would take beside `shared` if none were merged.
    #[cfg_attr(feature = "serde", serde(rename = "saved_bytes", with = "unit"))]
    pub saved: Bytes,
    /// How often all memory that may be merged was looked at.
    pub full_scans: u64,
}
