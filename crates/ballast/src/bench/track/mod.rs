//! `ballast bench track`: what tracking pages costs, and how right it is; a table for each question.
//!
//! Idea: the tables have nothing in common but their name on the command line and the form of their
//! goals, so each is a folder of its own that measures, reports and renders. Each has a thread of its
//! own, as some stay on a core.
//!
//! Cost: that of the tables, told in their headers.

mod cost;
mod curve;
mod granularity;
mod native;

use std::io;

use clap::ValueEnum;
use serde::Serialize;

use crate::commands::Output;

/// Measure what tracking costs, and how right it is.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench track
  ballast bench track --quick
  ballast bench track --table granularity --table curve
  ballast bench track --way sampled --program zipf --program scan --rounds 9 --json > track.json

Tables:
  cost         what tracking costs a program at the machine's own speed, and how right it is, in every way
               there is; a quarter of an hour. Each round has a window without tracking and one with it.
  granularity  cost and error by the pages that are tracked as one; ten minutes, 3 GiB
  curve        the miss curve of a sample against the exact one; five minutes

These need the privilege to use userfaultfd. --way, --program, --handler and --rounds are of the table `cost` and, without --table, select it.")]
pub struct Args {
    /// A table, as often as wanted [default: all]
    #[arg(long = "table", value_name = "NAME", value_enum)]
    tables: Vec<Table>,
    #[command(flatten)]
    cost: cost::Choice,
    /// As short as can be: too little to mean anything
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// What tracking costs a program, in every way there is
    Cost,
    /// Cost and error by the pages that are tracked as one
    Granularity,
    /// The miss curve of a sample against the exact one
    Curve,
}

/// Everything measured in one run; of tables that were not asked for nothing.
#[derive(Clone, Debug, Serialize)]
struct Report {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<cost::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granularity: Option<granularity::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curve: Option<curve::Report>,
}

/// Measures and prints; what runs is told on standard error.
///
/// # Errors
/// Something that a table needs is not built or not allowed, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut report = Report { version, cost: None, granularity: None, curve: None };
    for table in tables(args) {
        match table {
            Table::Cost => {
                let measure = || cost::measure(&args.cost, args.quick, &mut io::stderr());
                report.cost = Some(on_a_thread(measure)?);
            }
            Table::Granularity => {
                let measure = || granularity::measure(args.quick, &mut io::stderr());
                report.granularity = Some(on_a_thread(measure)?);
            }
            Table::Curve => {
                let measure = || curve::measure(args.quick, &mut io::stderr());
                report.curve = Some(on_a_thread(measure)?);
            }
        }
    }
    args.output.print(&report, render)
}

/// The tables that were asked for, in their order.
fn tables(args: &Args) -> Vec<Table> {
    let is_wanted = |table: &Table| match args.tables.is_empty() {
        true => !args.cost.is_narrowed() || *table == Table::Cost,
        false => args.tables.contains(table),
    };
    Table::value_variants().iter().copied().filter(is_wanted).collect()
}

/// On a thread of its own: where it stays, and what it starts stays too, nothing else does.
fn on_a_thread<T: Send>(measure: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let measured = scope.spawn(measure).join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn render(report: &Report, width: Option<u16>) -> String {
    let tables = [
        report.cost.as_ref().map(|it| cost::render(it, width)),
        report.granularity.as_ref().map(|it| granularity::render(it, width)),
        report.curve.as_ref().map(|it| curve::render(it, width)),
    ];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
}
