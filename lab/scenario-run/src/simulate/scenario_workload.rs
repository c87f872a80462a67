//! A guest's workload in a scenario file.
//!
//! Idea: the flat table with a `kind` that the lab reads, too; see `ballast_workload`.
//! Limits: the simulator checks the values.

use std::time::Duration;

use ballast_sim::WorkloadSpec;
use ballast_toml_strict::duration;
use serde::Deserialize;

/// A workload and its start time, as a scenario file has it.
#[derive(Debug, Deserialize)]
pub(super) struct WorkloadTable {
    /// Time from the start of the run; 0 by default.
    #[serde(default, with = "duration")]
    pub(super) at: Duration,
    /// Its name in the lab; ignored here.
    #[serde(default, rename = "id")]
    _id: Option<String>,
    /// In the lab, whether it fills its memory before the measurement; ignored here, because a
    /// simulated workload fills at once.
    #[serde(default, rename = "prepared")]
    _prepared: bool,
    /// What it does.
    #[serde(flatten)]
    pub(super) workload: WorkloadSpec,
}
