//! What was measured, and whether the goals are met.

use serde::Serialize;

use super::super::goal::{
    Goal,
    Wanted::{AtLeast, AtMost},
};
use super::super::machine::Machine;
use super::super::timing::{Taken, median};
use super::curves::CurvesName;
use super::measure::Setup;

/// Everything measured in one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) machine: Machine,
    /// Of each kind.
    pub(super) instances: usize,
    /// Runs of the exact solver on each.
    pub(super) repetitions: usize,
    /// Whether instances were too few and small for the figures to mean anything.
    pub(super) is_quick: bool,
    pub(super) figures: Vec<Figures>,
    pub(super) goals: Vec<Goal>,
}

/// Times of one solver.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Per instance: the median run.
    medians: Vec<Taken>,
    /// All runs.
    all: Vec<Taken>,
}

impl Times {
    /// Adds an instance with its runs.
    pub(super) fn push(&mut self, runs: &[Taken]) {
        let median = |time: fn(&Taken) -> f64| median(runs.iter().map(time));
        let (processor, wall) = (median(|run| run.processor), median(|run| run.wall));
        self.medians.push(Taken { processor, wall });
        self.all.extend(runs);
    }

    fn summary(&self) -> Summary {
        let spread = |time: fn(&Taken) -> f64| Spread {
            median: median(self.medians.iter().map(time)),
            worst_instance: self.medians.iter().map(time).fold(0.0, f64::max),
            worst_run: self.all.iter().map(time).fold(0.0, f64::max),
        };
        Summary {
            processor_ms: spread(|run| 1e3 * run.processor),
            wall_ms: spread(|run| 1e3 * run.wall),
        }
    }
}

/// One solver's times.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Summary {
    /// That it had the core for.
    pub(super) processor_ms: Spread,
    /// By the clock, with whatever else ran on the core.
    pub(super) wall_ms: Spread,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    /// Of the instances' median runs.
    pub(super) median: f64,
    /// The slowest instance's median run.
    pub(super) worst_instance: f64,
    /// The slowest run of any.
    pub(super) worst_run: f64,
}

/// Both solvers on one kind of curves.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) setup: &'static str,
    pub(super) curves: &'static str,
    pub(super) exact: Summary,
    /// The paper's dynamic programme.
    pub(super) program: Summary,
    /// Its median processor time against the exact solver's.
    pub(super) times_program: f64,
    /// The least ratio of any instance.
    pub(super) times_program_least: f64,
    #[serde(skip)]
    goals: Vec<Goal>,
}

impl Figures {
    pub(super) fn new(setup: &Setup, name: CurvesName, exact: &Times, program: &Times) -> Self {
        let ratio = |program: f64, exact: f64| program / f64::max(exact, 1e-9);
        let pairs = program.medians.iter().zip(&exact.medians);
        let least = pairs
            .map(|(program, exact)| ratio(program.processor, exact.processor))
            .fold(f64::MAX, f64::min);
        let (exact, program) = (exact.summary(), program.summary());
        let times_program = ratio(program.processor_ms.median, exact.processor_ms.median);
        let mut goals = Vec::new();
        let mut goal = |what: &str, unit, found, wanted| {
            goals.push(Goal::new(
                format!("{}, {}: {what}", setup.name, name.as_str()),
                unit,
                found,
                wanted,
            ));
        };
        if name.is_natural() {
            goal("median", "ms", exact.processor_ms.median, AtMost(setup.ms_max));
            goal("worst instance", "ms", exact.processor_ms.worst_instance, AtMost(setup.ms_max));
            if let Some(times) = setup.times_min {
                goal("times the program, median", "", times_program, AtLeast(times));
                goal("times the program, least", "", least, AtLeast(times));
            }
        }
        Self {
            setup: setup.name,
            curves: name.as_str(),
            exact,
            program,
            times_program,
            times_program_least: least,
            goals,
        }
    }

    /// The goals that these figures can tell of.
    pub(super) fn goals(&self) -> Vec<Goal> {
        self.goals.clone()
    }
}
