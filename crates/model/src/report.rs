//! What is reported of a guest beside the balloon device's statistics.
//!
//! Idea: two sources that not every guest has. A program inside the guest ([`AgentReport`]) knows
//! what the balloon does not tell, and can ask for memory; a tracker of page touches on the host
//! ([`TrackerReport`]) knows what the guest does not. Both are optional as a whole, and each figure
//! of the first again.
//! Limits: the guest may lie in its report; see `estimate` for what is believed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{Bytes, MissCurve, TrackingSource};

/// What a program inside the guest reports. Counters count pages from the guest's boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct AgentReport {
    /// Memory promised to processes (`Committed_AS`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "committed_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub committed: Option<Bytes>,
    /// Swap in use, without what is in memory, too.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "swap_used_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub swap_used: Option<Bytes>,
    /// Swap not in use; zero where there is none.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "swap_free_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub swap_free: Option<Bytes>,
    /// Memory on the active lists.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "active_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub active: Option<Bytes>,
    /// Memory on the inactive lists.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "inactive_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub inactive: Option<Bytes>,
    /// Free memory at which reclaim ends again: the sum of the zones' high watermarks.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "watermark_high_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub watermark_high: Option<Bytes>,
    /// Page cache read again after it was evicted, in pages (`workingset_refault_file`).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub refaulted_file_pages: Option<u64>,
    /// Pages looked at by reclaim.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub scanned_pages: Option<u64>,
    /// Pages freed by reclaim.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub reclaimed_pages: Option<u64>,
    /// What it last asked for.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub request: Option<MemoryRequest>,
}

/// A guest asks for memory, or offers some (flexmemd §3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryRequest {
    /// Grows by one with each request of a guest: the same number is the same request.
    pub number: u64,
    /// What is asked.
    pub kind: RequestKind,
    /// How much.
    #[cfg_attr(feature = "serde", serde(rename = "amount_bytes", with = "unit"))]
    pub amount: Bytes,
}

/// What a guest asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum RequestKind {
    /// More memory: it would soon have to reclaim.
    More,
    /// Less: it can spare some.
    Less,
    /// More, at once: its reclaim fails.
    Emergency,
}

impl RequestKind {
    /// Stable word for machines.
    pub const fn code(self) -> &'static str {
        match self {
            RequestKind::More => "more",
            RequestKind::Less => "less",
            RequestKind::Emergency => "emergency",
        }
    }
}

impl fmt::Display for MemoryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.amount;
        match self.kind {
            RequestKind::More => write!(f, "asks for {amount} more"),
            RequestKind::Less => write!(f, "can spare {amount}"),
            RequestKind::Emergency => write!(f, "asks for {amount} more at once"),
        }
    }
}

/// The age from which a working set is not believed any more. A tracker confirms its figure every 3
/// to 5 s, even at rest, and may miss a few.
pub const WORKING_SET_AGE_MAX: Duration = Duration::from_secs(30);

/// What the tracker of page touches found of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TrackerReport {
    /// Working set: the least memory with few misses (MEB §3.1). Never more than the allocation.
    #[cfg_attr(feature = "serde", serde(rename = "working_set_bytes", with = "unit"))]
    pub working_set: Bytes,
    /// Misses at every size, where they were counted.
    #[cfg_attr(
        feature = "serde",
        serde(with = "unit::shared", default, skip_serializing_if = "is_none")
    )]
    pub curve: Option<Arc<MissCurve>>,
    /// What saw the touches.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "TrackingSource::is_library")
    )]
    pub source: TrackingSource,
}

impl TrackerReport {
    /// Of a guest that now touches `now` where it touched `before`, and holds no more than `held`:
    /// its working set and its curve in the same proportion.
    #[must_use]
    pub fn moved(&self, now: u64, before: u64, held: Bytes) -> TrackerReport {
        TrackerReport {
            working_set: self.working_set.fraction(now, before).min(held),
            curve: self.curve.as_ref().map(|curve| Arc::new(curve.stretched(now, before))),
            source: self.source,
        }
    }
}
