//! The simulator: a host and its guests in virtual time, under the daemon's own controller.
//!
//! Idea: everything that decides is the code that decides in production, `ballast_control` with its
//! estimators, policies and guard; only what it observes and moves is simulated. A [`Scenario`] is
//! plain data: a host, guests with workloads, a time. The same scenario and seed give the same
//! report, byte for byte, on every machine: amounts of memory and spans of time are integers, random
//! numbers come from the seed, and what needs real numbers (popularity, footprints, ratios) takes its
//! functions from `libm`, not from the system.
//!
//! Limits: a model. What it leaves out is said where it leaves it out; figures it gives are
//! simulated ones and have to be called so.

#![forbid(unsafe_code)]

mod capacity;
mod compare;
mod counters;
mod disk;
mod guest;
mod lru;
mod memory;
mod metrics;
mod process;
mod replay;
mod report;
mod requests;
pub mod rivals;
mod scenario;
mod scenario_error;
mod schedule;
mod simulation;
mod tracker;
mod visits;
mod workload;
mod zipf;

pub use capacity::{Capacity, max_guests};
pub use compare::{Progress, compare, named};
pub use replay::{ASSUMPTIONS, Fate, GAP_MAX, Replay, ReplayReport, ReplayRow};
pub use report::{GuestReport, POINTS_MAX, Point, PolicyReport, Report};
pub use scenario::{
    BLOCKS_MAX, Balloon, Disk, GUESTS_MAX, GuestSpec, HostReclaim, HostSpec, Kernel, Scenario,
    Sources, Swap, TICKS_MAX, TimedWorkload, TrackerSpec, WORKLOADS_MAX,
};
pub use scenario_error::ScenarioError;
pub use simulation::{Simulation, UNLIMITED};
pub use workload::{
    CURVE_POINTS_MAX, ENTRIES_MAX, Pattern, Phase, Step, TracePoint, Workload, WorkloadError,
};
