//! The findings of an evaluation: every row with its figures and verdicts.
//!
//! Idea: page, text and JSON are all made from this, so that none can say more than was found.

use std::collections::BTreeSet;
use std::path::Path;

use ballast_scenario_run::calls::{CallRuns, calls};
use ballast_scenario_run::compare::Spread;
use ballast_scenario_run::part::{Part, part_of, parts};
use serde::Serialize;
use serde_json::Value;

use super::band::{Band, Bound};
use super::catalogue::{Catalogue, Row, Way};
use super::figure::{Figure, FoundOf, contestants, figures, ours};
use super::job::{Job, Task, lab_scenario};
use super::verdict::{Cause, Verdict, judge, of_row};
use super::work::{End, Ends};

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

/// The number of rows with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) rows: usize,
    pub(crate) reproduced: usize,
    pub(crate) met: usize,
    pub(crate) in_kind: usize,
    pub(crate) outside: usize,
    pub(crate) fitted: usize,
    pub(crate) no_figure: usize,
    pub(crate) no_counterpart: usize,
    pub(crate) cannot_run: usize,
    pub(crate) not_run: usize,
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
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    /// The calls that played its runs on real guests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<TaskCalls>,
    pub(crate) figures: Vec<FigureFindings>,
}

/// The calls that played the runs of a scenario with real guests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TaskCalls {
    /// The scenario.
    pub(crate) subject: String,
    /// The earliest first.
    pub(crate) calls: Vec<CallRuns>,
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

/// The findings for the rows of `catalogue`.
///
/// # Errors
/// A row names a scenario that cannot be read, or has a figure without a band; or a result does not
/// have the form of its job's results.
pub(crate) fn findings(
    catalogue: &Catalogue,
    scenarios: &Path,
    repetitions: u32,
    ends: &Ends,
) -> anyhow::Result<Findings> {
    let mut counts = Counts::default();
    let mut papers = Vec::new();
    for paper in &catalogue.papers {
        let mut rows = Vec::new();
        for row in &paper.rows {
            let found = of(row, scenarios, repetitions, ends)?;
            counts.add(&found.verdict);
            rows.push(found);
        }
        papers.push(PaperFindings { paper: paper.name.clone(), title: paper.title.clone(), rows });
    }
    let done = ends.values().filter_map(|end| match end {
        End::Done(found) => Some(found.ran),
        End::Failed(_) | End::Left(_) => None,
    });
    let (ran, kept): (Vec<bool>, Vec<bool>) = done.partition(|ran| *ran);
    Ok(Findings {
        ended_at: ballast_scenario_run::now(),
        commit: ballast_scenario_run::machine::commit(),
        cpu: ballast_scenario_run::machine::cpu(),
        repetitions,
        counts,
        jobs_ran: ran.len(),
        jobs_kept: kept.len(),
        papers,
    })
}

fn of(row: &Row, scenarios: &Path, repetitions: u32, ends: &Ends) -> anyhow::Result<RowFindings> {
    let mut found = RowFindings {
        id: row.id.clone(),
        place: row.place.clone(),
        what: row.what.clone(),
        how: Task::of(row).iter().map(Task::told).collect(),
        seen: None,
        verdict: Verdict::Reproduced,
        calls: Vec::new(),
        figures: Vec::new(),
    };
    if let Way::Nothing { because } = &row.way {
        found.verdict = Verdict::Not(Cause::NoCounterpart(because.clone()));
        return Ok(found);
    }
    for task in Task::of(row) {
        let jobs = jobs_of(&[row], &task, repetitions, scenarios);
        let jobs = jobs.map_err(|error| Cause::CannotRun(format!("{error:#}")));
        let results = match jobs.and_then(|jobs| results(&jobs, ends)) {
            Ok(results) => results,
            Err(cause) => {
                found.verdict = Verdict::Not(cause);
                found.seen = None;
                found.calls.clear();
                found.figures.clear();
                return Ok(found);
            }
        };
        let of_task = FoundOf::new(&task, results, scenarios)?;
        found.seen = Some(seen(&of_task));
        if let FoundOf::Runs(record) = &of_task {
            let calls = calls(record);
            found.calls.push(TaskCalls { subject: task.subject().to_owned(), calls });
        }
        let figures = figures(row, &task, scenarios)?;
        let spreads = ours(&figures, &of_task)?;
        let repetitions = task.repetitions(repetitions) as usize;
        for (figure, ours) in figures.into_iter().zip(spreads) {
            found.figures.push(judged(row, figure, ours, repetitions)?);
        }
    }
    let named = found.figures.iter().map(|figure| (figure.name(), &figure.verdict));
    found.verdict = of_row(named);
    Ok(found)
}

