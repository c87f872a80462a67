//! Merging of equal pages by the kernel (KSM): its settings, and what it saves.

use std::time::Duration;

use crate::Bytes;
#[cfg(feature = "serde")]
use crate::unit;

/// Settings of the kernel's search for equal pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MergingKnobs {
    /// Whether it searches. Merged pages stay merged while it does not.
    pub is_running: bool,
    /// Pages that it scans before it sleeps.
    pub pages_to_scan: u64,
    /// How long it sleeps then.
    #[cfg_attr(feature = "serde", serde(rename = "sleep_ns", with = "unit"))]
    pub sleep: Duration,
}

/// Merging of equal pages on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PageMerging {
    /// The settings in force.
    pub knobs: MergingKnobs,
    /// Pages that stand for several equal ones.
    #[cfg_attr(feature = "serde", serde(rename = "shared_bytes", with = "unit"))]
    pub shared: Bytes,
    /// Memory saved: what the merged pages would take beyond `shared`.
    #[cfg_attr(feature = "serde", serde(rename = "saved_bytes", with = "unit"))]
    pub saved: Bytes,
    /// How often all mergeable memory was scanned.
    pub full_scans: u64,
}
