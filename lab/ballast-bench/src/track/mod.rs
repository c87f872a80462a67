//! `ballast bench track`: what tracking pages costs, and how accurate it is; one table for each
//! question.
//!
//! Idea: the tables share only their place on the command line and the form of their goals, so each
//! is a separate folder that measures, reports and renders. Each runs on its own thread, because
//! some pin their thread to a core.
//!
//! Cost: see the header of each table.

mod beyond;
mod cost;
mod curve;
mod granularity;
mod guests;
mod native;

use clap::ValueEnum;
use serde::Serialize;

use self::beyond::BeyondFindings;
use self::cost::report::CostFindings;
use self::curve::report::CurveFindings;
use self::granularity::report::GranularityFindings;
use self::guests::report::GuestFindings;
use crate::scaffold::{self, WithGoals};
use ballast_report::Output;

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
  cost         cost and accuracy of every way to track a program at the machine's own speed. Each
               round has a window without tracking and one with it. 15 minutes
  granularity  cost and error by the number of pages tracked as one; 10 minutes, 3 GiB
  curve        the miss curve of a sample against the exact one; 5 minutes
  guests       working sets of emulated guests as seen by the daemon, by tracking every granule, and
               by statistical sampling, against the emulator's own record of every page touched;
               15 minutes
  beyond       what a guest needs that holds too little and swaps, by the tracker and its swap, and
               by statistical sampling; 5 minutes

The tables need the privilege to use userfaultfd. --way, --program, --handler and --rounds apply to
the table `cost`, --guest to the table `guests`. Without --table, all of them but --rounds select
their table.")]
pub struct Args {
    /// A table to measure; repeatable [default: all]
    #[arg(long = "table", value_name = "NAME", value_enum)]
    tables: Vec<Table>,
    #[command(flatten)]
    cost: cost::Choice,
    #[command(flatten)]
    guests: guests::Choice,
    /// Measure as briefly as possible; too short for meaningful figures
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// A table.
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

/// All figures of one run; tables that were not requested are `None`.
#[derive(Debug, Default, Serialize)]
struct TrackFindings {
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<WithGoals<CostFindings>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    granularity: Option<WithGoals<GranularityFindings>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curve: Option<WithGoals<CurveFindings>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guests: Option<WithGoals<GuestFindings>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<WithGoals<BeyondFindings>>,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// Something that a table needs is not built or not permitted, or standard output cannot be
/// written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let say = scaffold::say;
    let quick = args.quick;
    let mut found = TrackFindings::default();
    for table in tables(args) {
        on_a_thread(|| {
            match table {
                Table::Cost => found.cost = Some(cost::measure(&args.cost, quick, &say)?),
                Table::Granularity => found.granularity = Some(granularity::measure(quick, &say)?),
                Table::Curve => found.curve = Some(curve::measure(quick, &say)?),
                Table::Guests => found.guests = Some(guests::measure(&args.guests, quick, &say)?),
                Table::Beyond => found.beyond = Some(beyond::measure(quick, &say)?),
            }
            Ok(())
        })?;
    }
    scaffold::print(args.output, &found, render)
}

/// The requested tables, in their order.
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

/// Runs `measure` on its own thread: pinning to a core then affects only that thread and its
/// children.
fn on_a_thread<T: Send>(measure: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let measured = scope.spawn(measure).join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn render(found: &TrackFindings, width: Option<u16>) -> String {
    let tables = [
        found.cost.as_ref().map(|it| it.render(width)),
        found.granularity.as_ref().map(|it| it.render(width)),
        found.curve.as_ref().map(|it| it.render(width)),
        found.guests.as_ref().map(|it| it.render(width)),
        found.beyond.as_ref().map(|it| it.render(width)),
    ];
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(words: &str) -> Option<Vec<Table>> {
        scaffold::parsed(words).as_ref().map(tables)
    }

    #[test]
    fn tables_are_chosen_by_name_or_group() {
        assert_eq!(chosen(""), Some(Table::value_variants().to_vec()));
        assert_eq!(chosen("--quick --table guests"), Some(vec![Table::Guests]));
        let two = "--table beyond --table cost --way sampled";
        assert_eq!(chosen(two), Some(vec![Table::Cost, Table::Beyond]));
        assert_eq!(chosen("--guest redis"), Some(vec![Table::Guests]));
        assert_eq!(chosen("--way sampled --rounds 2"), Some(vec![Table::Cost]));
        for wrong in ["--table nosuch", "--guest nosuch", "--quick --rounds 2"] {
            assert_eq!(chosen(wrong), None, "{wrong}");
        }
    }
}
