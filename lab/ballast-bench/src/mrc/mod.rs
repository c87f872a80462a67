//! `ballast bench mrc`: compares engines for stack distances.
//!
//! Idea: one run on one core measures every engine on the same references, together with the floor
//! that no exact engine can beat and with published rivals, and compares the figures with the
//! goals.
//! Cost: ten minutes and 600 MB, more with traces; `--quick` takes seconds, and its figures mean
//! little.

mod contender;
mod fenwick;
mod floor;
mod measure;
mod report;
mod rival;
mod splay;
mod workload;

pub(super) use workload::recorded;

use std::path::PathBuf;

use ballast_mrc::Exact;
use contender::ContenderName;
use measure::Plan;
use report::MrcFindings;
use workload::{Workload, WorkloadName};

use crate::machine::Machine;
use crate::scaffold::{self, Say, WithGoals, chosen, name_of};
use ballast_report::{Output, harmless_line};

/// Measure the speed and accuracy of the engines for stack distances.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench mrc
  ballast bench mrc --quick
  ballast bench mrc --workload zipf --workload mix --repetitions 9 --json > mrc.json
  ballast bench mrc --trace app.pg.zst --engine floor --engine avl --engine exact

The floor is the least work of any exact engine: it looks up and sets a page's latest reference, and
counts it in a histogram of the same size. Splay and fenwick are rivals whose index of pages costs
nothing. scripts/record-traces records page traces of your own programs.")]
pub struct Args {
    /// A workload; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    workload: Vec<WorkloadName>,
    /// A trace of page numbers to use instead of the built-in workloads; repeatable
    #[arg(long, value_name = "FILE", num_args = 1..)]
    trace: Vec<PathBuf>,
    /// An engine; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    engine: Vec<ContenderName>,
    /// Runs of each engine on each workload; the result is their median
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// Run each engine once on small workloads
    #[arg(long, conflicts_with_all = ["repetitions", "trace"])]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// A trace cannot be read, engines disagree, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    scaffold::print(args.output, &measure(args, &scaffold::say)?, WithGoals::render)
}

fn measure(args: &Args, say: Say<'_>) -> anyhow::Result<WithGoals<MrcFindings>> {
    let machine = Machine::pinned()?;
    let repetitions = if args.quick { 1 } else { args.repetitions.into() };
    let contenders = chosen(&args.engine);
    let plan = Plan { contenders, repetitions, is_quick: args.quick };
    let names = match args.trace.is_empty() {
        true => chosen(&args.workload),
        false => args.workload.clone(),
    };
    let named = names.iter().map(|&name| Workload::named(name, args.quick));
    // Only one workload at a time is in memory.
    let workloads = named.chain(args.trace.iter().map(|path| Workload::from_file(path)));
    let mut reports = Vec::new();
    for workload in workloads {
        let workload = workload?;
        let progress = |repetition, name: ContenderName| {
            let (workload, name) = (harmless_line(&workload.name), name_of(name));
            say(&format!("{workload} {}/{repetitions}: {name}", repetition + 1));
        };
        reports.push(measure::measure(&workload, &plan, progress)?);
    }
    Ok(WithGoals::new(MrcFindings {
        machine,
        exact_path: Exact::new().path(),
        repetitions,
        is_quick: args.quick,
        workloads: reports,
    }))
}

#[cfg(test)]
mod tests;
