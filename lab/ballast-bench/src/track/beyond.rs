//! What a guest needs beyond its allocation: MEB §5.2.1, Fig. 9(b), repeated.
//!
//! Idea: a guest of 400 MiB visits 40 to 700 MiB at random, and swaps. The tracker sees the memory
//! that the guest holds; the rest shows in its swap, in use or by its traffic
//! (`ballast_estimate::excess_demand`). Statistical sampling cannot show more than the allocation.
//! The truth is the size of the array, which the guest reports, plus what the guest touched before
//! it began.
//!
//! Cost: five minutes; `--quick` takes two. Source: MEB §3.6, §5.2.1. The paper's mean errors
//! (13.46 % and 74.36 %) are for a guest within its allocation; for this one it has only a plot.
//! Limits: the size of a growing array is the part that is filled; the guest reports it once a
//! second.

use std::time::Duration;

use anyhow::Context;
use ballast_estimate::excess_demand::{ExcessDemand, ExcessDemandInput};
use ballast_lab_guest::protocol::LabReport as GuestReport;
use ballast_lab_guest::workload::{Pattern, WorkloadSpec};
use ballast_lab_host::{DiskSpec, GuestSpec, Speed};
use ballast_model::Bytes;
use serde::Serialize;

use super::guests::compare::{Point, compare};
use super::guests::session::{self, Session};
use super::guests::subject::start_workload;
use super::guests::way::Way;
use crate::goal::Goal;
use crate::machine;
use crate::scaffold::{Findings, Say, Text, WithGoals};
use crate::shown::percent;
use crate::timing::mean;
use ballast_daemon::track::FollowSettings;
use ballast_report::Report;
use ballast_report::figures::{self, or_none};

/// The guest's allocation.
const ALLOCATION: Bytes = Bytes::mib(400);
/// Sizes of the array, and how long each lasts.
const LOW: Bytes = Bytes::mib(40);
const HIGH: Bytes = Bytes::mib(700);
const STAY: Duration = Duration::from_secs(20);
/// Size of its swap.
const SWAP: Bytes = Bytes::gib(1);
/// The number of intervals with each watcher.
const INTERVALS: u32 = 100;
const QUICK: u32 = 30;
/// Intervals before the array exists, to measure the rest of the guest.
const BEFORE: u32 = 5;

/// The estimated and the true demand.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BeyondFindings {
    processor: Option<String>,
    is_quick: bool,
    allocation_bytes: u64,
    /// Memory that the guest touched in an interval before the array existed.
    beside_bytes: u64,
    figures: Vec<BeyondFigures>,
}

/// The source of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum EstimateSource {
    SwapUsed,
    SwapTraffic,
    Statistical,
}

#[derive(Clone, Debug, Serialize)]
struct BeyondFigures {
    by: EstimateSource,
    /// The mean relative error, the greatest one, and the mean with its sign.
    error: f64,
    error_most: f64,
    bias: f64,
    /// The mean over intervals in which the guest needed more than its allocation; absent if there
    /// was none.
    error_beyond: Option<f64>,
    /// The cost that the tracker reports, as a share of a core.
    cost_cores: f64,
    /// For each interval: the true and the estimated demand.
    series_bytes: Vec<[u64; 2]>,
}

impl EstimateSource {
    const fn name(self) -> &'static str {
        match self {
            EstimateSource::SwapUsed => "daemon, and swap in use",
            EstimateSource::SwapTraffic => "daemon, and swap traffic",
            EstimateSource::Statistical => "statistical",
        }
    }

    /// MEB's mean error for a guest within its allocation.
    const fn paper(self) -> Option<f64> {
        match self {
            EstimateSource::SwapUsed => Way::Every.paper(),
            EstimateSource::SwapTraffic => None,
            EstimateSource::Statistical => Way::Statistical.paper(),
        }
    }
}

