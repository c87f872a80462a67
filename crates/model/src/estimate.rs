//! What memory is worth to a guest, as far as it is known.
//!
//! Idea: what is known differs from guest to guest, so an [`Estimate`] says for each figure whether
//! it is there and where it comes from. Every guest has `used`; the demand is the best guess at
//! what it would need, with its source and how far it can be trusted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Bytes, Confidence, Demand, DemandSource, MemoryRequest, MissCurve, PassedOver};

/// What is known of one guest's need for memory, derived from samples of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Memory the guest uses and could not give back without reclaim: `A_i` of Global §3.1.
    pub used: Bytes,
    /// Memory the guest could give back without swapping: `F_i` of Global §3.1.
    pub available: Bytes,
    /// Where `used` and `available` come from.
    pub provenance: Provenance,
    /// What the guest would need to run as well as it can.
    pub demand: Demand,
    /// What other sources said of the demand, and why they were not believed; the most trusted first.
    pub passed_over: Vec<PassedOver>,
    /// Its misses at every size, where they are known.
    pub curve: Option<Arc<MissCurve>>,
    /// What else is known, and which policies go by.
    pub signals: Signals,
}

/// Observations of a guest that are no demand by themselves; `None`: nobody provides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Memory in no use at all.
    pub free: Option<Bytes>,
    /// Memory promised to processes (`Committed_AS`).
    pub committed: Option<Bytes>,
    /// Working set found by probing (TWS §2).
    pub probed: Option<Bytes>,
    /// Pages swapped in and out in a second, rounded down.
    pub swapped_pages_per_s: Option<u64>,
    /// The last request of the guest.
    pub request: Option<MemoryRequest>,
}

impl Estimate {
    /// An estimate where nothing is known but the memory in use.
    pub fn of_used(used: Bytes, available: Bytes, provenance: Provenance) -> Estimate {
        let Provenance::BalloonStatistics { age } = provenance;
        let (source, confidence) = (DemandSource::Used, Confidence::USED);
        Estimate {
            used,
            available,
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
pub enum Provenance {
    /// The balloon device's statistics; `used` is the allocation less available memory.
    BalloonStatistics {
        /// Age of the statistics when the estimate was made.
        age: Duration,
    },
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provenance::BalloonStatistics { age } => {
                write!(f, "balloon statistics {:.1}s old", age.as_secs_f64())
            }
        }
    }
}
