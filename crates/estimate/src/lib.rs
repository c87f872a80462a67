//! Snapshots to demand: what memory is worth to each guest.
//!
//! Idea: an [`Estimator`] is fed every snapshot and answers, per guest, with an
//! [`Estimate`](ballast_model::Estimate) or the reason why there is none. It never sees shares,
//! bounds or actuators.
//!
//! What memory is worth is told from several sides, a module each, none of which knows another:
//! [`phase`] says when a working set need not be tracked, [`hot_set`] and [`granularity`] how finely it is,
//! [`beyond`] adds what a guest lacks, [`statistical`] and [`probing`] do without a tracker, [`committed`] is
//! the baseline, and [`fusion`] chooses among them and says why.
//!
//! Limits: no clock, no I/O; memory of the past is bounded per guest.

#![forbid(unsafe_code)]

pub mod beyond;
pub mod committed;
pub mod fusion;
pub mod granularity;
mod history;
pub mod hot_set;
pub mod phase;
mod plausible;
pub mod probing;
pub mod statistical;
mod used;
mod watch;

use std::time::Duration;

use ballast_model::Timestamp;

pub use used::{Estimator, NoEstimate};

/// The moment `age` before `now`; the clock's origin where that would be before it.
fn before(now: Timestamp, age: Duration) -> Timestamp {
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(age_ms))
}
