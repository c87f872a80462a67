//! `ballast bench solver`: the exact solver of the policy meb against the paper's dynamic
//! programme.
//!
//! Idea: both solve the same instances in the same run, one after the other, on one core, so that a
//! disturbance affects both alike. Their answers are compared. Cost: some minutes, nearly all of it
//! for the dynamic programme; `--quick` takes seconds.

mod curves;
mod measure;
mod report;
mod setup;

use curves::{Curves, CurvesName};
use report::SolverFindings;
use setup::Setup;

use crate::machine::Machine;
use crate::scaffold::{self, Say, WithGoals, chosen, name_of};
use ballast_report::Output;

/// Measure how fast the solvers of meb are.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench solver
  ballast bench solver --quick
  ballast bench solver --curves recorded --instances 40 --json > solver.json

Every guest may have 90 to 130 % of what it holds. In every other instance all guests have one size,
in the others their sizes differ up to sixteenfold; together they hold 85, 100 or 108 % of the
budget. The program is MEB's, restricted to sizes within these bounds.")]
pub struct Args {
    /// A kind of curves; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    curves: Vec<CurvesName>,
    /// Instances of each kind
    #[arg(long, value_name = "N", default_value_t = 12,
        value_parser = clap::value_parser!(u16).range(1..))]
    instances: u16,
    /// Runs of the exact solver on each instance; the program runs once
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// Use few and small instances
    #[arg(long, conflicts_with_all = ["instances", "repetitions"])]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// The solvers disagree, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    scaffold::print(args.output, &measure(args, &scaffold::say)?, WithGoals::render)
}

fn measure(args: &Args, say: Say<'_>) -> anyhow::Result<WithGoals<SolverFindings>> {
    let machine = Machine::pinned()?;
    let (instances, repetitions) = match args.quick {
        true => (2, 1),
        false => (args.instances.into(), args.repetitions.into()),
    };
    let names = chosen(&args.curves);
    let setups = if args.quick { Setup::QUICK } else { Setup::ALL };
    let curves = Curves::new()?;
    let mut figures = Vec::new();
    for setup in setups {
        for &name in &names {
            say(&format!("{}: {}", setup.name, name_of(name)));
            figures.push(measure::measure(&setup, &curves, name, instances, repetitions)?);
        }
    }
    let is_quick = args.quick;
    Ok(WithGoals::new(SolverFindings { machine, instances, repetitions, is_quick, figures }))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_quick_run_has_every_kind_of_curves() {
        let held = measure(&scaffold::parsed("--quick").unwrap(), &|_| ()).unwrap();
        let report = &held.findings;
        let expected = Setup::QUICK.len() * CurvesName::value_variants().len();
        assert_eq!(report.figures.len(), expected);
        for figures in &report.figures {
            assert!(figures.exact.processor_ms.median > 0.0, "{figures:?}");
            assert!(figures.program.processor_ms.median > 0.0, "{figures:?}");
        }
        assert!(held.goals.is_empty());
        let text = held.render(None);
        assert!(text.contains("recorded") && text.ends_with("against goals\n"), "{text}");
    }
}
