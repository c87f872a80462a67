//! The JSON of `ballast simulate`; documented in `docs/json.md`.

use ballast_model::Bytes;
use ballast_sim::{ComparisonReport, GuestReport, Point, PolicyReport};
use serde::Serialize;

use super::paper::PaperFigure;
use super::paper_comparison::{PaperComparison, compare_with_papers};

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationJson<'a> {
    scenario: &'a str,
    /// Always true: no figure here was measured.
    simulated: bool,
    seed: u64,
    duration_s: f64,
    budget_bytes: u64,
    policies: Vec<PolicyJson>,
    paper: Vec<PaperComparison<'a>>,
}

#[derive(Clone, Debug, Serialize)]
struct PolicyJson {
    policy: String,
    work_ratio: Option<f64>,
    speedup_vs_static: Option<f64>,
    major_faults: u64,
    swap_in_bytes: u64,
    swap_out_bytes: u64,
    swap_used_max_bytes: u64,
    moved_bytes: u64,
    jain: Option<f64>,
    converge_s: Option<f64>,
    reversals_per_h: f64,
    restless_bytes_per_h: u64,
    plans_refused: u64,
    violations: u64,
    guests: Vec<GuestJson>,
}

#[derive(Clone, Debug, Serialize)]
struct GuestJson {
    guest: String,
    shares: u32,
    work: u64,
    working_s: f64,
    work_ratio: Option<f64>,
    major_faults: u64,
    swap_in_bytes: u64,
    swap_out_bytes: u64,
    swap_used_max_bytes: u64,
    refaulted_file_pages: u64,
    oom_kills: u64,
    moved_bytes: u64,
    allocation_min_bytes: u64,
    allocation_mean_bytes: u64,
    allocation_max_bytes: u64,
    allocation_last_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    series: Vec<PointJson>,
}

#[derive(Clone, Debug, Serialize)]
struct PointJson {
    at_s: f64,
    allocation_bytes: u64,
    target_bytes: Option<u64>,
    used_bytes: u64,
    demand_bytes: u64,
    major_faults: u64,
    work: u64,
}

impl<'a> SimulationJson<'a> {
    /// The JSON of a report; with the series over time if `series`.
    pub fn new(report: &'a ComparisonReport, papers: &'a [PaperFigure], series: bool) -> Self {
        SimulationJson {
            scenario: &report.scenario,
            simulated: true,
            seed: report.seed,
            duration_s: report.duration.as_secs_f64(),
            budget_bytes: report.budget.get(),
            policies: report.policies.iter().map(|it| PolicyJson::new(it, series)).collect(),
            paper: compare_with_papers(papers, report),
        }
    }
}

impl PolicyJson {
    fn new(report: &PolicyReport, series: bool) -> Self {
        PolicyJson {
            policy: report.policy.to_string(),
            work_ratio: report.work_ratio,
            speedup_vs_static: report.speedup_vs_static,
            major_faults: report.major_faults,
            swap_in_bytes: report.swap_in.get(),
            swap_out_bytes: report.swap_out.get(),
            swap_used_max_bytes: report.swap_used_max.get(),
            moved_bytes: report.moved.get(),
            jain: report.jain,
            converge_s: report.converge.map(|time| time.as_secs_f64()),
            reversals_per_h: report.reversals_per_h,
            restless_bytes_per_h: report.restless_per_h.get(),
            plans_refused: report.plans_refused,
            violations: report.violations,
            guests: report.guests.iter().map(|it| GuestJson::new(it, series)).collect(),
        }
    }
}

impl GuestJson {
    fn new(report: &GuestReport, series: bool) -> Self {
        let points = if series { &report.series[..] } else { &[] };
        GuestJson {
            guest: report.id.to_string(),
            shares: report.shares,
            work: report.work,
            working_s: report.working.as_secs_f64(),
            work_ratio: report.work_ratio,
            major_faults: report.major_faults,
            swap_in_bytes: report.swap_in.get(),
            swap_out_bytes: report.swap_out.get(),
            swap_used_max_bytes: report.swap_used_max.get(),
            refaulted_file_pages: report.refaulted_file_pages,
            oom_kills: report.oom_kills,
            moved_bytes: report.moved.get(),
            allocation_min_bytes: report.allocation_min.get(),
            allocation_mean_bytes: report.allocation_mean.get(),
            allocation_max_bytes: report.allocation_max.get(),
            allocation_last_bytes: report.allocation_last.get(),
            series: points.iter().map(PointJson::new).collect(),
        }
    }
}

impl PointJson {
    fn new(point: &Point) -> Self {
        PointJson {
            at_s: point.at.as_secs_f64(),
            allocation_bytes: point.allocation.get(),
            target_bytes: point.target.map(Bytes::get),
            used_bytes: point.used.get(),
            demand_bytes: point.demand.get(),
            major_faults: point.major_faults,
            work: point.work,
        }
    }
}