/// Measures; progress goes to `say`.
///
/// # Errors
/// Something that guests need is missing or not permitted.
pub(super) fn measure(is_quick: bool, say: Say<'_>) -> anyhow::Result<WithGoals<BeyondFindings>> {
    let daemon = session::daemon()?;
    say("a guest that swaps: booting");
    let with_swap = |spec: &mut GuestSpec| {
        spec.swap = Some(DiskSpec { size: SWAP, speed: Speed::Nvme });
    };
    let session = Session::start(ALLOCATION, daemon.interval, with_swap, say)?;
    std::thread::sleep(daemon.interval * (BEFORE + 1));
    let rows = session.truth()?;
    let last = &rows[rows.len().saturating_sub(BEFORE as usize)..];
    let sum: Bytes = last.iter().map(|row| row.bytes).sum();
    let other_memory = Bytes::new(sum.get() / (last.len() as u64).max(1));
    let pattern = Pattern::RandomDrawn { low: LOW, high: HIGH, period: STAY };
    start_workload(session.guest()?, &WorkloadSpec { seed: 5, ..pattern.into() })?;
    let intervals = if is_quick { QUICK } else { INTERVALS };
    let mut figures = Vec::new();
    for way in [Way::Daemon, Way::Statistical] {
        say(&format!("a guest that swaps: {}", way.name()));
        figures.extend(watch(&session, way, &daemon, intervals, other_memory)?);
    }
    Ok(WithGoals::new(BeyondFindings {
        processor: machine::processor(),
        is_quick,
        allocation_bytes: ALLOCATION.get(),
        beside_bytes: other_memory.get(),
        figures,
    }))
}

/// Runs one watcher, whose result may be evaluated in several ways.
fn watch(
    session: &Session,
    way: Way,
    daemon: &FollowSettings,
    intervals: u32,
    other_memory: Bytes,
) -> anyhow::Result<Vec<BeyondFigures>> {
    let mut readings = match way {
        Way::Statistical => vec![DemandReading::new(EstimateSource::Statistical)],
        _ => {
            vec![
                DemandReading::new(EstimateSource::SwapUsed),
                DemandReading::new(EstimateSource::SwapTraffic),
            ]
        }
    };
    let mut costs = Vec::new();
    let mut before = None;
    session.watch(way, daemon, intervals, |_, row| {
        let report = session.guest()?.latest_report()?.context("the guest reports nothing")?;
        let swap = swap(&report);
        let traffic = swap.since(before.replace(swap).unwrap_or(swap));
        costs.push(row.cost_share());
        let size = report.workloads.first().map_or(Bytes::ZERO, |workload| workload.size);
        let truth = size.saturating_add(other_memory);
        if let Some(wss) = row.known {
            for reading in &mut readings {
                reading.add(truth, wss, traffic);
            }
        }
        Ok(())
    })?;
    let cost = mean(costs.into_iter());
    Ok(readings.into_iter().map(|reading| reading.figures(cost)).collect())
}

/// The guest's swap: what is in use and not also in memory, and its traffic since boot or in an
/// interval.
#[derive(Clone, Copy, Debug)]
struct Swap {
    used: Bytes,
    swapped_in: Bytes,
    swapped_out: Bytes,
}

impl Swap {
    /// The traffic since `before`.
    fn since(self, before: Swap) -> Swap {
        Swap {
            used: self.used,
            swapped_in: self.swapped_in.saturating_sub(before.swapped_in),
            swapped_out: self.swapped_out.saturating_sub(before.swapped_out),
        }
    }
}

fn swap(report: &GuestReport) -> Swap {
    let (memory, vm) = (&report.memory, &report.vm);
    let total = memory.swap_total.unwrap_or_default();
    // Pages in the swap cache are also in memory, where the tracker has seen them.
    let free = memory.swap_free.unwrap_or(total);
    let cached = memory.swap_cached.unwrap_or_default();
    Swap {
        used: total.saturating_sub(free.saturating_add(cached)),
        swapped_in: Bytes::pages(vm.pswpin.unwrap_or_default()),
        swapped_out: Bytes::pages(vm.pswpout.unwrap_or_default()),
    }
}

/// Estimates from one source.
struct DemandReading {
    by: EstimateSource,
    demand: ExcessDemand,
    points: Vec<Point>,
}

impl DemandReading {
    fn new(by: EstimateSource) -> DemandReading {
        DemandReading { by, demand: ExcessDemand::default(), points: Vec::new() }
    }

