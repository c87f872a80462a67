//! `ballast replay`: recorded days under another policy.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ballast_control::Settings;
use ballast_model::{Bytes, PolicyName};
use ballast_policy::build;
use ballast_sim::{ASSUMPTIONS, Fate, Replay, ReplayReport, ReplayRow};
use ballast_store::{Reader, What};
use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;

use super::Output;
use super::journal::Span;
use super::source::{note, open_journal};
use crate::config;
use crate::csv::quoted;
use crate::figures;
use crate::output::files::{self, Destination, Stream};

/// What another policy would have decided on recorded days, and what that would have been worth.
///
/// The demand of every guest is as recorded, its allocation imagined. What that assumes is printed
/// with every figure.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast replay /var/lib/ballast/journal.db --policy global
  ballast replay journal.db --policy static,self-scheduling,global --from 2h
  ballast replay journal.db --policy global --csv decisions.csv --json

JSON, an object:
  journal, simulated (always true), assumptions, ticks, span_s
  recorded  lacked_mib_s (memory lacked, added up over time), lacking_s (time with any lacking,
            summed over guests), moved_bytes, allocation_mean_bytes
  policies  a list of policy, the same figures as imagined, plans_refused, and guests: a list of
            guest, recorded, imagined")]
pub struct Args {
    /// The journal
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
    /// Policies, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    policy: Vec<PolicyName>,
    #[command(flatten)]
    span: Span,
    /// Write every guest's demand, allocations and targets at every tick as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Goes through the journal and prints.
///
/// # Errors
/// The journal cannot be read or holds no ticks, or a file or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let reader = open_journal(&args.journal)?;
    let outputs: Vec<&Path> = args.csv.as_deref().into_iter().collect();
    files::ensure_apart(&outputs, std::slice::from_ref(&args.journal))?;
    let mut csv = args.csv.as_deref().map(CsvFile::open).transpose()?;
    let mut replays: Option<Vec<Replay>> = None;
    let bar = ProgressBar::new_spinner();
    for entry in reader.ticks(args.span.range()) {
        let entry = entry.with_context(|| args.journal.display().to_string())?;
        let What::Tick(tick) = &entry.what else { continue };
        let replays = match &mut replays {
            Some(replays) => replays,
            none => {
                let settings = recorded_settings(&reader, entry.config, tick)?;
                let policies = args.policy.iter().map(|&name| {
                    let policy = build(name, settings.policy_settings.clone());
                    Replay::new(settings.clone(), policy)
                });
                none.insert(policies.collect())
            }
        };
        for (replay, policy) in replays.iter_mut().zip(&args.policy) {
            let rows = replay.tick(&tick.snapshot, &tick.plan, &tick.limits);
            if let Some(csv) = &mut csv {
                csv.rows(entry.wall_ms, *policy, rows)?;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let Some(replays) = replays else {
        bail!("{} holds no ticks of that time", args.journal.display());
    };
    if let Some(csv) = csv {
        csv.0.finish()?;
    }
    let reports: Vec<ReplayReport> = replays.iter().map(Replay::report).collect();
    let json = ReplayJson::new(&args.journal, &reports);
    args.output.print(&json, |_, _| render(&args.journal, &reports))
}

/// The settings in force at the first tick; the budget is what the plan divided.
fn recorded_settings(
    reader: &Reader,
    config: Option<i64>,
    tick: &ballast_store::TickEntry,
) -> anyhow::Result<Settings> {
    let recorded = config.map(|id| reader.config(id)).transpose()?.flatten();
    let place = Path::new("the recorded configuration");
    let read = recorded.map(|recorded| config::parse(&recorded.toml, place));
    let mut settings = match read {
        Some(Ok(config)) => config.settings,
        Some(Err(error)) => {
            // Written by another version: what can be replayed is, and what was replaced is said.
            note(&format!("default settings instead of the recorded ones: {error}"));
            Settings::new(tick.plan.policy)
        }
        None => Settings::new(tick.plan.policy),
    };
    if settings.guard.budget.is_none() {
        settings.guard.budget = Some(tick.plan.budget.distributable);
    }
    Ok(settings)
}

/// Every decision as CSV.
struct CsvFile(Stream);

impl CsvFile {
    fn open(path: &Path) -> anyhow::Result<CsvFile> {
        let mut csv = CsvFile(Destination::open(path)?.stream()?);
        csv.line(format_args!(
            "unix_ms,policy,guest,demand_bytes,recorded_allocation_bytes,\
             imagined_allocation_bytes,recorded_target_bytes,imagined_target_bytes"
        ))?;
        Ok(csv)
    }

    fn rows(&mut self, wall_ms: i64, policy: PolicyName, rows: &[ReplayRow]) -> anyhow::Result<()> {
        let target = |size: Option<Bytes>| size.map(|it| it.get().to_string()).unwrap_or_default();
        rows.iter().try_for_each(|row| {
            self.line(format_args!(
                "{wall_ms},{policy},{},{},{},{},{},{}",
                quoted(row.id.as_str()),
                row.demand.get(),
                row.recorded.get(),
                row.imagined.get(),
                target(row.recorded_target),
                target(row.imagined_target)
            ))
        })
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
        self.0.write(|out| writeln!(out, "{text}"))
    }
}

/// What is printed as JSON.
#[derive(Clone, Debug, Serialize)]
struct ReplayJson {
    journal: String,
    /// Always true: what is imagined was not measured.
    simulated: bool,
    assumptions: Vec<&'static str>,
    ticks: u64,
    span_s: f64,
    recorded: FateJson,
    policies: Vec<PolicyJson>,
}

#[derive(Clone, Debug, Serialize)]
struct PolicyJson {
    policy: String,
    #[serde(flatten)]
    imagined: FateJson,
    plans_refused: u64,
    guests: Vec<GuestJson>,
}

#[derive(Clone, Debug, Serialize)]
struct GuestJson {
    guest: String,
    recorded: FateJson,
    imagined: FateJson,
}

#[derive(Clone, Debug, Serialize)]
struct FateJson {
    lacked_mib_s: u64,
    lacking_s: f64,
    moved_bytes: u64,
    allocation_mean_bytes: u64,
}

impl From<Fate> for FateJson {
    fn from(fate: Fate) -> FateJson {
        FateJson {
            lacked_mib_s: fate.lacked_mib_s,
            lacking_s: fate.lacking.as_secs_f64(),
            moved_bytes: fate.moved.get(),
            allocation_mean_bytes: fate.allocation_mean.get(),
        }
    }
}

impl ReplayJson {
    fn new(journal: &Path, reports: &[ReplayReport]) -> ReplayJson {
        let first = reports.first();
        let guest = |(id, recorded, imagined): &(ballast_model::GuestId, Fate, Fate)| GuestJson {
            guest: id.to_string(),
            recorded: (*recorded).into(),
            imagined: (*imagined).into(),
        };
        ReplayJson {
            journal: journal.display().to_string(),
            simulated: true,
            assumptions: ASSUMPTIONS.to_vec(),
            ticks: first.map_or(0, |report| report.ticks),
            span_s: first.map_or(0.0, |report| report.span.as_secs_f64()),
            recorded: first.map(|report| report.recorded).unwrap_or_default().into(),
            policies: reports
                .iter()
                .map(|report| PolicyJson {
                    policy: report.policy.to_string(),
                    imagined: report.imagined.into(),
                    plans_refused: report.plans_refused,
                    guests: report.guests.iter().map(guest).collect(),
                })
                .collect(),
        }
    }
}

fn render(journal: &Path, reports: &[ReplayReport]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["GUEST", "POLICY", "LACKED MiB·s", "LACKING s", "MOVED", "HELD, MEAN"]);
    let mut add = |guest: &str, policy: &str, fate: Fate| {
        let figures = [
            figures::count(fate.lacked_mib_s as f64),
            format!("{:.0}", fate.lacking.as_secs_f64()),
            figures::size(fate.moved.get() as f64),
            figures::size(fate.allocation_mean.get() as f64),
        ];
        let right = |text| Cell::new(text).set_alignment(CellAlignment::Right);
        let names = [guest, policy].map(Cell::new).into_iter();
        table.add_row(names.chain(figures.into_iter().map(right)));
    };
    add("all", "as recorded", first.recorded);
    for report in reports {
        add("", report.policy.as_str(), report.imagined);
    }
    for (number, (id, recorded, _)) in first.guests.iter().enumerate() {
        add(id.as_str(), "as recorded", *recorded);
        for report in reports {
            if let Some((_, _, imagined)) = report.guests.get(number) {
                add("", report.policy.as_str(), *imagined);
            }
        }
    }
    for column in table.column_iter_mut().take(1) {
        column.set_padding((0, 1));
    }
    let span = humantime::format_duration(std::time::Duration::from_secs(first.span.as_secs()));
    let mut out = format!("{}: {} ticks, {span}\n\n", journal.display(), first.ticks);
    out.extend(table.lines().map(|line| format!("{}\n", line.trim_end())));
    out.push_str("\nWhat is not recorded is imagined, by these assumptions:\n");
    out.extend(ASSUMPTIONS.iter().map(|text| format!("  - {text}\n")));
    out
}
