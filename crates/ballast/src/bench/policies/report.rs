//! What was measured, and whether the goal is met.

use serde::Serialize;

use super::super::goal::{Goal, Wanted::AtMost};
use super::super::machine::Machine;
use super::super::timing::{Spread, Taken};
use super::guests::Situation;
use super::measure::names;

/// A decision of any policy but `meb`, for 10,000 guests.
const MS_MAX: f64 = 5.0;

/// Everything measured in one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) version: &'static str,
    pub(super) machine: Machine,
    pub(super) guests: u64,
    /// Decisions of each.
    pub(super) repetitions: usize,
    /// Whether there were too few guests for the figures to mean anything.
    pub(super) is_quick: bool,
    pub(super) figures: Vec<Figures>,
    pub(super) goals: Vec<Goal>,
}

/// What one decision costs in a situation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) situation: &'static str,
    /// A policy, or `fairness`, or `floor`.
    pub(super) what: &'static str,
    /// That the thread had its core for.
    pub(super) processor_ms: Spread,
    /// By the clock, with whatever else ran on the core.
    pub(super) wall_ms: Spread,
    /// Median processor time against the floor's.
    pub(super) times_floor: f64,
}

/// The runs in one situation, in the order of [`names`].
pub(super) fn figures(situation: Situation, runs: &[Vec<Taken>]) -> Vec<Figures> {
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

/// What these figures are held against: the slowest situation of each policy.
pub(super) fn goals(figures: &[Figures]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for what in names().skip(1) {
        let own = || figures.iter().filter(|found| found.what == what);
        let mut goal = |which: &str, figure: fn(&Figures) -> f64| {
            let found = own().map(figure).fold(0.0, f64::max);
            goals.push(Goal::new(format!("{what}: {which}"), "ms", found, AtMost(MS_MAX)));
        };
        goal("median", |found| found.processor_ms.median);
        goal("worst run", |found| found.processor_ms.worst);
    }
    goals
}
