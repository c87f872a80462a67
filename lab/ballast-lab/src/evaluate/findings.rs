//! The findings of an evaluation: every row with its figures and verdicts.
//!
//! Idea: page, text and JSON are all made from this, so that none can say more than was found.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;

use ballast_report::figures::or_none;
use ballast_scenario_run::compare::Spread;
use ballast_scenario_run::part::{Part, part_of, parts};
use serde::Serialize;
use serde_json::Value;

use super::band::{Band, Bound};
use super::catalogue::{Catalogue, Row, Way};
use super::counts::Counts;
use super::figure::{Figure, TaskResults, Values, contestants, figures, ours};
use super::job::{Job, Task, lab_scenario};
use super::results::{ResultsFile, Runs, ScenarioResults};
use super::verdict::{Cause, Verdict, judge, of_row};
use super::work::{JobOutcome, JobOutcomes};
use crate::COMMIT;

/// The words for where figures come from, for simulations and for replays.
const SIMULATED: &str = "simulated";
const REPLAYED: &str = "recorded on real guests, replayed";

/// Everything found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) ended_at: String,
    pub(crate) commit: Option<String>,
    pub(crate) cpu: Option<String>,
    pub(crate) repetitions: u32,
    pub(crate) counts: Counts,
    /// The number of jobs that ran in this call, and of those whose result was there already.
    pub(crate) jobs_ran: usize,
    pub(crate) jobs_kept: usize,
    pub(crate) papers: Vec<PaperFindings>,
}

/// One paper.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PaperFindings {
    pub(crate) paper: String,
    pub(crate) title: String,
    pub(crate) rows: Vec<RowFindings>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RowFindings {
    pub(crate) id: String,
    pub(crate) place: String,
    pub(crate) what: String,
    /// The commands that produced our figures.
    pub(crate) how: Vec<String>,
    /// Where our figures were obtained, in words; `None`: nowhere.
    pub(crate) seen: Option<String>,
    /// The fewest repetitions that a task of the row has.
    pub(crate) repetitions: usize,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    /// The runs on real guests that its figures are from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) runs: Vec<TaskRuns>,
    pub(crate) figures: Vec<FigureFindings>,
}

/// The runs of a scenario with real guests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TaskRuns {
    /// The scenario.
    subject: String,
    /// Whether the runs are not here, and the figures are those kept with the source.
    is_kept: bool,
    #[serde(flatten)]
    runs: Runs,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FigureFindings {
    pub(crate) what: String,
    /// The scenario, or the folder of series.
    pub(crate) subject: String,
    pub(crate) policy: String,
    pub(crate) guest: Option<String>,
    pub(crate) paper: Option<f64>,
    pub(crate) ours: Option<Spread>,
    pub(crate) band: Band,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
}

/// The jobs of all rows of `catalogue`, each once, in the order of the rows.
///
/// A row whose scenario cannot be read has no jobs; its findings say so.
pub(crate) fn jobs(catalogue: &Catalogue, repetitions: u32, scenarios: &Path) -> Vec<Job> {
    let mut tasks: Vec<(Task, Vec<&Row>)> = Vec::new();
    for (_, row) in catalogue.rows() {
        for task in Task::of(row) {
            match tasks.iter_mut().find(|(other, _)| *other == task) {
                Some((_, rows)) => rows.push(row),
                None => tasks.push((task, vec![row])),
            }
        }
    }
    let of_task = |(task, rows): &(Task, Vec<&Row>)| jobs_of(rows, task, repetitions, scenarios);
    tasks.iter().filter_map(|task| of_task(task).ok()).flatten().collect()
}

/// The jobs of `task` that `rows` need, in the order in which they run.
///
/// # Errors
/// The task's scenario cannot be read.
pub(crate) fn jobs_of(
    rows: &[&Row],
    task: &Task,
    repetitions: u32,
    scenarios: &Path,
) -> anyhow::Result<Vec<Job>> {
    let job = |repetition, part| Job { task: task.clone(), repetition, part };
    let Task::Lab { scenario } = task else {
        return Ok((1..=task.repetitions(repetitions)).map(|it| job(it, None)).collect());
    };
    let scenario = lab_scenario(&scenarios.join(scenario))?;
    let mut needed = BTreeSet::from([Part::Needs]);
    for row in rows {
        let figures = figures(row, task, scenarios)?;
        let names = figures.iter().flat_map(contestants);
        needed.extend(names.map(|name| part_of(&scenario, name)));
    }
    let mut jobs = Vec::new();
    for repetition in 1..=repetitions {
        let parts = parts(&scenario, repetition).into_iter().filter(|part| needed.contains(part));
        jobs.extend(parts.map(|part| job(repetition, Some(part))));
    }
    Ok(jobs)
}

