//! Snapshots to demand: what memory is worth to each guest.
//!
//! Idea: an [`Estimator`] is fed every snapshot and answers, per guest, with an
//! [`Estimate`](ballast_model::Estimate) or the reason why there is none. It never sees shares,
//! bounds or actuators.
//!
//! Limits: no clock, no I/O; memory of the past is bounded per guest.

#![forbid(unsafe_code)]

mod history;
mod plausible;
mod used;

pub use used::{Estimator, NoEstimate};
