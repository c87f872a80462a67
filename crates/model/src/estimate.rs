//! What memory is worth to a guest, as far as it is known.

use std::fmt;
use std::time::Duration;

use crate::Bytes;

/// The demand of one guest, derived from one sample of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Memory the guest uses and could not give back without reclaim: `A_i` of Global §3.1.
    pub used: Bytes,
    /// Memory the guest could give back without swapping: `F_i` of Global §3.1.
    pub available: Bytes,
    /// Where the figures come from.
    pub provenance: Provenance,
}

/// Where an [`Estimate`] comes from.
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
