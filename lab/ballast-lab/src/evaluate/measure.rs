//! What a figure of the evaluation measures, and how it is shown.
//!
//! Idea: the measures are the metrics of scenarios' `[[paper]]` tables, and those that only the
//! catalogue uses: what intermittent tracking saves and costs, and one policy's work against that
//! of others.

use ballast_lab_host::BEST;
use ballast_model::PolicyName;
use ballast_report::figures;
use ballast_scenario_run::compare::Figure as RunFigure;
use ballast_scenario_run::simulate::paper::Metric;
use ballast_scenario_run::simulate::paper_comparison;
use serde::{Deserialize, Serialize};

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    WorkRatio,
    SpeedupVsStatic,
    MajorFaults,
    MajorFaultsVsStatic,
    AllocationBytes,
    AllocationMeanBytes,
    ConvergeS,
    SwapBytes,
    /// Swap in use at the end, in bytes; only on real guests.
    SwapLastBytes,
    /// Largest allocation of a guest, in bytes.
    AllocationMaxBytes,
    /// Allocation of a guest at the end, in bytes.
    AllocationLastBytes,
    /// Page touches against the most under any policy in `against`.
    TouchesAgainst,
    /// Mean share of the work with unlimited memory, against the greatest under any policy in
    /// `against`; only simulated.
    WorkAgainst,
    /// How often guests together held more than the budget: ticks of a simulation, or samples of a
    /// run on real guests, one a second.
    Violations,
    /// Share of its work with all its memory that a guest with a fixed work does until its
    /// allocation has settled; only on real guests.
    WorkRatioUntilSettled,
    /// The same from then on.
    WorkRatioSettled,
    /// Share of intervals that are tracked, 0 to 1; for recorded series.
    UpRatio,
    /// Mean relative error of the working set, 0 or more; for recorded series, and for a tracked
    /// guest whose workloads visit all the memory that they use.
    Mre,
}

impl Measure {
    /// The same metric in scenario files, if there is one.
    pub(crate) const fn metric(self) -> Option<Metric> {
        Some(match self {
            Measure::WorkRatio => Metric::WorkRatio,
            Measure::SpeedupVsStatic => Metric::SpeedupVsStatic,
            Measure::MajorFaults => Metric::MajorFaults,
            Measure::MajorFaultsVsStatic => Metric::MajorFaultsVsStatic,
            Measure::AllocationBytes => Metric::AllocationBytes,
            Measure::AllocationMeanBytes => Metric::AllocationMeanBytes,
            Measure::ConvergeS => Metric::ConvergeS,
            Measure::SwapBytes => Metric::SwapBytes,
            _ => return None,
        })
    }

    /// The figure of a run on real guests that it is, if scenario files cannot name that.
    pub(crate) const fn run_figure(self) -> Option<RunFigure> {
        match self {
            Measure::WorkRatioUntilSettled => Some(RunFigure::OfBestBefore),
            Measure::WorkRatioSettled => Some(RunFigure::OfBestAfter),
            _ => None,
        }
    }

    /// Whether it is a figure of recorded series, which have a threshold instead of a policy.
    pub(crate) const fn is_of_series(self) -> bool {
        matches!(self, Measure::UpRatio | Measure::Mre)
    }

    /// Whether simulations have it.
    pub(crate) const fn is_of_simulations(self) -> bool {
        let is_of_lab_alone = matches!(self, Measure::SwapLastBytes) || self.run_figure().is_some();
        !self.is_of_series() && !is_of_lab_alone
    }

    /// Whether runs on real guests have it.
    pub(crate) const fn is_of_lab(self) -> bool {
        let is_of_runs = matches!(self, Measure::TouchesAgainst | Measure::Violations);
        self.metric().is_some() || self.run_figure().is_some() || self.is_of_samples() || is_of_runs
    }

    /// Whether runs on real guests have it, computed from the samples of one guest.
    pub(crate) const fn is_of_samples(self) -> bool {
        use Measure::{AllocationLastBytes, AllocationMaxBytes, Mre, SwapBytes, SwapLastBytes};
        matches!(self, SwapBytes | SwapLastBytes | AllocationMaxBytes | AllocationLastBytes | Mre)
    }

    /// Whether it is a share, shown in per cent.
    pub(crate) const fn is_share(self) -> bool {
        use Measure::{Mre, UpRatio, WorkRatio, WorkRatioSettled, WorkRatioUntilSettled};
        matches!(self, WorkRatio | WorkRatioUntilSettled | WorkRatioSettled | UpRatio | Mre)
    }

    /// The contestant that it is measured against, if figures do not name it.
    pub(crate) const fn baseline(self) -> Option<&'static str> {
        match self {
            Measure::WorkRatio | Measure::WorkRatioUntilSettled | Measure::WorkRatioSettled => {
                Some(BEST)
            }
            Measure::SpeedupVsStatic | Measure::MajorFaultsVsStatic => {
                Some(PolicyName::Static.as_str())
            }
            _ => None,
        }
    }

    /// Whether it compares a policy with others that the figure names.
    pub(crate) const fn is_against(self) -> bool {
        matches!(self, Measure::TouchesAgainst | Measure::WorkAgainst)
    }

    /// Its name in the catalogue's files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Measure::WorkRatio => "work_ratio",
            Measure::SpeedupVsStatic => "speedup_vs_static",
            Measure::MajorFaults => "major_faults",
            Measure::MajorFaultsVsStatic => "major_faults_vs_static",
            Measure::AllocationBytes => "allocation_bytes",
            Measure::AllocationMeanBytes => "allocation_mean_bytes",
            Measure::ConvergeS => "converge_s",
            Measure::SwapBytes => "swap_bytes",
            Measure::SwapLastBytes => "swap_last_bytes",
            Measure::AllocationMaxBytes => "allocation_max_bytes",
            Measure::AllocationLastBytes => "allocation_last_bytes",
            Measure::TouchesAgainst => "touches_against",
            Measure::WorkAgainst => "work_against",
            Measure::Violations => "violations",
            Measure::WorkRatioUntilSettled => "work_ratio_until_settled",
            Measure::WorkRatioSettled => "work_ratio_settled",
            Measure::UpRatio => "up_ratio",
            Measure::Mre => "mre",
        }
    }

    /// A value as text.
    pub(crate) fn shown(self, value: f64) -> String {
        match self {
            Measure::TouchesAgainst | Measure::WorkAgainst => figures::times(value),
            Measure::SwapLastBytes | Measure::AllocationMaxBytes | Measure::AllocationLastBytes => {
                figures::size(value)
            }
            Measure::Violations => figures::count(value),
            _ if self.is_share() => format!("{:.1} %", value * 100.0),
            _ => self.metric().map_or_else(
                || figures::NONE.to_owned(),
                |metric| paper_comparison::shown(metric, Some(value)),
            ),
        }
    }
}

impl From<Metric> for Measure {
    fn from(metric: Metric) -> Measure {
        match metric {
            Metric::WorkRatio => Measure::WorkRatio,
            Metric::SpeedupVsStatic => Measure::SpeedupVsStatic,
            Metric::MajorFaults => Measure::MajorFaults,
            Metric::MajorFaultsVsStatic => Measure::MajorFaultsVsStatic,
            Metric::AllocationBytes => Measure::AllocationBytes,
            Metric::AllocationMeanBytes => Measure::AllocationMeanBytes,
            Metric::ConvergeS => Measure::ConvergeS,
            Metric::SwapBytes => Measure::SwapBytes,
        }
    }
}
