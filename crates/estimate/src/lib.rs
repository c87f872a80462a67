//! Estimates each guest's memory demand from snapshots.
//!
//! Idea: an [`Estimator`] observes every sample of a guest and returns an
//! [`Estimate`](ballast_model::Estimate) or the reason for having none. It never sees shares,
//! bounds or actuators. Begin with `used.rs`.
//!
//! Each module covers one aspect and knows nothing of the others. [`phase`] decides when a working
//! set need not be tracked; [`hot_set`] and [`granularity`] how finely it is tracked.
//! [`excess_demand`] adds the memory that a tracked guest lacks, [`swap_need`] what swap traffic
//! shows to be lacking, [`cache_need`] the page cache that reads from disks show to be needed.
//! [`statistical`] and [`probing`] need no tracker; `sampled_need` needs a tracker and no
//! statistics. [`fusion`] chooses among the results and says why.
//!
//! Limits: no clock, no I/O; the history kept of each guest is bounded.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod cache_history;
pub mod cache_need;
pub mod excess_demand;
pub mod fusion;
pub mod granularity;
mod history;
pub mod hot_set;
mod no_estimate;
pub mod phase;
mod plausible;
pub mod probing;
mod refine;
mod sampled_need;
pub mod statistical;
pub mod swap_need;
mod used;

use std::time::Duration;

use ballast_model::Timestamp;

pub use no_estimate::NoEstimate;
pub use used::Estimator;

/// The time `age` before `now`, but not before the clock's origin.
fn before(now: Timestamp, age: Duration) -> Timestamp {
    now.saturating_sub(age)
}