/// The findings for the rows of `catalogue`. Rows on real guests whose runs are there get their
/// figures into `kept`, and the others have them from there.
///
/// # Errors
/// A row names a scenario that cannot be read, or has a figure without a band; or a result does not
/// have the form of its job's results.
pub(crate) fn findings(
    catalogue: &Catalogue,
    scenarios: &Path,
    repetitions: u32,
    outcomes: &JobOutcomes,
    kept: &mut ResultsFile,
) -> anyhow::Result<Findings> {
    let mut counts = Counts::default();
    let mut papers = Vec::new();
    for paper in &catalogue.papers {
        let mut rows = Vec::new();
        for row in &paper.rows {
            let found = of(row, scenarios, repetitions, outcomes, kept)?;
            counts.add(&found.verdict);
            rows.push(found);
        }
        papers.push(PaperFindings { paper: paper.name.clone(), title: paper.title.clone(), rows });
    }
    let done = outcomes.values().filter_map(|end| match end {
        JobOutcome::Done(found) => Some(found.ran),
        JobOutcome::Failed(_) | JobOutcome::NotStarted(_) => None,
    });
    let (ran, read): (Vec<bool>, Vec<bool>) = done.partition(|ran| *ran);
    Ok(Findings {
        ended_at: ballast_scenario_run::now(),
        commit: COMMIT.map(str::to_owned),
        cpu: ballast_scenario_run::machine::cpu(),
        repetitions,
        counts,
        jobs_ran: ran.len(),
        jobs_kept: read.len(),
        papers,
    })
}

fn of(
    row: &Row,
    scenarios: &Path,
    repetitions: u32,
    outcomes: &JobOutcomes,
    kept: &mut ResultsFile,
) -> anyhow::Result<RowFindings> {
    let tasks = Task::of(row);
    let mut row_findings = RowFindings {
        id: row.id.clone(),
        place: row.place.clone(),
        what: row.what.clone(),
        how: tasks.iter().map(Task::description).collect(),
        seen: None,
        repetitions: 0,
        verdict: Verdict::Reproduced,
        runs: Vec::new(),
        figures: Vec::new(),
    };
    let found: Result<Vec<Results>, Cause> = match &row.way {
        Way::Nothing { because } => Err(Cause::NoCounterpart(because.clone())),
        _ => tasks.iter().map(|task| whole(row, task, scenarios, repetitions, outcomes)).collect(),
    };
    let mut all: Vec<TaskFigures> = Vec::new();
    let mut is_kept = false;
    match found {
        Ok(found) if matches!(row.way, Way::Lab { .. }) => {
            is_kept = !kept.keep(&row.id, played(row, &tasks, found, scenarios)?);
        }
        Ok(found) => {
            for (task, results) in tasks.iter().zip(found) {
                all.push(computed(row, task, results, scenarios)?);
            }
        }
        Err(Cause::NotRun(_)) if !kept.of(&row.id).is_empty() => is_kept = true,
        Err(cause) => {
            row_findings.verdict = Verdict::NotReproduced(cause);
            return Ok(row_findings);
        }
    }
    for (task, own) in tasks.iter().zip(kept.of(&row.id)) {
        all.push(on_real_guests(row, task, own, scenarios)?);
        let (subject, runs) = (task.subject().to_owned(), own.runs.clone());
        row_findings.runs.push(TaskRuns { subject, is_kept, runs });
    }
    // A row that is not without a counterpart has tasks.
    let fewest = all.iter().map(|it| it.repetitions).min().unwrap_or(0);
    let wanted = tasks.iter().map(|task| task.repetitions(repetitions) as usize).max().unwrap_or(0);
    for TaskFigures { seen, figures, .. } in all {
        row_findings.seen = Some(match fewest.cmp(&wanted) {
            Ordering::Less => format!("{seen}, {fewest} of {wanted} repetitions"),
            Ordering::Equal => seen,
            Ordering::Greater => format!("{seen}, {fewest} repetitions"),
        });
        for (figure, values) in figures {
            row_findings.figures.push(judged(row, figure, &values)?);
        }
    }
    row_findings.repetitions = fewest;
    let named = row_findings.figures.iter().map(|figure| (figure.name(), &figure.verdict));
    row_findings.verdict = of_row(named);
    Ok(row_findings)
}

/// The figures of a row from one of its tasks.
struct TaskFigures {
    seen: String,
    repetitions: usize,
    figures: Vec<(Figure, Values)>,
}

