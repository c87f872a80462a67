//! The comparison of policies on one scenario.
//!
//! Idea: two baselines for all ratios: one run with unlimited memory and one under `static`, which
//! runs only once even if it is also requested.
//! Cost: one run per policy and two more.

use std::time::Duration;

use ballast_model::PolicyName;
use ballast_policy::{Policy, build};

use crate::report::{ComparisonReport, PolicyReport};
use crate::scenario::Scenario;
use crate::scenario_error::ScenarioError;
use crate::simulation::{Simulation, UNLIMITED};

/// Number of progress reports per run.
const PROGRESS_STEPS: u64 = 100;

/// The progress of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The policy of the current run.
    pub policy: PolicyName,
    /// Runs completed.
    pub runs_done: usize,
    /// Runs in total.
    pub runs: usize,
    /// Virtual time of the current run so far.
    pub now: Duration,
    /// Virtual time of each run.
    pub duration: Duration,
}

/// Builds the policy of that name with the scenario's settings.
pub fn named(scenario: &Scenario, name: PolicyName) -> Box<dyn Policy> {
    build(name, scenario.control.policy_settings.clone())
}

/// Runs a scenario under each of these policies.
///
/// # Errors
/// When the scenario is invalid.
pub fn compare(
    scenario: &Scenario,
    policies: Vec<Box<dyn Policy>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<ComparisonReport, ScenarioError> {
    let is_asked = policies.iter().any(|policy| policy.name() == PolicyName::Static);
    let runs = policies.len() + if is_asked { 1 } else { 2 };
    let mut runs_done = 0;
    let mut run = |simulation: Simulation, policy| {
        let at =
            Progress { policy, runs_done, runs, now: Duration::ZERO, duration: scenario.duration };
        runs_done += 1;
        run_to_end(simulation, scenario.ticks(), at, progress)
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
    Ok(ComparisonReport {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        duration: scenario.duration,
        budget: scenario.budget(),
        policies: reports,
    })
}

/// Runs to the end and reports progress.
fn run_to_end(
    mut simulation: Simulation,
    ticks: u64,
    mut at: Progress,
    progress: &mut dyn FnMut(Progress),
) -> PolicyReport {
    let every = (ticks / PROGRESS_STEPS).max(1);
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
