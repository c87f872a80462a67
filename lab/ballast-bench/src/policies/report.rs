//! The cost of decisions, and its goals.

use ballast_report::Report;
use serde::Serialize;

use super::guests::Situation;
use super::measure::names;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text, VERSION};
use crate::shown::figure;
use crate::timing::{RunTime, Spread};

/// The goal for a decision of any policy but `meb` with 10,000 guests, in milliseconds.
const MS_MAX: f64 = 5.0;

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PolicyFindings {
    pub(super) machine: Machine,
    pub(super) guests: u64,
    /// The number of decisions of each.
    pub(super) repetitions: usize,
    pub(super) is_quick: bool,
    pub(super) figures: Vec<Figures>,
}

/// The cost of one decision in a situation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) situation: &'static str,
    /// A policy, or `fairness`, or `floor`.
    pub(super) what: &'static str,
    /// Processor time of the thread.
    pub(super) processor_ms: Spread,
    /// Wall-clock time, which includes whatever else ran on the core.
    pub(super) wall_ms: Spread,
    /// Median processor time against the floor's.
    pub(super) times_floor: f64,
}

/// The figures of runs in one situation, in the order of [`names`].
pub(super) fn figures(situation: Situation, runs: &[Vec<RunTime>]) -> Vec<Figures> {
    let mut figures: Vec<Figures> = names()
        .zip(runs)
        .map(|(what, runs)| Figures {
            situation: situation.as_str(),
            what,
            processor_ms: Spread::of_costs(runs.iter().map(|run| 1e3 * run.processor)),
            wall_ms: Spread::of_costs(runs.iter().map(|run| 1e3 * run.wall)),
            times_floor: 1.0,
        })
        .collect();
    let floor = figures.first().map_or(0.0, |floor| floor.processor_ms.median);
    for found in &mut figures {
        found.times_floor = found.processor_ms.median / f64::max(floor, 1e-6);
    }
    figures
}

/// The goals; each policy's slowest situation counts.
pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let of = |what: &'static str| {
        let slowest = |figure: fn(&Figures) -> f64| {
            figures.iter().filter(|it| it.what == what).map(figure).fold(0.0, f64::max)
        };
        let (median, worst) =
            (slowest(|it| it.processor_ms.median), slowest(|it| it.processor_ms.worst));
        [
            Goal::at_most(format!("{what}: median"), "ms", median, MS_MAX),
            Goal::at_most(format!("{what}: worst run"), "ms", worst, MS_MAX),
        ]
    };
    names().skip(1).flat_map(of).collect()
}

impl Findings for PolicyFindings {
    const QUICK_REMARK: &'static str =
        "few guests are too few for figures to be held against goals";

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        goals(&self.figures)
    }

    fn show(&self, text: &mut Text) {
        text.line(self.machine.line());
        text.line(format_args!(
            "figures    ballast {VERSION}, milliseconds a decision for {} guests; {} decisions of each, in turn",
            self.guests, self.repetitions
        ));
        let columns = Report::<Figures>::new()
            .text("", |it| it.what)
            .figure("MEDIAN", |it| figure(it.processor_ms.median))
            .figure("WORST RUN", |it| figure(it.processor_ms.worst))
            .figure("BY THE CLOCK", |it| figure(it.wall_ms.median))
            .figure("WORST RUN", |it| figure(it.wall_ms.worst))
            .figure("× FLOOR", |it| figure(it.times_floor));
        for situation in self.figures.chunk_by(|a, b| a.situation == b.situation) {
            text.line(format_args!("\n{}", situation[0].situation));
            text.table(&columns, situation);
        }
    }
}