/// From the `results` of a simulation or of a replay.
fn computed(
    row: &Row,
    task: &Task,
    results: Results,
    scenarios: &Path,
) -> anyhow::Result<TaskFigures> {
    let repetitions = results.ended_at.len();
    let figures = figures(row, task, scenarios)?;
    let values = ours(&figures, &TaskResults::new(task, results.values, scenarios)?)?;
    let seen = if matches!(task, Task::Series { .. }) { REPLAYED } else { SIMULATED };
    let figures = figures.into_iter().zip(values).collect();
    Ok(TaskFigures { seen: seen.to_owned(), repetitions, figures })
}

/// From what is kept of the runs of `task` on real guests.
fn on_real_guests(
    row: &Row,
    task: &Task,
    kept: &ScenarioResults,
    scenarios: &Path,
) -> anyhow::Result<TaskFigures> {
    let figures = figures(row, task, scenarios)?;
    let values: Vec<Values> = figures.iter().map(|figure| kept.values(figure)).collect();
    Ok(TaskFigures {
        seen: format!("on real guests, {}", kept.runs.accelerator),
        repetitions: kept.runs.repetitions.len(),
        figures: figures.into_iter().zip(values).collect(),
    })
}

/// What to keep of the runs of all `tasks` on real guests.
fn played(
    row: &Row,
    tasks: &[Task],
    results: Vec<Results>,
    scenarios: &Path,
) -> anyhow::Result<Vec<ScenarioResults>> {
    let mut all = Vec::new();
    for (task, Results { values, ended_at }) in tasks.iter().zip(results) {
        let results = TaskResults::new(task, values, scenarios)?;
        let figures = figures(row, task, scenarios)?;
        let values = ours(&figures, &results)?;
        if let TaskResults::Runs(record) = &results {
            let figures = figures.into_iter().zip(values).collect();
            all.push(ScenarioResults::new(row, task, scenarios, record, ended_at, figures)?);
        }
    }
    Ok(all)
}

fn judged(row: &Row, figure: Figure, values: &[Option<f64>]) -> anyhow::Result<FigureFindings> {
    let ours = Spread::of(values.iter().flatten().copied());
    let band = row.band(figure.measure, figure.guest.as_deref()).ok_or_else(|| {
        let metric = figure.measure.name();
        anyhow::anyhow!("{}: no band for {metric}, which `{}` is", row.id, figure.what)
    })?;
    let needs_paper = band.within.into_iter().chain(band.kind).any(Bound::needs_paper);
    anyhow::ensure!(
        figure.paper.is_some() || !needs_paper,
        "{}: the band of {} is beside a figure of the paper, which `{}` is not",
        row.id,
        figure.measure.name(),
        figure.what
    );
    let verdict = judge(figure.paper, band, ours, values.len(), figure.fitted.as_deref());
    Ok(FigureFindings {
        what: figure.what,
        subject: figure.subject,
        policy: figure.policy,
        guest: figure.guest,
        paper: figure.paper,
        ours,
        band: band.clone(),
        verdict,
    })
}

/// The results of a task's whole repetitions.
#[derive(Debug, PartialEq)]
struct Results {
    /// By repetition, then in the order of the jobs.
    values: Vec<Value>,
    /// When the last job of each repetition ended.
    ended_at: Vec<String>,
}

/// The results of `task` for `row`, or why there are none.
fn whole(
    row: &Row,
    task: &Task,
    scenarios: &Path,
    repetitions: u32,
    outcomes: &JobOutcomes,
) -> Result<Results, Cause> {
    let jobs = jobs_of(&[row], task, repetitions, scenarios);
    results(&jobs.map_err(|error| Cause::CannotRun(format!("{error:#}")))?, outcomes)
}

/// The results of the first repetitions of `jobs` that ran whole, or why not even the first did.
///
/// A job that failed counts against all: without it the others would look better than they are.
fn results(jobs: &[Job], outcomes: &JobOutcomes) -> Result<Results, Cause> {
    let mut results = Results { values: Vec::new(), ended_at: Vec::new() };
    let (mut done, mut first_not_started) = (0, None);
    for repetition in jobs.chunk_by(|a, b| a.repetition == b.repetition) {
        let (mut values, mut ended_at) = (Vec::new(), String::new());
        for job in repetition {
            match outcomes.get(&job.name()) {
                Some(JobOutcome::Done(done)) => {
                    values.push(done.result.clone());
                    ended_at = ended_at.max(done.ended_at.clone());
                }
                Some(JobOutcome::Failed(text)) => {
                    return Err(Cause::CannotRun(format!("{}: {text}", job.description())));
                }
                Some(JobOutcome::NotStarted(text)) => {
                    first_not_started = first_not_started.or(Some(text.as_str()))
                }
                None => first_not_started = first_not_started.or(Some("it was not asked for")),
            }
        }
        done += values.len();
        if first_not_started.is_none() {
            results.values.extend(values);
            results.ended_at.push(ended_at);
        }
    }
    match first_not_started {
        Some(text) if results.ended_at.is_empty() => {
            let missing = match done {
                0 => String::new(),
                _ => format!("{} of {} runs are missing: ", jobs.len() - done, jobs.len()),
            };
            Err(Cause::NotRun(format!("{missing}{text}")))
        }
        _ => Ok(results),
    }
}

