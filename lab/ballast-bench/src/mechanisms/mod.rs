//! `ballast bench mechanisms`: how fast memory is moved, what that costs the guest, and what help
//! inside the guest gains.
//!
//! Idea: real guests without the daemon, so that only the mechanisms are timed. Each table has its
//! own file; the tables share only the guest. Cost: a quarter of an hour; `--quick` takes two
//! minutes.
//! Limits: where KVM does not work the lab's guests are emulated, and then everything that their
//! kernel does is far slower: compare rows with each other.

mod assist;
mod exchange;
mod rates;
mod report;
mod test_guest;

use anyhow::bail;
use clap::ValueEnum;

use self::report::MechanismFindings;
use crate::machine;
use crate::scaffold;
use ballast_report::Output;

/// Measure how fast memory is moved, what it costs the guest, and what help inside it gains.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench mechanisms
  ballast bench mechanisms --quick
  ballast bench mechanisms --table rates --rounds 9 --json > rates.json

Tables:
  rates     how fast each mechanism moves memory: balloon, virtio-mem, and paging to the host's swap
            and back (only if the host has swap, and as root)
  help      time to inflate a balloon in a full guest, without help, and with memory dropped,
            reclaimed or compacted inside the guest first; the time of the help counts
  exchange  work that a computing guest does while memory is moved in and out of it, by rate

Guests have 768 MiB and boot one after the other. No daemon is needed.")]
pub(super) struct Args {
    /// A table to measure; repeatable [default: all]
    #[arg(long = "table", value_name = "NAME", value_enum)]
    tables: Vec<Table>,
    /// Rounds per table
    #[arg(long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measure one round at few rates
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// How fast each mechanism moves memory
    Rates,
    /// What help inside the guest gains a balloon
    Help,
    /// What moving memory costs a guest that computes
    Exchange,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// Something that guests need is missing, a guest does not reach a size, or standard output cannot
/// be written.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    // Commands run on an async runtime, within which no other runtime can block.
    let measured = std::thread::scope(|scope| scope.spawn(|| measure(args)).join());
    let Ok(report) = measured else { bail!("the measuring thread has ended by a panic") };
    scaffold::print(args.output, &report?, report::render)
}

fn measure(args: &Args) -> anyhow::Result<MechanismFindings> {
    let say = scaffold::say;
    let rounds = if args.quick { 1 } else { usize::from(args.rounds) };
    let is_wanted = |table| args.tables.is_empty() || args.tables.contains(&table);
    let rates = is_wanted(Table::Rates).then(|| rates::measure(rounds, &say)).transpose()?;
    let help = is_wanted(Table::Help).then(|| assist::measure(rounds, &say)).transpose()?;
    let exchange = is_wanted(Table::Exchange)
        .then(|| exchange::measure(rounds, args.quick, &say))
        .transpose()?;
    let accels = [rates.as_ref().map(|it| it.0), help.as_ref().map(|it| it.0)];
    let accel = accels.into_iter().chain([exchange.as_ref().map(|it| it.0)]).flatten().next();
    Ok(MechanismFindings {
        processor: machine::processor(),
        is_quick: args.quick,
        accel,
        rates: rates.map(|it| it.1),
        help: help.map(|it| it.1),
        exchange: exchange.map(|it| it.1),
    })
}
