//! `ballast bench track`: what tracking pages costs, and how right it is; a table for each question.
//!
//! Idea: the tables have nothing in common but their name on the command line and the form of their
//! goals, so each is a folder of its own that measures, reports and renders. Each has a thread of its
//! own, as some stay on a core.
//!
//! Cost: that of the tables, told in their headers.

mod beyond;
mod cost;
mod curve;
mod granularity;
mod guests;
mod native;

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::machine;
use crate::commands::Output;
use crate::figures;

/// Measure what tracking costs, and how right it is.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench track
  ballast bench track --quick
  ballast bench track --table granularity --table curve
  ballast bench track --table guests --guest random-array --guest redis
  ballast bench track --way sampled --program zipf --program scan --rounds 9 --json > track.json

Tables:
  cost         what tracking costs a program at the machine's own speed, and how right it is, in every way
               there is; a quarter of an hour. Each round has a window without tracking and one with it.
  granularity  cost and error by the pages that are tracked as one; ten minutes, 3 GiB
  curve        the miss curve of a sample against the exact one; five minutes
  guests       working sets of emulated guests against the emulator's own record of every page they touched: what
               the daemon tells, every granule, and statistical sampling; a quarter of an hour
  beyond       what a guest needs that holds too little and swaps, by tracker and swap, and by statistical
               sampling; five minutes

These need the privilege to use userfaultfd. --way, --program, --handler and --rounds are of the table `cost`, --guest
is of the table `guests`; without --table they select it (but for --rounds).")]
pub struct Args {
    /// A table, as often as wanted [default: all]
    #[arg(long = "table", value_name = "NAME", value_enum)]
    tables: Vec<Table>,
    #[command(flatten)]
    cost: cost::Choice,
    #[command(flatten)]
    guests: guests::Choice,
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
    /// How right working sets of real guests are
    Guests,
    /// What a guest needs beyond what it holds
    Beyond,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    guests: Option<guests::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<beyond::Report>,
}

/// Measures and prints; what runs is told on standard error.
///
/// # Errors
/// Something that a table needs is not built or not allowed, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut report =
        Report { version, cost: None, granularity: None, curve: None, guests: None, beyond: None };
    let say = |line: &str| {
        // Nobody reads it, or somebody does: the figures are the same.
        let _ = writeln!(io::stderr(), "{line}");
    };
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
            Table::Guests => {
                let measure =
                    || guests::measure(&args.guests, args.quick, machine::processor(), &say);
                report.guests = Some(on_a_thread(measure)?);
            }
            Table::Beyond => {
                let measure = || beyond::measure(args.quick, machine::processor(), &say);
                report.beyond = Some(on_a_thread(measure)?);
            }
        }
    }
    args.output.print(&report, render)
}

/// The tables that were asked for, in their order.
fn tables(args: &Args) -> Vec<Table> {
    let is_narrowed = args.cost.is_narrowed() || args.guests.is_narrowed();
    let is_wanted = |table: &Table| match args.tables.is_empty() {
        true => match table {
            Table::Cost => args.cost.is_narrowed() || !is_narrowed,
            Table::Guests => args.guests.is_narrowed() || !is_narrowed,
            Table::Granularity | Table::Curve | Table::Beyond => !is_narrowed,
        },
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

/// A share in per cent, three digits of it.
fn percent(share: f64) -> String {
    match share.abs() {
        _ if !share.is_finite() => figures::NONE.to_owned(),
        it if it >= 1.0 => format!("{:.0} %", share * 100.0),
        it if it >= 0.1 => format!("{:.1} %", share * 100.0),
        _ => format!("{:.2} %", share * 100.0),
    }
}

fn render(report: &Report, width: Option<u16>) -> String {
    let tables = [
        report.cost.as_ref().map(|it| cost::render(it, width)),
        report.granularity.as_ref().map(|it| granularity::render(it, width)),
        report.curve.as_ref().map(|it| curve::render(it, width)),
        report.guests.as_ref().map(|it| guests::render(it, width)),
        report.beyond.as_ref().map(|it| beyond::render(it, width)),
    ];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn chosen(words: &str) -> Option<Vec<Table>> {
        let line = Line::try_parse_from(words.split_whitespace()).ok()?;
        Some(tables(&line.args))
    }

    #[test]
    fn tables_are_chosen_by_name_or_by_what_belongs_to_one() {
        assert_eq!(chosen("track"), Some(Table::value_variants().to_vec()));
        assert_eq!(chosen("track --quick --table guests"), Some(vec![Table::Guests]));
        let two = "track --table beyond --table cost --way sampled";
        assert_eq!(chosen(two), Some(vec![Table::Cost, Table::Beyond]));
        assert_eq!(chosen("track --guest redis"), Some(vec![Table::Guests]));
        assert_eq!(chosen("track --way sampled --rounds 2"), Some(vec![Table::Cost]));
        for wrong in ["track --table nosuch", "track --guest nosuch", "track --quick --rounds 2"] {
            assert_eq!(chosen(wrong), None, "{wrong}");
        }
    }
}
