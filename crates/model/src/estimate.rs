//! What is known of a guest's need for memory.
//!
//! Idea: what is known differs from guest to guest, so an [`Estimate`] says for each figure whether
//! it is there and where it comes from. Every guest has `used`. The demand is the best guess at
//! what the guest needs, with its source and how far it can be trusted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "serde")]
use crate::unit::{self, is_none};
use crate::{Bytes, Confidence, Demand, DemandSource, MemoryRequest, MissCurve, PassedOver};

/// A guest's need for memory, derived from its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "row::EstimateRow", into = "row::EstimateRow")
)]
pub struct Estimate {
    /// Memory the guest uses and could not give back without reclaim: `A_i` of Global §3.1.
    pub used: Bytes,
    /// Memory the guest could give back without swapping: `F_i` of Global §3.1.
    pub available: Bytes,
    /// Memory the guest needs beyond what it uses, because it swaps it out for lack of room or
    /// reads it back.
    pub swap_need: Bytes,
    /// Page cache the guest needs, because it reads from its disks for lack of it. It counts as
    /// available, not as used.
    pub cache_need: Bytes,
    /// Where `used` and `available` come from.
    pub provenance: Provenance,
    /// What the guest needs to run as well as it can.
    pub demand: Demand,
    /// The demands of other sources, and why they were passed over; the most trusted first.
    pub passed_over: Vec<PassedOver>,
    /// Its misses at every size, if they are known.
    pub curve: Option<Arc<MissCurve>>,
    /// Other observations that policies go by.
    pub signals: Signals,
}

/// Observations of a guest that are not a demand by themselves; `None`: no source provides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Signals {
    /// Unused memory.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "free_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub free: Option<Bytes>,
    /// Memory promised to processes (`Committed_AS`).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "committed_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub committed: Option<Bytes>,
    /// Working set found by probing (TWS §2).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "probed_bytes", with = "unit", skip_serializing_if = "is_none")
    )]
    pub probed: Option<Bytes>,
    /// Pages swapped in or out in a second, rounded down.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub swapped_pages_per_s: Option<u64>,
    /// The last request of the guest.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "is_none"))]
    pub request: Option<MemoryRequest>,
}

impl Estimate {
    /// Its use and its swap need.
    pub fn used_and_swapped(&self) -> Bytes {
        self.used.saturating_add(self.swap_need)
    }

    /// Its use, its swap need and the page cache that it needs.
    pub fn needed(&self) -> Bytes {
        self.used_and_swapped().saturating_add(self.cache_need)
    }

    /// An estimate where only the memory in use is known.
    pub fn of_used(used: Bytes, available: Bytes, provenance: Provenance) -> Estimate {
        let age = provenance.age();
        let (source, confidence) = (DemandSource::Used, Confidence::USED);
        Estimate {
            used,
            available,
            swap_need: Bytes::ZERO,
            cache_need: Bytes::ZERO,
            provenance,
            demand: Demand { size: used, source, age, confidence },
            passed_over: Vec::new(),
            curve: None,
            signals: Signals::default(),
        }
    }
}

/// Where `used` and `available` of an [`Estimate`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "code", content = "figures", rename_all = "kebab-case")
)]
pub enum Provenance {
    /// The balloon device's statistics; `used` is the allocation less available memory.
    BalloonStatistics {
        /// Age of the statistics when the estimate was made.
        #[cfg_attr(feature = "serde", serde(rename = "age_ns", with = "unit"))]
        age: Duration,
    },
    /// The working set of a silent guest as the host sees it; everything that the guest holds
    /// counts as used.
    WorkingSet {
        /// Age of the working set when the estimate was made.
        #[cfg_attr(feature = "serde", serde(rename = "age_ns", with = "unit"))]
        age: Duration,
    },
}

impl Provenance {
    /// Its age when the estimate was made.
    pub const fn age(self) -> Duration {
        match self {
            Provenance::BalloonStatistics { age } | Provenance::WorkingSet { age } => age,
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provenance::BalloonStatistics { age } => {
                write!(f, "balloon statistics {:.1}s old", age.as_secs_f64())
            }
            Provenance::WorkingSet { age } => {
                let age = age.as_secs_f64();
                write!(f, "no statistics; working set seen by the host {age:.1}s ago")
            }
        }
    }
}

/// An estimate in a row. The first rows had no demand; where it is left out, it is the memory in
/// use.
#[cfg(feature = "serde")]
mod row {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    pub(super) struct EstimateRow {
        #[serde(rename = "used_bytes", with = "crate::unit")]
        used: Bytes,
        #[serde(rename = "available_bytes", with = "crate::unit")]
        available: Bytes,
        #[serde(
            default,
            rename = "swap_need_bytes",
            with = "crate::unit",
            skip_serializing_if = "crate::unit::is_default"
        )]
        swap_need: Bytes,
        #[serde(
            default,
            rename = "cache_need_bytes",
            with = "crate::unit",
            skip_serializing_if = "crate::unit::is_default"
        )]
        cache_need: Bytes,
        provenance: Provenance,
        #[serde(skip_serializing_if = "Option::is_none")]
        demand: Option<Demand>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed_over: Vec<PassedOver>,
        #[serde(default, with = "crate::unit::shared", skip_serializing_if = "Option::is_none")]
        curve: Option<Arc<MissCurve>>,
        #[serde(default, skip_serializing_if = "crate::unit::is_default")]
        signals: Signals,
    }

    impl From<Estimate> for EstimateRow {
        fn from(estimate: Estimate) -> EstimateRow {
            let of_used = Estimate::of_used(estimate.used, estimate.available, estimate.provenance);
            EstimateRow {
                used: estimate.used,
                available: estimate.available,
                swap_need: estimate.swap_need,
                cache_need: estimate.cache_need,
                provenance: estimate.provenance,
                demand: (estimate.demand != of_used.demand).then_some(estimate.demand),
                passed_over: estimate.passed_over,
                curve: estimate.curve,
                signals: estimate.signals,
            }
        }
    }

    impl From<EstimateRow> for Estimate {
        fn from(row: EstimateRow) -> Estimate {
            let plain = Estimate::of_used(row.used, row.available, row.provenance);
            Estimate {
                swap_need: row.swap_need,
                cache_need: row.cache_need,
                demand: row.demand.unwrap_or(plain.demand),
                passed_over: row.passed_over,
                curve: row.curve,
                signals: row.signals,
                ..plain
            }
        }
    }
}
