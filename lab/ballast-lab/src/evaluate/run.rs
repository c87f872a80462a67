//! Runs one job.
//!
//! Idea: a job does the same as an existing command, or a part of one, with the same code; its
//! result is that command's JSON.

use std::path::Path;

use anyhow::Context;
use ballast_estimate::phase::IntermittentSettings;
use ballast_scenario_run::part::Part;
use ballast_scenario_run::simulate::contestants::Contestants;
use ballast_scenario_run::simulate::json::SimulationJson;
use ballast_scenario_run::simulate::progress::Bar;
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;
use ballast_scenario_run::{Call, Live, play_part};
use ballast_sim::compare;
use serde_json::{Value, json};

use super::job::{Job, Task, lab_scenario, read_bounded};
use super::time_left::Load;
use crate::imt::json::Figures;
use crate::imt::{parse_with, runs::runs};

/// Runs that every simulation adds to those of its policies: unlimited memory, and `static`.
const BASELINE_RUNS: usize = 2;

/// Runs `job` in `call`; returns its result.
///
/// # Errors
/// An input is wrong, anything needed is missing, or a run fails.
pub(crate) async fn run(job: &Job, scenarios: &Path, call: &Call) -> anyhow::Result<Value> {
    match (&job.task, &job.part) {
        (Task::Simulate { scenario, policies }, _) => {
            simulate(&scenarios.join(scenario), policies.as_deref(), job.repetition)
        }
        (Task::Lab { scenario }, part) => {
            let part = part.as_ref().context("a job of real guests has no part")?;
            lab(&scenarios.join(scenario), part, job.repetition, call).await
        }
        (Task::Series { events, .. }, _) => replay(&job.task, events, scenarios),
    }
}

fn simulate(path: &Path, policies: Option<&str>, repetition: u32) -> anyhow::Result<Value> {
    let (mut file, contestants) = simulation(path, policies)?;
    file.scenario.seed = file.scenario.seed.wrapping_add(u64::from(repetition.saturating_sub(1)));
    let bar = Bar::default();
    let policies = contestants.build(&file.scenario.control.policy_settings);
    let report = compare(&file.scenario, policies, &mut |at| bar.show(at))
        .with_context(|| path.display().to_string())?;
    drop(bar);
    Ok(serde_json::to_value(SimulationJson::new(&report, &file.paper, false))?)
}

fn simulation(path: &Path, policies: Option<&str>) -> anyhow::Result<(ScenarioFile, Contestants)> {
    let file = ScenarioFile::parse(&read_bounded(path)?, path)?;
    let contestants = match policies {
        Some(list) => list.parse().map_err(anyhow::Error::msg)?,
        None => Contestants::new(file.policies.clone()),
    };
    Ok((file, contestants))
}

async fn lab(path: &Path, part: &Part, repetition: u32, call: &Call) -> anyhow::Result<Value> {
    let scenario = lab_scenario(path)?;
    let mut live = Live::default();
    let played = play_part(&scenario, part, repetition, (1, 1), call, &mut live).await?;
    Ok(serde_json::to_value(played)?)
}

fn replay(task: &Task, events: &str, scenarios: &Path) -> anyhow::Result<Value> {
    let mut all = Vec::new();
    for path in task.inputs(scenarios)? {
        let text = read_bounded(&path)?;
        let series = parse_with(text.as_bytes(), events)
            .map_err(|fault| anyhow::anyhow!("{}:{fault}", path.display()))?;
        let runs = runs(&series, IntermittentSettings::default());
        let figures: Vec<Figures> = runs.iter().map(Figures::from).collect();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        all.push(json!({"series": name, "runs": figures}));
    }
    Ok(Value::Array(all))
}

/// What the time of `job` depends on; nothing if that cannot be read.
pub(crate) fn load(job: &Job, scenarios: &Path) -> Load {
    match &job.task {
        Task::Simulate { scenario, policies } => {
            let read = simulation(&scenarios.join(scenario), policies.as_deref());
            Load::Simulated(read.map_or(0.0, |(file, contestants)| {
                let runs = contestants.count() + BASELINE_RUNS;
                let guests = file.scenario.guests.len();
                file.scenario.duration.as_secs_f64() * (runs * guests) as f64
            }))
        }
        Task::Lab { scenario } => {
            let read = lab_scenario(&scenarios.join(scenario)).ok().zip(job.part.as_ref());
            let expected = read.map(|(scenario, part)| part.expected(&scenario));
            Load::Seconds(expected.unwrap_or_default().as_secs_f64())
        }
        Task::Series { .. } => Load::Seconds(1.0),
    }
}
