//! A paper's figures and simulated ones.
//!
//! Idea: a scenario that models a paper's experiment has the paper's own figures; each names our
//! metric to compare it with.
//! Limits: the papers measured their hypervisors and programs on machines of their time, and ours
//! is a simulation: only signs and orders of magnitude can be compared.

use ballast_model::{GuestId, PolicyName};
use ballast_sim::{ComparisonReport, PolicyReport};
use serde::Serialize;

use super::paper::{Metric, PaperFigure};
use ballast_report::figures;

/// A paper's figure and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperComparison<'a> {
    #[serde(flatten)]
    /// The figure of the paper.
    pub paper: &'a PaperFigure,
    /// Our simulated figure; `None` if there is none, or the policy was not run.
    pub simulated: Option<f64>,
}

/// Pairs every figure of `papers` with ours.
pub fn compare_with_papers<'a>(
    papers: &'a [PaperFigure],
    report: &ComparisonReport,
) -> Vec<PaperComparison<'a>> {
    papers.iter().map(|paper| PaperComparison { paper, simulated: ours(paper, report) }).collect()
}

fn ours(paper: &PaperFigure, report: &ComparisonReport) -> Option<f64> {
    let own = report.policies.iter().find(|it| it.policy.as_str() == paper.policy)?;
    let under_static = report.policy(PolicyName::Static);
    match &paper.guest {
        None => of_all(paper.metric, own, under_static),
        Some(guest) => of_guest(paper.metric, guest, own, under_static),
    }
}

fn of_all(metric: Metric, own: &PolicyReport, under_static: Option<&PolicyReport>) -> Option<f64> {
    match metric {
        Metric::WorkRatio => own.work_ratio,
        Metric::SpeedupVsStatic => own.speedup_vs_static,
        Metric::MajorFaults => Some(own.major_faults as f64),
        Metric::MajorFaultsVsStatic => ratio(own.major_faults, under_static?.major_faults),
        Metric::ConvergeS => own.converge.map(|time| time.as_secs_f64()),
        Metric::SwapBytes => Some(own.swap_used_max.get() as f64),
        Metric::AllocationBytes | Metric::AllocationMeanBytes => None,
    }
}

fn of_guest(
    metric: Metric,
    guest: &GuestId,
    own: &PolicyReport,
    under_static: Option<&PolicyReport>,
) -> Option<f64> {
    let own = own.guest(guest)?;
    let under_static = || under_static?.guest(guest);
    match metric {
        Metric::WorkRatio => own.work_ratio,
        Metric::SpeedupVsStatic => own.work_of(under_static()?),
        Metric::MajorFaults => Some(own.major_faults as f64),
        Metric::MajorFaultsVsStatic => ratio(own.major_faults, under_static()?.major_faults),
        Metric::AllocationBytes | Metric::AllocationMeanBytes => {
            Some(own.allocation_mean.get() as f64)
        }
        Metric::SwapBytes => Some(own.swap_used_max.get() as f64),
        Metric::ConvergeS => None,
    }
}

fn ratio(own: u64, base: u64) -> Option<f64> {
    (base > 0).then(|| own as f64 / base as f64)
}

/// A metric's value as text for people.
pub fn shown(metric: Metric, value: Option<f64>) -> String {
    let Some(value) = value else { return figures::NONE.to_owned() };
    match metric {
        Metric::WorkRatio => format!("{:.1} %", value * 100.0),
        Metric::SpeedupVsStatic | Metric::MajorFaultsVsStatic => figures::times(value),
        Metric::MajorFaults => figures::count(value),
        Metric::AllocationBytes | Metric::AllocationMeanBytes | Metric::SwapBytes => {
            figures::size(value)
        }
        Metric::ConvergeS => format!("{value:.0} s"),
    }
}
