//! `ballast-lab evaluate`: compares the papers' tables and figures with ours.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ballast_report::command_line::command_line;
use ballast_report::figures::or_none;
use ballast_report::files::{self, Destination};
use ballast_report::{Output, Report, note};
use serde::Serialize;

use crate::evaluate::catalogue::{Catalogue, Row};
use crate::evaluate::findings::{Findings, RowFindings, findings, jobs, jobs_of};
use crate::evaluate::job::{Job, Task};
use crate::evaluate::origins::{OriginRow, origins};
use crate::evaluate::results::ResultsFile;
use crate::evaluate::run::load;
use crate::evaluate::time_left::{PastTimes, Rate, RemainingJob, span};
use crate::evaluate::work::{Limits, took, work};
use crate::evaluate::{markdown, page, tables};
use crate::state::State;

/// How long `--quick` takes at most, unless `--within` says otherwise.
const QUICK: Duration = Duration::from_mins(10);
/// The number of repetitions, without and with `--quick`.
const REPETITIONS_DEFAULT: u32 = 5;
const REPETITIONS_QUICK: u32 = 2;
/// The greatest number of repetitions.
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
  ballast-lab evaluate --real --within 100min --repetitions 1
  ballast-lab evaluate --real --markdown docs/evaluation.md

Each row is a table or a figure of a paper. It has the paper's figures, ours with their spread over
repetitions, where ours come from (simulated, replayed, real guests with or without KVM), and a
verdict: `reproduced`, `in kind`, or `not` with the reason. The verdict is computed from a band that
scenarios/evaluation argues beforehand.

Runs are kept in --state, one file per run, and count until the scenario, its series or this program
changes. With real guests, each contestant's run is kept by itself, and only the runs that a row
needs are played. A call that is interrupted loses only the current run. --within begins no run that
would end later; the next call continues there. All first repetitions come before the second. A row
counts with the repetitions that it has, and says so if they are not as many as --repetitions.
Progress and the time left go to standard error; the time left is estimated from earlier runs on
this machine, else from the scenarios.

The figures of rows on real guests are also kept in --results, which is under version control. A
call that has all runs of such a row, played now or before, puts its figures there instead of older
ones; a call that does not takes them from there, and the page says from which commit and date they
are. They count until the scenario changes; standard error says which rows are dropped then.

JSON, an object:
  ended_at, commit, cpu, repetitions, jobs_ran, jobs_kept
  counts    rows, reproduced, met, in_kind, and the others by cause
  papers    a list of paper, title, rows: id, place, what, how, seen, repetitions, verdict, cause,
            because, runs (on real guests, by scenario: subject, is_kept, commit, accelerator, cpu,
            repetitions, …), figures
  figures   a list of what, subject, policy, guest, paper, ours (median, min, max, count), band,
            verdict, …
  origins   where each parameter of the simulator comes from
With --list: a list of id, place, what, how, takes_s (for one repetition; null: not known yet).")]
pub struct Args {
    /// Only list the rows and the time that one repetition takes
    #[arg(long)]
    list: bool,
    /// Only this row, such as meb.V, or all rows of a prefix, such as meb; repeatable
    #[arg(long = "only", value_name = "ROW")]
    only: Vec<String>,
    /// The same as --within 10min --repetitions 2, without real guests
    #[arg(long, conflicts_with = "real")]
    quick: bool,
    /// Also run scenarios with real guests; takes hours
    #[arg(long)]
    real: bool,
    /// Begin no run that would end later than this time from now, such as 100min
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    within: Option<Duration>,
    /// How often to run each scenario [default: 5; with --quick 2]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPETITIONS_MAX)))]
    repetitions: Option<u32>,
    /// Run everything again, ignoring stored runs
    #[arg(long)]
    fresh: bool,
    /// Folder for the runs
    #[arg(long, value_name = "DIR", default_value = "target/evaluation")]
    state: PathBuf,
    /// File of the figures of rows on real guests, which is read and written
    #[arg(long, value_name = "FILE", default_value = "docs/evaluation.json")]
    results: PathBuf,
    /// Folder of scenarios; its subfolder `evaluation` has the catalogue
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

/// The JSON that `--json` prints.
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
    /// How long one repetition takes, in seconds; `None`: unknown.
    takes_s: Option<f64>,
}

