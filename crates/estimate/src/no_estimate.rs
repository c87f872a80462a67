//! Why a guest has no estimate of its demand.

use ballast_model::{Bytes, Implausible};

/// Why a guest has no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEstimate {
    /// Its allocation is unknown.
    NoAllocation,
    /// It has sent no statistics, or none that include its available memory.
    NoStatistics,
    /// It has sent no statistics, and the memory that the host sees it touch does not show that it
    /// lacks memory.
    SampledAlone {
        /// The memory that it touches.
        working_set: Bytes,
    },
    /// Its statistics are impossible.
    Implausible(Implausible),
}
