//! What was measured, and whether the engine's goals are met.
//!
//! Idea: figures first; a goal is a figure of the report and a bound, named beside each other, so
//! that nothing is said to be met without showing by how much.

use serde::Serialize;

use super::super::goal::{
    Goal,
    Wanted::{AtLeast, AtMost},
};
use super::super::machine::Machine;
use super::workload::Workload;

/// Goals of speed and memory are of workloads with at least this many pages: below, fixed costs are
/// all there is.
const PAGES_MIN: u64 = 100_000;

/// Everything measured in one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) machine: Machine,
    /// The instructions that `exact` chose on it.
    pub(super) exact_path: &'static str,
    pub(super) repetitions: usize,
    /// Whether workloads were too small for the figures to mean anything.
    pub(super) is_quick: bool,
    pub(super) workloads: Vec<WorkloadReport>,
    pub(super) goals: Vec<Goal>,
}

/// One workload's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WorkloadReport {
    pub(super) workload: String,
    pub(super) what: String,
    pub(super) references: u64,
    pub(super) pages: u64,
    pub(super) engines: Vec<EngineReport>,
}

/// One engine's figures on a workload.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EngineReport {
    pub(super) engine: &'static str,
    /// References it took in.
    pub(super) references: u64,
    /// Whether those were not all.
    pub(super) is_prefix: bool,
    pub(super) million_per_second: Rate,
    pub(super) share_of_floor: Option<f64>,
    pub(super) times_avl: Option<f64>,
    pub(super) times_exact: Option<f64>,
    /// Bytes for each page, without the histogram.
    pub(super) bytes_per_page: Option<f64>,
    /// Mean absolute error of the total miss ratio over all sizes, by seed: their mean.
    pub(super) error_mean: Option<f64>,
    /// And the worst of them.
    pub(super) error_worst: Option<f64>,
}

/// Rates of several runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Rate {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

impl Rate {
    pub(super) fn of(rates: &[f64]) -> Self {
        let mut sorted = rates.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&least), Some(&greatest)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
            _ => sorted[middle],
        };
        Self { median, least, greatest }
    }
}

impl WorkloadReport {
    /// Puts the engines' figures in relation.
    pub(super) fn new(workload: &Workload, engines: Vec<EngineReport>) -> Self {
        let mut report = Self {
            workload: workload.name.clone(),
            what: workload.what.clone(),
            references: workload.pages.len() as u64,
            pages: workload.distinct,
            engines,
        };
        let [floor, avl, exact] = ["floor", "avl", "exact"].map(|engine| report.median(engine));
        for engine in &mut report.engines {
            let against =
                |other: Option<f64>| other.map(|it| engine.million_per_second.median / it);
            (engine.share_of_floor, engine.times_avl) = (against(floor), against(avl));
            engine.times_exact = against(exact);
        }
        report
    }

    fn engine(&self, name: &str) -> Option<&EngineReport> {
        self.engines.iter().find(|engine| engine.engine == name)
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.engine(name).map(|engine| engine.million_per_second.median)
    }

    /// The goals that this workload can tell of.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let (exact, shards) = (self.engine("exact"), self.engine("shards"));
        let mut goals = Vec::new();
        let mut goal = |what: &str, unit, found: Option<f64>, wanted| {
            let what = format!("{}: {what}", self.workload);
            goals.extend(found.map(|found| Goal::new(what, unit, found, wanted)));
        };
        if self.workload == "zipf" {
            let share = exact.and_then(|exact| exact.share_of_floor);
            goal("exact, of the floor", "%", share.map(|share| share * 100.0), AtLeast(25.0));
        }
        let times_avl = exact.and_then(|exact| exact.times_avl);
        goal("exact, times avl", "", times_avl, AtLeast(10.0));
        if self.pages < PAGES_MIN {
            return goals;
        }
        let bytes = exact.and_then(|exact| exact.bytes_per_page);
        goal("exact, bytes per page", "", bytes, AtMost(6.0));
        let error_max = match self.workload.as_str() {
            "zipf" | "mix" => 0.002,
            "scan" => 0.0005,
            _ => return goals,
        };
        let error = shards.and_then(|shards| shards.error_mean);
        goal("shards, mean error of three seeds", "", error, AtMost(error_max));
        let times_exact = shards.and_then(|shards| shards.times_exact);
        goal("shards, times exact", "", times_exact, AtLeast(10.0));
        goals
    }
}
