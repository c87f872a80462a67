//! Workloads: what a lab guest or a simulated guest does with its memory.
//!
//! Idea: a workload is a size that changes over time and an order in which its pages are visited.
//! This crate has the vocabulary of both ([`WorkloadSpec`], [`Pattern`]), the table a scenario file
//! and the lab protocol write them as, the checks of their values, and the schedule of sizes over
//! time ([`WorkloadSpec::at`]). Begin with [`Pattern`]. Limits: it says which order a pattern
//! visits pages in ([`Order`]) but does not produce the visits. The lab draws single pages with a
//! generator of a few instructions; the simulator draws blocks of many pages with another generator
//! and must give the same report on every machine. One generator for both would change either the
//! lab's speed or every simulated figure.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod check;
mod order;
mod pattern;
mod schedule;
mod table;

pub use check::{CURVE_POINTS_MAX, ENTRIES_MAX, POSTGRESQL_SIZE_MAX, STEPS_MAX, WorkloadError};
pub use order::{Order, scattered_stride};
pub use pattern::{Kind, Pace, Pattern, Phase, Program, Ramp, Step, TracePoint, WorkloadSpec};
pub use schedule::{DrawPages, ScheduleEntry};

/// The prefix of a rival's name in a scenario's list of policies.
pub const RIVAL_PREFIX: &str = "rival:";
