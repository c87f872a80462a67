//! What a paper measured in a situation, shown beside the simulated figures.
//!
//! Idea: a paper's figure is part of the scenario file, in the terms of a simulation's report: the
//! policy and guest it is for, the metric, and its place in the paper.
//! Limits: a paper's machine is not the simulated one; the papers' times become ratios of work.

use ballast_model::GuestId;
use serde::{Deserialize, Serialize};

/// Longest text of a figure, in bytes: a line of a table.
const TEXT_BYTES_MAX: usize = 120;

/// The greatest number of papers' figures in one file.
pub const PAPER_MAX: usize = 256;

/// A figure of a paper, in the terms of a simulation's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperFigure {
    /// What was measured, in words.
    pub what: String,
    /// The policy under which it was measured, by our name; this version need not be able to run
    /// it.
    pub policy: String,
    /// The guest; without it the figure is for all guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestId>,
    /// The figure of a report to compare it with.
    pub metric: Metric,
    /// Its value, in the metric's unit.
    pub value: f64,
    /// Its place in the paper: a table, figure or section.
    pub source: String,
}

/// A figure that both papers and reports have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Work done against that with unlimited memory; a paper's best time over its time.
    WorkRatio,
    /// Work done against that under `static`; a paper's baseline time over its time.
    SpeedupVsStatic,
    /// Faults that waited for a disk.
    MajorFaults,
    /// Faults that waited for a disk, against those under `static`.
    MajorFaultsVsStatic,
    /// Allocation of a guest, in bytes: in a simulation the mean, in a run of the lab the last.
    AllocationBytes,
    /// Mean allocation of a guest, in bytes.
    AllocationMeanBytes,
    /// Seconds from the last change of demand until targets stay.
    ConvergeS,
    /// Most swap in use, in bytes.
    SwapBytes,
}

impl PaperFigure {
    /// The name of its guest; empty if it is about all of them.
    pub fn guest_name(&self) -> &str {
        self.guest.as_ref().map_or("", GuestId::as_str)
    }

    /// Checks that the texts are single lines and the value is possible.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        let texts = [("what", &self.what), ("policy", &self.policy), ("source", &self.source)];
        for (key, text) in texts {
            if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.contains(char::is_control) {
                return Err((key, format!("expected one line of 1 to {TEXT_BYTES_MAX} bytes")));
            }
        }
        if !self.value.is_finite() || self.value < 0.0 {
            return Err(("value", format!("{}: expected a number, 0 or more", self.value)));
        }
        Ok(())
    }
}
