//! `ballast simulate`: scenario files.

pub mod paper;
pub mod scenario_file;
mod scenario_machine;
mod scenario_workload;