    fn add(&mut self, truth: Bytes, wss: Bytes, swap: Swap) {
        let input = ExcessDemandInput {
            wss,
            allocation: ALLOCATION,
            swap_used: (self.by == EstimateSource::SwapUsed).then_some(swap.used),
            swapped_in: Some(swap.swapped_in),
            swapped_out: Some(swap.swapped_out),
        };
        let estimate = match self.by {
            EstimateSource::Statistical => wss,
            EstimateSource::SwapUsed | EstimateSource::SwapTraffic => {
                self.demand.update(input).demand
            }
        };
        self.points.push(Point { truth, estimate });
    }

    fn figures(self, cost_cores: f64) -> BeyondFigures {
        let errors = compare(&self.points);
        let beyond: Vec<Point> =
            self.points.iter().copied().filter(|point| point.truth > ALLOCATION).collect();
        BeyondFigures {
            by: self.by,
            error: errors.mean,
            error_most: errors.most,
            bias: errors.bias,
            error_beyond: (!beyond.is_empty()).then(|| compare(&beyond).mean),
            cost_cores,
            series_bytes: self
                .points
                .iter()
                .map(|it| [it.truth.get(), it.estimate.get()])
                .collect(),
        }
    }
}

/// The goals: as close as MEB's errors within the allocation.
fn goals(figures: &[BeyondFigures]) -> Vec<Goal> {
    let most = Way::Every.paper().unwrap_or_default() * 100.0;
    let goal = |it: &BeyondFigures| {
        let what = format!("{}: error", it.by.name());
        Goal::at_most(what, "%", it.error * 100.0, most)
    };
    figures.iter().filter(|it| it.by != EstimateSource::Statistical).map(goal).collect()
}

impl Findings for BeyondFindings {
    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        goals(&self.figures)
    }

    fn show(&self, text: &mut Text) {
        text.line(format_args!(
            "What a guest of {} needs that goes through {} to {} and swaps, on {}\n",
            figures::size(self.allocation_bytes as f64),
            figures::size(LOW.get() as f64),
            figures::size(HIGH.get() as f64),
            self.processor.as_deref().unwrap_or("an unknown processor"),
        ));
        let columns = Report::<BeyondFigures>::new()
            .text("BY", |it| it.by.name())
            .figure("ERROR", |it| percent(it.error))
            .figure("MOST", |it| percent(it.error_most))
            .figure("BIAS", |it| percent(it.bias))
            .figure("BEYOND", |it| or_none(it.error_beyond.map(percent)))
            .figure("COST", |it| percent(it.cost_cores))
            .figure("PAPER", |it| or_none(it.by.paper().map(percent)));
        text.table(&columns, &self.figures);
        text.line(
            "\nERROR: mean over the intervals of |told - needed| / needed; BEYOND: of those in which it needed more\n\
             than it held. PAPER: MEB 5.2.1, of a guest within its allocation; of this one it has a plot.",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guest needs 500, 500 and 200 MiB with 400 held, and everything in its swap moves. Swap
    /// in use is 100, 150 and 0 MiB above a working set of 400, 400 and 200: right, 10 % too much,
    /// right. By sampling the errors are 20 %, 20 % and 0.
    #[test]
    fn errors_equal_those_by_hand() {
        let mib = Bytes::mib;
        let (mut used, mut sampled) = (
            DemandReading::new(EstimateSource::SwapUsed),
            DemandReading::new(EstimateSource::Statistical),
        );
        for (truth, wss, swap) in [(500, 400, 100), (500, 400, 150), (200, 200, 0)] {
            let swap = Swap { used: mib(swap), swapped_in: mib(7), swapped_out: mib(swap) };
            used.add(mib(truth), mib(wss), swap);
            sampled.add(mib(truth), mib(wss), swap);
        }
        let (used, sampled) = (used.figures(0.0), sampled.figures(0.0));
        assert!((used.error - 0.1 / 3.0).abs() < 1e-9, "{}", used.error);
        assert!((used.error_beyond.unwrap() - 0.05).abs() < 1e-9);
        assert!((sampled.error - 0.4 / 3.0).abs() < 1e-9);
        assert!((sampled.error_beyond.unwrap() - 0.2).abs() < 1e-9);
        let goals = goals(&[used, sampled]);
        assert_eq!((goals.len(), goals[0].is_met), (1, true));
    }
}
