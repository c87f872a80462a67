//! `ballast bench sim`: how much faster than real time a host is simulated.
//!
//! Idea: the same busy host under each policy in turn, so that a disturbance affects all alike. It
//! is simulated in blocks of 1 MiB, as in `ballast simulate`, and page by page, as in a simulator
//! that does not group pages. Cost: some minutes, most of it for the pages; `--quick` takes
//! seconds.

mod crowd;
mod measure;
mod report;

use ballast_model::PolicyName;
use measure::Setup;
use report::SimFindings;

use crate::machine::Machine;
use crate::scaffold::{self, Say, WithGoals};
use ballast_report::Output;

/// Measure how much faster than real time hosts are simulated.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench sim
  ballast bench sim --quick
  ballast bench sim --policy global,meb --repetitions 21 --json > sim.json

Guests of 1 GiB on a host with half the memory that they want grow, jump, visit pages at random and
read files, at ticks of a second, with every source of figures. The same host is also simulated page
by page, and with a thousand guests; these two are run less often.")]
pub struct Args {
    /// Policies, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "static,global,meb,tws,round-robin"
    )]
    policy: Vec<PolicyName>,
    /// Runs of 16 guests under each policy
    #[arg(long, value_name = "N", default_value_t = 11,
        value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// Simulate few guests for a few seconds, once per policy
    #[arg(long, conflicts_with = "repetitions")]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// A host cannot be simulated, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    scaffold::print(args.output, &measure(args, &scaffold::say)?, WithGoals::render)
}

fn measure(args: &Args, say: Say<'_>) -> anyhow::Result<WithGoals<SimFindings>> {
    let machine = Machine::pinned()?;
    let mut policies = args.policy.clone();
    policies.sort_unstable();
    policies.dedup();
    let setups = if args.quick { Setup::QUICK } else { Setup::ALL };
    let repetitions = if args.quick { 1 } else { args.repetitions.into() };
    let mut measured = Vec::new();
    for setup in setups {
        let repetitions = setup.repetitions_max.min(repetitions);
        let progress = |repetition: usize, policy: PolicyName| {
            let Setup { name, .. } = setup;
            say(&format!("{name} {}/{repetitions}: {policy}", repetition + 1));
        };
        measured.push((setup, measure::measure(&setup, &policies, repetitions, progress)?));
    }
    let (figures, goals) = report::figures(&measured, &policies);
    Ok(WithGoals::new(SimFindings { machine, is_quick: args.quick, figures, goals }))
}

#[cfg(test)]
mod tests;
