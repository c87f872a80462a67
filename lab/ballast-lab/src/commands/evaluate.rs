//! `ballast-lab evaluate`: the papers' tables and figures beside ours.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_report::command_line::command_line;
use ballast_report::figures::or_none;
use ballast_report::files::{self, Destination};
use ballast_report::{Output, Report};
use serde::Serialize;

use crate::evaluate::catalogue::{Catalogue, Row, Way};
use crate::evaluate::findings::{Findings, findings, jobs};
use crate::evaluate::job::Task;
use crate::evaluate::origins::{OriginRow, origins};
use crate::evaluate::state::State;
use crate::evaluate::work::{Limits, work};
use crate::evaluate::{markdown, page, tables};

/// How long `--quick` takes at most.
const QUICK: Duration = Duration::from_mins(10);
/// Repetitions, without and with `--quick`.
const REPETITIONS_DEFAULT: u32 = 5;
const REPETITIONS_QUICK: u32 = 2;
/// Most repetitions.
const REPETITIONS_MAX: u32 = 100;

/// Compare every table and figure of the papers with ours, and write the page of it.
///
/// What was run is kept, so that a call that was ended takes up where it was.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast-lab evaluate --list
  ballast-lab evaluate --quick --page evaluation.html
  ballast-lab evaluate --only meb.V --only tws
  ballast-lab evaluate --real --markdown docs/evaluation.md

Each row is a table or a figure of a paper: the paper's figures, ours with their spread over
repetitions, where they were seen (simulated, replayed, real guests with or without KVM), and a
verdict that follows from a band argued beforehand in scenarios/evaluation: `reproduced`, `in
kind`, or `not, because …`. Nobody types a verdict. Without --real, rows that need real guests
count only if they were run before.

Results are kept in --state, one file for each run, and count until the scenario, its series or this
program changes. Progress and the time left go to standard error; the time left is by what runs took
on this machine.

JSON, an object:
  ended_at, commit, cpu, repetitions, jobs_ran, jobs_kept
  counts    rows, reproduced, met, in_kind, and by cause those that are not
  papers    a list of paper, title, rows: id, place, what, how, seen, verdict, cause, because,
            figures
  figures   of a row: what, subject, policy, guest, paper, ours (median, min, max, count), band,
            verdict, …
  origins   where each parameter of the simulator comes from
With --list: a list of id, place, what, how.")]
pub struct Args {
    /// Print the rows instead, and run nothing
    #[arg(long)]
    list: bool,
    /// Only this row, such as meb.V, or all whose names begin so up to a dot; repeatable
    #[arg(long = "only", value_name = "ROW")]
    only: Vec<String>,
    /// At most ten minutes: few repetitions, no real guests, and what takes longer is left out
    #[arg(long, conflicts_with = "real")]
    quick: bool,
    /// Run scenarios with real guests, too; takes hours
    #[arg(long)]
    real: bool,
    /// How often each scenario is run [default: 5, with --quick 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPETITIONS_MAX)))]
    repetitions: Option<u32>,
    /// Run again what was run before
    #[arg(long)]
    fresh: bool,
    /// The folder of what was run
    #[arg(long, value_name = "DIR", default_value = "target/evaluation")]
    state: PathBuf,
    /// The folder of scenarios, with the catalogue in its folder `evaluation`
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    scenarios: PathBuf,
    /// Write the findings as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the findings as a self-contained page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// What `--json` prints.
#[derive(Serialize)]
struct EvaluationJson<'a> {
    #[serde(flatten)]
    findings: &'a Findings,
    origins: &'a [OriginRow],
}

/// A row of `--list`.
#[derive(Serialize)]
struct ListedRow {
    id: String,
    place: String,
    what: String,
    how: Vec<String>,
}

/// Runs what is missing, judges, prints and writes the files wanted.
///
/// # Errors
/// The catalogue or a scenario of it is wrong, or a file cannot be read or written. A scenario that
/// cannot run here is none: its row says so.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut catalogue = Catalogue::read(&args.scenarios)?;
    catalogue.keep(&args.only)?;
    if args.list {
        return list(&catalogue, args.output);
    }
    let outputs: Vec<&Path> =
        args.markdown.as_deref().into_iter().chain(args.page.as_deref()).collect();
    files::ensure_apart(&outputs, &[])?;
    // Now rather than after hours.
    let markdown_file = args.markdown.as_deref().map(Destination::open).transpose()?;
    let page_file = args.page.as_deref().map(Destination::open).transpose()?;
    let origins = origins(&catalogue, &args.scenarios)?;
    let default = if args.quick { REPETITIONS_QUICK } else { REPETITIONS_DEFAULT };
    let repetitions = args.repetitions.unwrap_or(default);
    let state = State::open(&args.state)?;
    let limits = Limits { real: args.real, within: args.quick.then_some(QUICK), fresh: args.fresh };
    let ends = work(jobs(&catalogue, repetitions), &args.scenarios, &state, limits).await?;
    let findings = findings(&catalogue, &args.scenarios, repetitions, &ends)?;
    // `ballast` does not hand this command on.
    let command = command_line().replacen("ballast ", "ballast-lab ", 1);
    if let Some(file) = markdown_file {
        file.write(&markdown::render(&findings, &origins, &command))?;
    }
    if let Some(file) = page_file {
        file.write(&page::render(&findings, &origins, &command))?;
    }
    let told = EvaluationJson { findings: &findings, origins: &origins };
    args.output.print(&told, |told, width| text(told.findings, &outputs, width))
}

fn text(findings: &Findings, outputs: &[&Path], width: Option<u16>) -> String {
    let mut out = String::new();
    for paper in &findings.papers {
        out.push_str(&format!("{}: {}\n\n", paper.paper, paper.title));
        out.push_str(&tables::rows().in_capitals().table(&paper.rows, width));
        out.push('\n');
    }
    out.push_str(&format!("{}.\n", findings.counts.shown()));
    for path in outputs {
        out.push_str(&format!("Written: {}\n", path.display()));
    }
    out
}

fn list(catalogue: &Catalogue, output: Output) -> anyhow::Result<()> {
    let listed = |row: &Row| ListedRow {
        id: row.id.clone(),
        place: row.place.clone(),
        what: row.what.clone(),
        how: match &row.way {
            Way::Nothing { .. } => Vec::new(),
            _ => Task::of(row).iter().map(Task::told).collect(),
        },
    };
    let rows: Vec<ListedRow> = catalogue.rows().map(|(_, row)| listed(row)).collect();
    output.print(&rows, |rows, width| {
        let how = |row: &ListedRow| or_none((!row.how.is_empty()).then(|| row.how.join(", ")));
        Report::<ListedRow>::new()
            .text("ROW", |it| it.id.clone())
            .text("PLACE", |it| it.place.clone())
            .text("WHAT", |it| it.what.clone())
            .text("HOW", how)
            .table(rows, width)
    })
}
