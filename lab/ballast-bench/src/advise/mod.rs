//! `ballast bench advise`: how close advice from a journal comes to the effect of balancing.
//!
//! Idea: a scenario is simulated twice. First it is observed: nothing moves, and a real journal is
//! recorded, from which the code of `ballast advise` makes the advice. Then the same scenario is
//! balanced, and what happens to its guests is compared with the promises.
//! Limits: everything is simulated; guests and their disks are models.

mod hosts;
mod measure;
mod record;
mod report;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use ballast_model::PolicyName;
use ballast_report::Output;
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;

use crate::scaffold::{self, Say, WithGoals};
use hosts::AdviceHost;
use report::AdviceFindings;

/// Measure how near advice from a journal comes to what balancing then does.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench advise
  ballast bench advise --quick
  ballast bench advise --policy self-scheduling scenarios/meb-16.toml
  ballast bench advise --json > advise.json

Each host is simulated twice: observed, with a journal, and balanced. OFF is the difference between
the advice and the outcome. If guests swapped before the record began and no agent says how much,
the advice is an upper bound, and is checked as one. Without files, the benchmark simulates its own
hosts, an hour each.")]
pub struct Args {
    /// Scenario files to simulate instead of the benchmark's own hosts
    #[arg(value_name = "FILE")]
    scenarios: Vec<PathBuf>,
    /// Policies, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "self-scheduling,global"
    )]
    policy: Vec<PolicyName>,
    /// Simulate ten minutes of each host; too short for the goals
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// A scenario cannot be read or simulated, a policy cannot be replayed, or standard output cannot
/// be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    scaffold::print(args.output, &compare(args, &scaffold::say)?, WithGoals::render)
}

fn compare(args: &Args, say: Say<'_>) -> anyhow::Result<WithGoals<AdviceFindings>> {
    let duration = Duration::from_secs(if args.quick { 600 } else { 3600 });
    let hosts: Vec<AdviceHost> = match args.scenarios.as_slice() {
        [] => hosts::all(duration)?,
        files => files.iter().map(read).collect::<anyhow::Result<_>>()?,
    };
    let mut figures = Vec::new();
    for host in &hosts {
        for policy in &args.policy {
            say(&format!("{}: {policy}", host.scenario.name));
            figures.push(measure::measure(host, *policy)?);
        }
    }
    Ok(WithGoals::new(AdviceFindings { is_quick: args.quick, figures }))
}

fn read(file: &PathBuf) -> anyhow::Result<AdviceHost> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let scenario = ScenarioFile::parse(&text, file)?.scenario;
    Ok(AdviceHost { scenario, unrecorded: Duration::ZERO })
}
