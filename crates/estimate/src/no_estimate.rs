//! Why a guest has no estimate of its demand.

use ballast_model::{Bytes, Implausible};

/// Why a guest has no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEstimate {
    /// Its allocation is not known.
    NoAllocation,
    /// It has sent no statistics, or none that include its available memory.
    NoStatistics,
    /// It has sent no statistics, and what the host sees it touch does not say that it lacks
    /// memory.
    SampledAlone {
        /// What it touches.
        working_set: Bytes,
    },
    /// Its statistics cannot be true.
    Implausible(Implausible),
}
