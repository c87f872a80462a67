//! What an evaluation found: every row with its figures and verdicts.
//!
//! Idea: all that is shown, the page, the text, the JSON, is made from this, so that none can say
//! more than was found.

use std::path::Path;

use ballast_scenario_run::compare::Spread;
use serde::Serialize;
use serde_json::Value;

use super::band::{Band, Bound};
use super::catalogue::{Catalogue, Row, Way};
use super::figure::{Figure, figures, joined, ours};
use super::job::{Job, Task};
use super::verdict::{Cause, Verdict, judge, of_row};
use super::work::{End, Ends};

/// Where figures were seen, of simulations and of replays.
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
    /// Jobs that ran in this call, and those whose result was there.
    pub(crate) jobs_ran: usize,
    pub(crate) jobs_kept: usize,
    pub(crate) papers: Vec<PaperFindings>,
}

/// How many rows have which verdict.
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
    /// The commands that ours is from.
    pub(crate) how: Vec<String>,
    /// Where it was seen; `None`: nowhere.
    pub(crate) seen: Option<String>,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) figures: Vec<FigureFindings>,
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

/// The jobs of all rows of `catalogue`, each once, in order.
pub(crate) fn jobs(catalogue: &Catalogue, repetitions: u32) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for task in catalogue.rows().flat_map(|(_, row)| Task::of(row)) {
        for repetition in 1..=task.repetitions(repetitions) {
            let job = Job { task: task.clone(), repetition };
            if !jobs.contains(&job) {
                jobs.push(job);
            }
        }
    }
    jobs
}

/// What became of the rows of `catalogue`.
///
/// # Errors
/// A row names a scenario that cannot be read, or has a figure without a band; a result is not what
/// its job leaves.
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
        figures: Vec::new(),
    };
    if let Way::Nothing { because } = &row.way {
        found.verdict = Verdict::Not(Cause::NoCounterpart(because.clone()));
        return Ok(found);
    }
    for task in Task::of(row) {
        let results = match results(&task, repetitions, ends) {
            Ok(results) => results,
            Err(cause) => {
                found.verdict = Verdict::Not(cause);
                found.seen = None;
                found.figures.clear();
                return Ok(found);
            }
        };
        found.seen = Some(seen(&task, &results)?);
        let figures = figures(row, &task, scenarios)?;
        let spreads = ours(&task, &figures, &results)?;
        for (figure, ours) in figures.into_iter().zip(spreads) {
            found.figures.push(judged(row, figure, ours, results.len())?);
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

/// What all repetitions of `task` found, or why there is not all of it.
fn results(task: &Task, repetitions: u32, ends: &Ends) -> Result<Vec<Value>, Cause> {
    let one = |repetition| {
        let job = Job { task: task.clone(), repetition };
        match ends.get(&job.name()) {
            Some(End::Done(found)) => Ok(found.result.clone()),
            Some(End::Failed(text)) => Err(Cause::CannotRun(text.clone())),
            Some(End::Left(text)) => Err(Cause::NotRun(text.clone())),
            None => Err(Cause::NotRun("it was not asked for".to_owned())),
        }
    };
    (1..=task.repetitions(repetitions)).map(one).collect()
}

fn seen(task: &Task, results: &[Value]) -> anyhow::Result<String> {
    Ok(match task {
        Task::Simulate { .. } => SIMULATED.to_owned(),
        Task::Series { .. } => REPLAYED.to_owned(),
        Task::Lab { .. } => format!("on real guests, {}", joined(results)?.machine.accelerator),
    })
}

impl FigureFindings {
    /// What it is, with whatever tells it from the others of a row.
    pub(crate) fn name(&self) -> String {
        let of = [Some(self.policy.as_str()), self.guest.as_deref(), Some(self.subject.as_str())];
        let of: Vec<&str> = of.into_iter().flatten().collect();
        format!("{} ({})", self.what, of.join(", "))
    }

    /// The paper's figure or the goal, for people.
    pub(crate) fn paper_shown(&self) -> String {
        match self.paper {
            Some(paper) => self.band.metric.shown(paper),
            None => self.band.asked(),
        }
    }

    /// Ours with its spread, for people.
    pub(crate) fn ours_shown(&self) -> String {
        let shown = |value| self.band.metric.shown(value);
        let spread = self.ours.map(|ours| super::verdict::spread_shown(ours, &shown));
        ballast_report::figures::or_none(spread)
    }
}

impl RowFindings {
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

    /// How many of its figures are reproduced, agree in kind, and do not.
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
    fn a_row_with_a_job_that_failed_says_so() {
        let task = Task::Lab { scenario: "lab/a.toml".to_owned() };
        let name = |repetition| Job { task: task.clone(), repetition }.name();
        let failed = End::Failed("no QEMU".to_owned());
        let ends = Ends::from([(name(1), failed)]);
        assert_eq!(results(&task, 1, &ends), Err(Cause::CannotRun("no QEMU".to_owned())));
        let left = Ends::from([(name(1), End::Left("not asked".to_owned()))]);
        assert_eq!(results(&task, 2, &left), Err(Cause::NotRun("not asked".to_owned())));
    }
}
