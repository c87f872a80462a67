//! `ballast bench policies`: what one decision of each policy costs with ten thousand guests.
//!
//! Idea: all policies decide for the same guests in the same run, in turn. Two more rows are the
//! floor, an answer without any thought, and the index of fairness, which is computed beside every
//! policy.
//! Cost: some seconds.

mod guests;
mod measure;
mod report;

use guests::Situation;
use report::PolicyFindings;

use crate::machine::Machine;
use crate::scaffold::{self, Say, WithGoals};
use ballast_report::Output;

/// Measure what one decision of each policy costs.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench policies
  ballast bench policies --quick
  ballast bench policies --repetitions 201 --json > policies.json

Guests have every input that policies use, and rents, taxes and prices are due at every decision.
  ample       there is more memory than guests want
  bare        guests want more than there is; only the memory in use is known
  short       guests want more than there is
  priorities  the same, with three priorities
  ceilings    the division reaches the guests' ceilings one after the other
The floor is a policy that lets every guest keep what it has. `ballast bench solver` measures meb.")]
pub struct Args {
    /// Decisions of each policy in each situation
    #[arg(long, value_name = "N", default_value_t = 51,
        value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// Measure one decision of each policy with few guests
    #[arg(long, conflicts_with = "repetitions")]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// The number of guests in the goal.
const GUESTS: u64 = 10_000;
const GUESTS_QUICK: u64 = 300;

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    scaffold::print(args.output, &measure(args, &scaffold::say)?, WithGoals::render)
}

fn measure(args: &Args, say: Say<'_>) -> anyhow::Result<WithGoals<PolicyFindings>> {
    let machine = Machine::pinned()?;
    let (guests, repetitions) = match args.quick {
        true => (GUESTS_QUICK, 1),
        false => (GUESTS, args.repetitions.into()),
    };
    let mut figures = Vec::new();
    for situation in Situation::ALL {
        say(&format!("{guests} guests: {}", situation.as_str()));
        let runs = measure::measure(situation, guests, repetitions)?;
        figures.extend(report::figures(situation, &runs));
    }
    let is_quick = args.quick;
    Ok(WithGoals::new(PolicyFindings { machine, guests, repetitions, is_quick, figures }))
}

#[cfg(test)]
mod tests;