/// Runs what is missing, judges, prints, and writes the requested files.
///
/// # Errors
/// The catalogue or one of its scenarios is wrong, or a file cannot be read or written. A scenario
/// that cannot run here is no error: its row says so.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let mut catalogue = Catalogue::read(&args.scenarios)?;
    catalogue.keep(&args.only)?;
    if args.list {
        return list(&catalogue, &args);
    }
    let outputs: Vec<&Path> =
        args.markdown.as_deref().into_iter().chain(args.page.as_deref()).collect();
    files::ensure_apart(&outputs, std::slice::from_ref(&args.results))?;
    let before = ResultsFile::read(&args.results)?;
    let mut results = before.clone();
    for row in results.drop_changed(&catalogue, &args.scenarios) {
        let file = args.results.display();
        note(&format!("{row}: its scenario changed, so its figures in {file} are dropped"));
    }
    // Opened now, so that a path that cannot be written fails before hours of runs.
    let markdown_file = args.markdown.as_deref().map(Destination::open).transpose()?;
    let page_file = args.page.as_deref().map(Destination::open).transpose()?;
    if args.real {
        Destination::open(&args.results)?;
    }
    let origins = origins(&catalogue, &args.scenarios)?;
    let default = if args.quick { REPETITIONS_QUICK } else { REPETITIONS_DEFAULT };
    let repetitions = args.repetitions.unwrap_or(default);
    let state = State::open(&args.state)?;
    let within = args.within.or_else(|| args.quick.then_some(QUICK));
    let limits = Limits { real: args.real, within, fresh: args.fresh };
    let jobs = jobs(&catalogue, repetitions, &args.scenarios);
    let ends = work(jobs, &args.scenarios, &state, limits).await?;
    let findings = findings(&catalogue, &args.scenarios, repetitions, &ends, &mut results)?;
    if results != before {
        results.write(&args.results)?;
    }
    // `ballast` does not forward this command to `ballast-lab`.
    let command = command_line().replacen("ballast ", "ballast-lab ", 1);
    if let Some(file) = markdown_file {
        file.write(&markdown::render(&findings, &origins, &command))?;
    }
    if let Some(file) = page_file {
        file.write(&page::render(&findings, &origins, &command))?;
    }
    let output = EvaluationJson { findings: &findings, origins: &origins };
    args.output.print(&output, |output, width| text(output.findings, &outputs, width))
}

fn text(findings: &Findings, outputs: &[&Path], width: Option<u16>) -> String {
    let mut out = String::new();
    for paper in &findings.papers {
        out.push_str(&format!("{}: {}\n\n", paper.paper, paper.title));
        out.push_str(&tables::rows(RowFindings::name).in_capitals().table(&paper.rows, width));
        out.push('\n');
    }
    out.push_str(&format!("{}.\n", findings.counts.shown()));
    for path in outputs {
        out.push_str(&format!("Written: {}\n", path.display()));
    }
    out
}

fn list(catalogue: &Catalogue, args: &Args) -> anyhow::Result<()> {
    let scenarios = &args.scenarios;
    let all = jobs(catalogue, 1, scenarios);
    let times = JobTimes::new(&all, &State::reading(&args.state), scenarios);
    let listed = |row: &Row| {
        let tasks = Task::of(row);
        let of_task = |task| jobs_of(&[row], task, 1, scenarios).ok();
        let jobs: Option<Vec<Vec<Job>>> = tasks.iter().map(of_task).collect();
        let jobs = jobs.map(|jobs| jobs.concat()).filter(|jobs| !jobs.is_empty());
        ListedRow {
            id: row.id.clone(),
            place: row.place.clone(),
            what: row.what.clone(),
            how: tasks.iter().map(Task::description).collect(),
            takes_s: jobs.and_then(|jobs| times.of_all(jobs.iter())),
        }
    };
    let rows: Vec<ListedRow> = catalogue.rows().map(|(_, row)| listed(row)).collect();
    args.output.print(&rows, |rows, width| {
        let how = |row: &ListedRow| or_none((!row.how.is_empty()).then(|| row.how.join(", ")));
        let table = Report::<ListedRow>::new()
            .text("ROW", |it| it.id.clone())
            .text("PLACE", |it| it.place.clone())
            .text("WHAT", |it| it.what.clone())
            .figure("TIME", |it| or_none(it.takes_s.map(span).as_deref()))
            .text("HOW", how)
            .table(rows, width);
        format!("{table}\n{}", times.summary(&all))
    })
}

/// How long jobs take, based on how long they took the last time.
struct JobTimes<'a> {
    scenarios: &'a Path,
    took: PastTimes,
    rate: Rate,
}

impl<'a> JobTimes<'a> {
    fn new(jobs: &[Job], state: &State, scenarios: &'a Path) -> JobTimes<'a> {
        let (took, mut rate) = (took(jobs, state), Rate::default());
        for job in jobs {
            if let Some(took_s) = took.of(&job.name(), &job.task.description()) {
                rate.add(took_s, load(job, scenarios));
            }
        }
        JobTimes { scenarios, took, rate }
    }

    /// The time of all `jobs`, in seconds; `None`: the time of at least one is unknown.
    fn of_all<'b>(&self, jobs: impl Iterator<Item = &'b Job>) -> Option<f64> {
        let remaining = |job: &Job| RemainingJob {
            took_s: self.took.of(&job.name(), &job.task.description()),
            load: load(job, self.scenarios),
        };
        self.rate.of_all(jobs.map(remaining))
    }

    /// The times of one repetition, in words.
    fn summary(&self, jobs: &[Job]) -> String {
        let sum = |is_real: bool| {
            let own = jobs.iter().filter(|job| job.task.is_real() == is_real);
            let time = self.of_all(own.clone());
            (own.count(), time.map_or_else(|| "a time not known yet".to_owned(), span))
        };
        let ((real, real_time), (other, other_time)) = (sum(true), sum(false));
        format!(
            "One repetition of these rows, what they share run once: {real} runs on real guests \
             take {real_time}, {other} others {other_time}. Times are by what runs took here, \
             before that by their scenarios.\n"
        )
    }
}
