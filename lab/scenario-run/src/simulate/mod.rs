//! What `ballast simulate` reads and shows; the decisions and the simulation are in the pure
//! crates.

pub mod capacity;
pub mod contestants;
pub mod csv;
pub mod json;
pub mod page;
pub mod paper;
pub mod paper_comparison;
pub mod parameter;
mod plot;
pub mod progress;
pub mod scenario_file;
mod scenario_machine;
mod scenario_policy;
mod scenario_workload;
pub mod table;
