//! Policies side by side on one scenario.
//!
//! Idea: one run with unlimited memory and one under `static` are what all others are measured
//! against; `static` is run once, also where it is among those asked for.
//! Cost: a run for each policy and two more.

use std::time::Duration;

use ballast_model::PolicyName;
use ballast_policy::{Policy, build};

use crate::report::{PolicyReport, Report};
use crate::scenario::Scenario;
use crate::scenario_error::ScenarioError;
use crate::simulation::{Simulation, UNLIMITED};

/// Times that a run tells how far it is.
const TOLD: u64 = 100;

/// How far a comparison is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The policy under way.
    pub policy: PolicyName,
    /// Runs that are done.
    pub runs_done: usize,
    /// Runs there are.
    pub runs: usize,
    /// Virtual time of this run so far.
    pub now: Duration,
    /// Virtual time of each run.
    pub duration: Duration,
}

/// The policy of that name, as the scenario's settings have it.
pub fn named(scenario: &Scenario, name: PolicyName) -> Box<dyn Policy> {
    build(name, scenario.control.policy_settings.clone())
}

/// Runs a scenario under each of these policies.
///
/// # Errors
/// Why the scenario cannot be.
pub fn compare(
    scenario: &Scenario,
    policies: Vec<Box<dyn Policy>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ScenarioError> {
    let is_asked = policies.iter().any(|policy| policy.name() == PolicyName::Static);
    let runs = policies.len() + if is_asked { 1 } else { 2 };
    let mut runs_done = 0;
    let mut run = |simulation: Simulation, policy| {
        let at =
            Progress { policy, runs_done, runs, now: Duration::ZERO, duration: scenario.duration };
        runs_done += 1;
        to_the_end(simulation, scenario.ticks(), at, progress)
    };
    let unlimited = run(Simulation::unlimited(scenario)?, UNLIMITED);
    let equal = Simulation::new(scenario, named(scenario, PolicyName::Static))?;
    let equal = run(equal, PolicyName::Static);
    let mut reports = Vec::with_capacity(policies.len());
    for policy in policies {
        let name = policy.name();
        let mut report = match name {
            PolicyName::Static => equal.clone(),
            _ => run(Simulation::new(scenario, policy)?, name),
        };
        report.compare(&unlimited, &equal);
        reports.push(report);
    }
    Ok(Report {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        duration: scenario.duration,
        budget: scenario.budget(),
        policies: reports,
    })
}

/// Runs to the end, telling how far it is.
fn to_the_end(
    mut simulation: Simulation,
    ticks: u64,
    mut at: Progress,
    progress: &mut dyn FnMut(Progress),
) -> PolicyReport {
    let every = (ticks / TOLD).max(1);
    let mut tick = 0u64;
    while simulation.step() {
        tick += 1;
        if tick.is_multiple_of(every) {
            at.now = simulation.now();
            progress(at);
        }
    }
    simulation.report()
}
