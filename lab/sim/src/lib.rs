//! The simulator: a host and its guests in virtual time, under the daemon's own controller.
//!
//! Idea: all decisions are made by the production code, `ballast_control` with its estimators,
//! policies and guard; only its inputs and the effects of its actions are simulated. A [`Scenario`]
//! is plain data: a host, guests with workloads, a duration. The same scenario and seed give the
//! same report, byte for byte, on every machine: memory and time are integers, random numbers come
//! from the seed, and floating-point functions (for popularity, footprints, ratios) come from
//! `libm`, not from the system. Begin with [`Scenario`] and [`Simulation`].
//!
//! Limits: a model; each file's header names what it leaves out. Its figures must be labelled as
//! simulated.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod capacity;
mod compare;
mod counters;
mod disk;
mod guest;
mod limits;
mod lru;
mod memory;
mod metrics;
mod process;

mod report;
mod requests;
pub mod rivals;
mod scenario;
mod scenario_error;
mod simulation;
mod tracker;
mod visits;
mod zipf;

pub use ballast_workload::{
    Pace, Pattern, Phase, Ramp, Step, TracePoint, WorkloadError, WorkloadSpec,
};
pub use capacity::{Capacity, max_guests};
pub use compare::{Progress, compare, named};
pub use limits::{BLOCKS_MAX, GUESTS_MAX, TICKS_MAX, WORKLOADS_MAX};

pub use report::{ComparisonReport, GuestReport, POINTS_MAX, Point, PolicyReport};
pub use scenario::{
    Balloon, Disk, GuestSpec, HostReclaim, HostSpec, Kernel, Scenario, Sources, Swap,
    TimedWorkload, TrackerSpec,
};
pub use scenario_error::ScenarioError;
pub use simulation::{GuestTruth, Simulation, UNLIMITED};
