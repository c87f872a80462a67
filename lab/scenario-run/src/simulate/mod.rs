//! What `ballast simulate` reads and shows; deciding and simulating are the pure crates'.

pub(crate) mod beside;
pub mod capacity;
pub mod contestants;
pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod page;
pub mod paper;
mod plot;
pub(crate) mod progress;
pub mod scenario_file;
mod scenario_machine;
mod scenario_policy;
mod scenario_workload;
pub(crate) mod table;
