//! A guest's workload in a scenario file.
//!
//! Idea: the flat table with a `kind` that the lab reads too; see `ballast_workload`.
//! Limits: the simulator checks the values.

use std::time::Duration;

use ballast_sim::WorkloadSpec;
use ballast_toml_strict::duration;
use serde::Deserialize;

/// A workload and when it begins, as a scenario file has it.
#[derive(Debug, Deserialize)]
pub(super) struct WorkloadTable {
    /// Time from the beginning; 0 by default.
    #[serde(default, with = "duration")]
    pub(super) at: Duration,
    /// Its name in the lab.
    #[serde(default, rename = "id")]
    _id: Option<String>,
    /// Whether it fills its memory before a real run is measured; a simulated one fills at once.
    #[serde(default, rename = "prepared")]
    _prepared: bool,
    /// What it does.
    #[serde(flatten)]
    pub(super) workload: WorkloadSpec,
}