fn judged(
    row: &Row,
    figure: Figure,
    ours: Option<Spread>,
    repetitions: usize,
) -> anyhow::Result<FigureFindings> {
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
    let verdict = judge(figure.paper, band, ours, repetitions, figure.fitted.as_deref());
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

/// The results of all `jobs`, or why some are missing.
fn results(jobs: &[Job], ends: &Ends) -> Result<Vec<Value>, Cause> {
    let (mut results, mut failed, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        match ends.get(&job.name()) {
            Some(End::Done(found)) => results.push(found.result.clone()),
            Some(End::Failed(text)) => failed.push(format!("{}: {text}", job.told())),
            Some(End::Left(text)) => left.push(text.clone()),
            None => left.push("it was not asked for".to_owned()),
        }
    }
    let missing = match results.is_empty() {
        true => String::new(),
        false => format!("{} of {} runs are missing: ", failed.len() + left.len(), jobs.len()),
    };
    match (failed.first(), left.first()) {
        (Some(text), _) => Err(Cause::CannotRun(format!("{missing}{text}"))),
        (None, Some(text)) => Err(Cause::NotRun(format!("{missing}{text}"))),
        (None, None) => Ok(results),
    }
}

fn seen(found: &FoundOf) -> String {
    match found {
        FoundOf::Simulations(_) => SIMULATED.to_owned(),
        FoundOf::Replays(_) => REPLAYED.to_owned(),
        FoundOf::Runs(record) => format!("on real guests, {}", record.machine.accelerator),
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

    /// Our figure with its spread, as text.
    pub(crate) fn ours_shown(&self) -> String {
        let shown = |value| self.band.metric.shown(value);
        let spread = self.ours.map(|ours| super::verdict::spread_shown(ours, &shown));
        ballast_report::figures::or_none(spread)
    }
}

impl RowFindings {
    /// A sentence for each scenario whose runs were played in several calls.
    pub(crate) fn calls_told(&self) -> Vec<String> {
        let several = self.calls.iter().filter(|it| it.calls.len() > 1);
        let told = |it: &TaskCalls| {
            let (subject, count) = (&it.subject, it.calls.len());
            let calls: Vec<String> = it.calls.iter().map(CallRuns::told).collect();
            format!("The runs of {subject} were played by {count} calls: {}.", calls.join("; "))
        };
        several.map(told).collect()
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

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        self.rows += 1;
        let place = match verdict {
            Verdict::Reproduced => &mut self.reproduced,
            Verdict::Met => &mut self.met,
            Verdict::InKind => &mut self.in_kind,
            Verdict::Not(Cause::Outside(_)) => &mut self.outside,
            Verdict::Not(Cause::Fitted(_)) => &mut self.fitted,
            Verdict::Not(Cause::NoFigure(_)) => &mut self.no_figure,
            Verdict::Not(Cause::NoCounterpart(_)) => &mut self.no_counterpart,
            Verdict::Not(Cause::CannotRun(_)) => &mut self.cannot_run,
            Verdict::Not(Cause::NotRun(_)) => &mut self.not_run,
        };
        *place += 1;
    }

    /// In words.
    pub(crate) fn shown(&self) -> String {
        let not = [
            (self.outside, "ours is outside of the band"),
            (self.fitted, "the model is fitted to it"),
            (self.no_figure, "ours has no such figure"),
            (self.no_counterpart, "there is no counterpart"),
            (self.cannot_run, "it cannot run here"),
            (self.not_run, "it was not run"),
        ];
        let nots: Vec<String> = not
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} not, because {why}"))
            .collect();
        let Counts { rows, reproduced, in_kind, met, .. } = self;
        let yes = format!(
            "{rows} rows: {reproduced} reproduced, {in_kind} in kind, {met} of our own goals met"
        );
        [yes].into_iter().chain(nots).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_counted_once() {
        let mut counts = Counts::default();
        let text = || "t".to_owned();
        for verdict in [
            Verdict::Reproduced,
            Verdict::Met,
            Verdict::InKind,
            Verdict::Not(Cause::Outside(text())),
            Verdict::Not(Cause::Fitted(text())),
            Verdict::Not(Cause::NoFigure(text())),
            Verdict::Not(Cause::NoCounterpart(text())),
            Verdict::Not(Cause::CannotRun(text())),
            Verdict::Not(Cause::NotRun(text())),
            Verdict::Not(Cause::NotRun(text())),
        ] {
            counts.add(&verdict);
        }
        let Counts { rows, not_run, met, .. } = counts;
        assert_eq!((rows, not_run, met), (10, 2, 1));
        let shown = counts.shown();
        assert!(
            shown.starts_with("10 rows: 1 reproduced, 1 in kind, 1 of our own goals met; 1 not"),
            "{shown}"
        );
        assert!(shown.ends_with("2 not, because it was not run"), "{shown}");
    }

    #[test]
    fn a_row_with_a_run_that_failed_says_so() {
        let job = |repetition| {
            let task = Task::Lab { scenario: "lab/a.toml".to_owned() };
            Job { task, repetition, part: Some(Part::Run("meb".to_owned())) }
        };
        let jobs = [job(1), job(2)];
        let ends = |first: End, second: End| {
            Ends::from([(jobs[0].name(), first), (jobs[1].name(), second)])
        };
        let done = || End::Done(super::super::work::Found { result: Value::from(7), ran: true });
        let left = || End::Left("later".to_owned());
        let failed = || End::Failed("no QEMU".to_owned());
        assert_eq!(results(&jobs, &ends(done(), done())).unwrap().len(), 2);
        let failure = "lab run lab/a.toml, meb: no QEMU";
        let expected = Cause::CannotRun(failure.to_owned());
        assert_eq!(results(&jobs, &ends(failed(), left())), Err(expected));
        let expected = Cause::NotRun("1 of 2 runs are missing: later".to_owned());
        assert_eq!(results(&jobs, &ends(done(), left())), Err(expected));
        assert!(matches!(results(&jobs, &Ends::new()), Err(Cause::NotRun(_))));
    }
}