impl FigureFindings {
    /// Its name, with everything that tells it apart from other figures of the row.
    pub(crate) fn name(&self) -> String {
        let of = [Some(self.policy.as_str()), self.guest.as_deref(), Some(self.subject.as_str())];
        let of: Vec<&str> = of.into_iter().flatten().collect();
        format!("{} ({})", self.what, of.join(", "))
    }

    /// The paper's figure or the goal, as text.
    pub(crate) fn paper_shown(&self) -> String {
        match self.paper {
            Some(paper) => self.band.metric.shown(paper),
            None => self.band.asked(),
        }
    }

    /// The verdict as text. Why a figure is outside its band, the columns beside it say.
    pub(crate) fn verdict_shown(&self) -> String {
        let verdict = self.verdict.shown();
        match &self.verdict {
            Verdict::NotReproduced(Cause::Outside(_)) => verdict.to_owned(),
            other => match other.because() {
                Some(why) => format!("{verdict}: {why}"),
                None => verdict.to_owned(),
            },
        }
    }

    /// Our figure with its spread, as text.
    pub(crate) fn ours_shown(&self) -> String {
        let shown = |value| self.band.metric.shown(value);
        let spread = self.ours.map(|ours| super::verdict::spread_shown(ours, &shown));
        or_none(spread)
    }
}

impl RowFindings {
    /// Its name.
    pub(crate) fn name(&self) -> String {
        self.id.clone()
    }

    /// A sentence for each scenario on real guests: who played its runs, and when.
    pub(crate) fn run_sentences(&self) -> impl Iterator<Item = String> {
        self.runs.iter().map(|it| it.runs.sentence(&it.subject, it.is_kept))
    }

    /// The bands of its figures, each once.
    pub(crate) fn bands(&self) -> Vec<&Band> {
        let mut bands: Vec<&Band> = Vec::new();
        for figure in &self.figures {
            if !bands.contains(&&figure.band) {
                bands.push(&figure.band);
            }
        }
        bands
    }

    /// The number of its figures that are reproduced, that agree in kind, and that do neither, in
    /// words.
    pub(crate) fn tally(&self) -> String {
        let count = |is: &dyn Fn(&Verdict) -> bool| {
            self.figures.iter().filter(|figure| is(&figure.verdict)).count()
        };
        match self.figures.len() {
            0 => ballast_report::figures::NONE.to_owned(),
            all => {
                let reproduced = count(&|it| matches!(it, Verdict::Reproduced | Verdict::Met));
                let in_kind = count(&|it| *it == Verdict::InKind);
                format!("{reproduced} + {in_kind} of {all}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::JobResult;
    use super::*;

    #[test]
    fn a_row_counts_with_its_whole_repetitions() {
        let job = |repetition, policy: &str| {
            let task = Task::Lab { scenario: "lab/a.toml".to_owned() };
            Job { task, repetition, part: Some(Part::Run(policy.to_owned())) }
        };
        let jobs = [job(1, "meb"), job(1, "static"), job(2, "meb"), job(2, "static")];
        let outcomes =
            |all: [JobOutcome; 4]| -> JobOutcomes { jobs.iter().map(Job::name).zip(all).collect() };
        let done = || {
            let (result, ended_at) = (Value::from(7), "T".to_owned());
            JobOutcome::Done(JobResult { result, ended_at, ran: true })
        };
        let not_started = || JobOutcome::NotStarted("later".to_owned());
        let failed = || JobOutcome::Failed("no QEMU".to_owned());
        let count =
            |all| results(&jobs, &outcomes(all)).map(|it| (it.ended_at.len(), it.values.len()));
        assert_eq!(count([done(), done(), done(), done()]), Ok((2, 4)));
        assert_eq!(count([done(), done(), done(), not_started()]), Ok((1, 2)));
        // What every guest needs is found in the first repetition: none counts without it.
        let expected = Cause::NotRun("1 of 4 runs are missing: later".to_owned());
        assert_eq!(count([done(), not_started(), done(), done()]), Err(expected));
        let expected =
            Cause::CannotRun("lab run lab/a.toml, meb, repetition 2: no QEMU".to_owned());
        assert_eq!(count([done(), not_started(), failed(), done()]), Err(expected));
        assert!(matches!(results(&jobs, &JobOutcomes::new()), Err(Cause::NotRun(_))));
    }
}
