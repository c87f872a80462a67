//! Reports about a guest besides the statistics of its balloon device.
//!
//! Idea: two sources that not every guest has. A program inside the guest ([`AgentReport`]) knows
//! what the balloon does not report, and can request memory. A tracker of page touches on the host
//! ([`TrackerReport`]) knows what the guest does not. Either may be missing as a whole, and so may
//! each figure of the agent.
//! Limits: the guest may lie in its report; `estimate` decides what is believed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{Bytes, MissCurve, TrackingSource};

/// The report of a program inside the guest. Counters count pages since the guest's boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct AgentReport {
    /// Memory promised to processes (`Committed_AS`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "committed_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub committed: Option<Bytes>,
    /// Swap in use, without pages that are in memory too.
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
    /// Free memory at which reclaim stops: the sum of the zones' high watermarks.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "watermark_high_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub watermark_high: Option<Bytes>,
    /// Page cache read again after it was evicted, in pages (`workingset_refault_file`).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub refaulted_file_pages: Option<u64>,
    /// Pages scanned by reclaim.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub scanned_pages: Option<u64>,
    /// Pages freed by reclaim.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub reclaimed_pages: Option<u64>,
    /// Its last request.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub request: Option<MemoryRequest>,
}

/// A guest asks for memory, or offers some (flexmemd §3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryRequest {
    /// Grows by one with each request of a guest: the same number is the same request.
    pub number: u64,
    /// The kind of request.
    pub kind: RequestKind,
    /// How much.
    #[cfg_attr(feature = "serde", serde(rename = "amount_bytes", with = "unit"))]
    pub amount: Bytes,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum RequestKind {
    /// More memory: otherwise it will soon have to reclaim.
    More,
    /// Less memory: it can spare some.
    Less,
    /// More memory at once: its reclaim fails.
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

/// From this age on a working set is not believed. A tracker confirms its figure every 3 to 5 s,
/// even at rest, and may miss a few.
pub const WORKING_SET_AGE_MAX: Duration = Duration::from_secs(30);

/// What the tracker of page touches found for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TrackerReport {
    /// Working set: the least memory with few misses (MEB §3.1). Never more than the allocation.
    #[cfg_attr(feature = "serde", serde(rename = "working_set_bytes", with = "unit"))]
    pub working_set: Bytes,
    /// Misses at every size, if they were counted.
    #[cfg_attr(
        feature = "serde",
        serde(with = "unit::shared", default, skip_serializing_if = "is_none")
    )]
    pub curve: Option<Arc<MissCurve>>,
    /// The source of the touches.
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "TrackingSource::is_library")
    )]
    pub source: TrackingSource,
}

impl TrackerReport {
    /// The report of a guest that now touches `now` where it touched `before`, and holds at most
    /// `held`: working set and curve are scaled in that proportion.
    #[must_use]
    pub fn moved(&self, now: u64, before: u64, held: Bytes) -> TrackerReport {
        TrackerReport {
            working_set: self.working_set.fraction(now, before).min(held),
            curve: self.curve.as_ref().map(|curve| Arc::new(curve.stretched(now, before))),
            source: self.source,
        }
    }
}
