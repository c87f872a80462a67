//! The times of both solvers, and their goals.

use ballast_report::Report;
use serde::Serialize;

use super::curves::CurvesName;
use super::setup::Setup;
use crate::goal::Goal;
use crate::machine::Machine;
use crate::scaffold::{Findings, Text, VERSION, name_of};
use crate::shown::figure;
use crate::timing::{RunTime, median};

/// All figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SolverFindings {
    pub(super) machine: Machine,
    /// The number of instances of each kind.
    pub(super) instances: usize,
    /// The number of runs of the exact solver on each instance.
    pub(super) repetitions: usize,
    pub(super) is_quick: bool,
    pub(super) figures: Vec<Figures>,
}

/// Times of one solver.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// By instance: the median run.
    medians: Vec<RunTime>,
    /// All runs.
    all: Vec<RunTime>,
}

impl Times {
    /// Adds an instance with its runs.
    pub(super) fn push(&mut self, runs: &[RunTime]) {
        let median = |time: fn(&RunTime) -> f64| median(runs.iter().map(time));
        let (processor, wall) = (median(|run| run.processor), median(|run| run.wall));
        self.medians.push(RunTime { processor, wall });
        self.all.extend(runs);
    }

    fn summary(&self) -> Summary {
        let spread = |time: fn(&RunTime) -> f64| Spread {
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
    /// Processor time of the thread.
    pub(super) processor_ms: Spread,
    /// Wall-clock time, which includes whatever else ran on the core.
    pub(super) wall_ms: Spread,
}

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    /// The median over the instances' median runs.
    pub(super) median: f64,
    /// The slowest instance's median run.
    pub(super) worst_instance: f64,
    /// The slowest run of all instances.
    pub(super) worst_run: f64,
}

/// Both solvers on one kind of curves.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) setup: &'static str,
    pub(super) curves: String,
    pub(super) exact: Summary,
    /// The paper's dynamic programme.
    pub(super) program: Summary,
    /// Its median processor time against the exact solver's.
    pub(super) times_program: f64,
    /// The least ratio over the instances.
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
        let curves = name_of(name);
        let mut goals = Vec::new();
        if name.is_natural() {
            let what = |what: &str| format!("{}, {curves}: {what}", setup.name);
            let Spread { median, worst_instance, .. } = exact.processor_ms;
            goals.push(Goal::at_most(what("median"), "ms", median, setup.ms_max));
            goals.push(Goal::at_most(what("worst instance"), "ms", worst_instance, setup.ms_max));
            if let Some(times) = setup.times_min {
                let found = times_program;
                goals.push(Goal::at_least(what("times the program, median"), "", found, times));
                goals.push(Goal::at_least(what("times the program, least"), "", least, times));
            }
        }
        Self {
            setup: setup.name,
            curves,
            exact,
            program,
            times_program,
            times_program_least: least,
            goals,
        }
    }
}

impl Findings for SolverFindings {
    const QUICK_REMARK: &'static str =
        "quick instances are too small for figures to be held against goals";

    fn is_quick(&self) -> bool {
        self.is_quick
    }

    fn goals(&self) -> Vec<Goal> {
        self.figures.iter().flat_map(|it| it.goals.clone()).collect()
    }

    fn show(&self, text: &mut Text) {
        text.line(self.machine.line());
        text.line(format_args!(
            "figures    ballast {VERSION}, milliseconds; {} instances of each kind, {} runs of exact on each, one of\n           the program; both give the same allocation for all of them",
            self.instances, self.repetitions
        ));
        let columns = Report::<Figures>::new()
            .text("CURVES", |it| it.curves.clone())
            .figure("EXACT", |it| figure(it.exact.processor_ms.median))
            .figure("WORST INSTANCE", |it| figure(it.exact.processor_ms.worst_instance))
            .figure("WORST RUN", |it| figure(it.exact.processor_ms.worst_run))
            .figure("BY THE CLOCK", |it| figure(it.exact.wall_ms.median))
            .figure("WORST RUN", |it| figure(it.exact.wall_ms.worst_run))
            .figure("PROGRAM", |it| figure(it.program.processor_ms.median))
            .figure("× PROGRAM", |it| figure(it.times_program))
            .figure("LEAST", |it| figure(it.times_program_least));
        for setup in self.figures.chunk_by(|a, b| a.setup == b.setup) {
            text.line(format_args!("\n{}", setup[0].setup));
            text.table(&columns, setup);
        }
    }
}
