//! `ballast replay`: recorded days under another policy.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ballast_advise::RecordedSettings;
use ballast_replay::{Replay, ReplayReport};
use ballast_store::{EntryContent, Range, Reader};
use indicatif::ProgressBar;

use crate::replay::csv::CsvFile;
use crate::replay::json::ReplayJson;
use crate::replay::series::Series;
use crate::replay::{Replayed, page, table};
use ballast_report::command_line::command_line;
use ballast_report::files::{self, Destination};
use ballast_report::{Moments, Output};
use ballast_scenario_run::simulate::contestants::Contestants;

/// What another policy would have decided on recorded days, and what that would have been worth.
///
/// The demand of every guest is as recorded, its allocation imagined. What that assumes is printed
/// with every figure.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast replay /var/lib/ballast/journal.db --policy global
  ballast replay journal.db --policy static,self-scheduling,global --from 2h
  ballast replay journal.db --policy ours,mom,qmemman --page days.html
  ballast replay journal.db --policy global --csv decisions.csv --json

JSON, an object:
  journal, simulated (always true), assumptions, ticks, span_s
  recorded  lacked_mib_s (memory lacked, summed over time), lacking_s (time with memory lacking,
            summed over guests), moved_bytes, allocation_mean_bytes
  policies  a list of policy, the same figures as replayed, plans_refused, and guests: a list of
            guest, recorded, imagined (the replayed figures)")]
pub struct Args {
    /// The journal file
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
    /// Policies, separated by commas, rivals included; or `all`, `ours` or `rivals`
    #[arg(long, value_name = "LIST")]
    policy: Contestants,
    #[command(flatten)]
    span: Moments,
    /// Write a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write every guest's demand, allocations and targets at every tick as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Replays the journal and prints the result.
///
/// # Errors
/// The journal cannot be read or holds no ticks, or a file or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let reader = Reader::open(&args.journal)?;
    let outputs: Vec<&Path> = args.csv.as_deref().into_iter().chain(args.page.as_deref()).collect();
    files::ensure_apart(&outputs, std::slice::from_ref(&args.journal))?;
    // Opened now, so that a path that cannot be written fails before minutes of reading.
    let page_file = args.page.as_deref().map(Destination::open).transpose()?;
    let mut csv = args.csv.as_deref().map(CsvFile::open).transpose()?;
    let mut series = page_file.is_some().then(Series::default);
    let mut replays: Option<Vec<Replay>> = None;
    let bar = ProgressBar::new_spinner();
    for entry in reader.ticks(Range {
        from_wall_ms: args.span.from_ms(),
        to_wall_ms: args.span.to_ms(),
        ..Range::default()
    }) {
        let entry = entry.with_context(|| args.journal.display().to_string())?;
        let EntryContent::Tick(tick) = &entry.content else { continue };
        let replays = match &mut replays {
            Some(replays) => replays,
            none => {
                let settings = RecordedSettings::default().first(&reader, entry.config, tick)?;
                let policies = args.policy.build(&settings.policy_settings).into_iter();
                none.insert(policies.map(|policy| Replay::new(settings.clone(), policy)).collect())
            }
        };
        let mut rows = Vec::new();
        for replay in replays.iter_mut() {
            replay.carry(&tick.carried);
            let own = replay.tick(&tick.snapshot, &tick.plan, &tick.limits).to_vec();
            if let Some(csv) = &mut csv {
                csv.rows(entry.wall_ms, replay.policy(), &own)?;
            }
            rows.push(own);
        }
        if let Some(series) = &mut series {
            series.add(entry.wall_ms, &rows);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let Some(replays) = replays else {
        bail!("{} holds no ticks of that time", args.journal.display());
    };
    if let Some(csv) = csv {
        csv.finish()?;
    }
    let reports: Vec<ReplayReport> = replays.iter().map(Replay::report).collect();
    let replayed = Replayed { journal: &args.journal, reports: &reports };
    if let (Some(file), Some(series)) = (page_file, series) {
        file.write(&page::render(replayed, &series, &command_line())?)?;
    }
    args.output.print(&ReplayJson::new(replayed), |_, _| table::render(replayed))
}
