//! Compares policies with each other.
//!
//! Idea: every run yields a few figures for each guest and for all guests together. Over
//! repetitions a figure is its median with its range. A ratio is computed within each repetition,
//! because a machine's speed drifts between repetitions; then the median and range of the ratios
//! are taken.
//!
//! Where the guests also ran with all their memory, work is given as a share of that. Touches of a
//! large working set take longer than those of a small one, so a plain sum would mostly show the
//! guest with the small working set. The figure of all guests together is the mean of their shares.
//! Limits: a ratio to zero has no value ([`Ratio::FromZero`]); figures that were not measured are
//! left out of the median.

use serde::Serialize;

use super::calls;
use super::record::{Record, RunRecord};

pub use super::figure::Figure;

/// The median and range of one value over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; of an even number of values the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Spread { median, min, max, count: values.len() })
    }

    /// The spread of the reciprocals of positive values: turns times into speedups. Of an even
    /// number of values the median is the reciprocal of the mean of the two in the middle.
    pub(super) fn reciprocal(self) -> Spread {
        Spread { median: 1.0 / self.median, min: 1.0 / self.max, max: 1.0 / self.min, ..self }
    }
}

/// A figure against the same figure under the first policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Ratio {
    /// This factor.
    Times(Spread),
    /// Both are zero.
    BothZero,
    /// The first policy's is zero and this one's is not, in at least one repetition.
    FromZero,
}

impl Ratio {
    /// The ratio over pairs of (the first policy's value, this policy's value); `None` if there are
    /// none.
    fn of(pairs: &[(f64, f64)]) -> Option<Ratio> {
        if pairs.is_empty() {
            return None;
        }
        if pairs.iter().all(|pair| *pair == (0.0, 0.0)) {
            return Some(Ratio::BothZero);
        }
        if pairs.iter().any(|(first, this)| *first == 0.0 && *this != 0.0) {
            return Some(Ratio::FromZero);
        }
        let counted = pairs.iter().filter(|(first, _)| *first != 0.0);
        Spread::of(counted.map(|(first, this)| this / first)).map(Ratio::Times)
    }
}

/// A figure under one policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The figure.
    pub figure: Figure,
    /// Its value; `None`: not measured, or undefined.
    pub value: Option<Spread>,
    /// Its ratio to the first policy; `None` for the first policy itself.
    pub ratio: Option<Ratio>,
}

/// The figures of one guest, or of all together, under one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The guest; `None`: all together.
    pub guest: Option<String>,
    /// The policy.
    pub policy: String,
    /// Its cells, one for each of [`Comparison::figures`].
    pub cells: Vec<Cell>,
}

impl Row {
    /// The cell of one figure.
    pub fn cell(&self, figure: Figure) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.figure == figure)
    }
}

/// Work under a policy against work under the first policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The policy.
    pub policy: String,
    /// Page touches of all guests together, against the first policy.
    pub work: Ratio,
    /// Time until it had done as much work as the first policy did in the whole run, in seconds;
    /// `None`: it did less.
    pub same_work_s: Option<Spread>,
}

/// The comparison of all policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The policies; the first is what the others are measured against.
    pub policies: Vec<String>,
    /// The figures that the rows have, in their order.
    pub figures: Vec<Figure>,
    /// Every guest under every policy, then all guests together.
    pub rows: Vec<Row>,
    /// The work ratios of the other policies, in the order of the policies.
    pub gains: Vec<Gain>,
    /// Runs of each policy that were compared.
    pub repetitions: usize,
    /// How long each run was measured, in seconds.
    pub duration_s: f64,
    /// What a reader of the figures should know.
    pub remarks: Vec<String>,
}

impl Comparison {
    /// Compares the runs of `record`.
    pub fn new(record: &Record) -> Comparison {
        let policies = record.scenario.policies.clone();
        let guests = record.scenario.guests.iter().map(|guest| Some(guest.guest.as_str()));
        let mut rows: Vec<Row> = guests
            .chain([None])
            .flat_map(|guest| policies.iter().map(move |policy| (guest, policy)))
            .map(|(guest, policy)| row(record, guest, policy))
            .collect();
        let has = |figure: Figure| {
            let cells = rows.iter().filter_map(|row| row.cell(figure));
            let is_timed = figure == Figure::FullSpeed
                && record.scenario.guests.iter().any(|guest| guest.full_speed_per_s.is_some());
            // A column in which no guest reached full speed is still shown.
            is_timed || cells.filter_map(|cell| cell.value).next().is_some()
        };
        let shown = Figure::ALL.iter().copied().filter(|figure| !figure.is_rare() || has(*figure));
        let figures: Vec<Figure> = shown.collect();
        for row in &mut rows {
            row.cells.retain(|cell| figures.contains(&cell.figure));
        }
        let others = policies.iter().skip(1);
        let gains = others.filter_map(|policy| gain(record, policy)).collect();
        let counted = policies.iter().map(|policy| runs(record, policy).count());
        Comparison {
            repetitions: counted.min().unwrap_or(0),
            duration_s: record.scenario.duration_s,
            remarks: remarks(record),
            policies,
            figures,
            rows,
            gains,
        }
    }

    /// Compares the runs of one repetition of `record`, from 1.
    pub fn of_repetition(record: &Record, repetition: u32) -> Comparison {
        let runs = record.runs.iter().filter(|run| run.repetition == repetition);
        Comparison::new(&Record {
            format_version: record.format_version,
            started_at: record.started_at.clone(),
            scenario: record.scenario.clone(),
            machine: record.machine.clone(),
            runs: runs.cloned().collect(),
        })
    }

    /// The row of a guest, or of all together, under a policy.
    pub fn row(&self, guest: Option<&str>, policy: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.guest.as_deref() == guest && row.policy == policy)
    }
}

fn runs<'a>(record: &'a Record, policy: &'a str) -> impl Iterator<Item = &'a RunRecord> {
    record.runs.iter().filter(move |run| run.policy == policy)
}

/// Every run of `policy` with the first policy's run of the same repetition.
fn pairs<'a>(
    record: &'a Record,
    policy: &'a str,
) -> impl Iterator<Item = (&'a RunRecord, &'a RunRecord)> {
    let first = record.scenario.policies.first();
    runs(record, policy).filter_map(move |this| {
        let mut of_first = runs(record, first?);
        Some((of_first.find(|run| run.repetition == this.repetition)?, this))
    })
}

fn row(record: &Record, guest: Option<&str>, policy: &str) -> Row {
    let best_of = |run: &RunRecord| {
        let mut best = runs(record, record.scenario.best.as_deref()?);
        best.find(|best| best.repetition == run.repetition)
    };
    let value = |figure: Figure, run: &RunRecord| match guest {
        Some(guest) => {
            let best = best_of(run).and_then(|best| best.guest(guest));
            figure.of(run.guest(guest)?, best, record.scenario.guest(guest)?)
        }
        None => figure.of_all(run, best_of(run), &record.scenario),
    };
    let is_first = record.scenario.policies.first().is_some_and(|first| first == policy);
    let ratio = |figure: Figure| {
        let known = |(first, this)| Some((value(figure, first)?, value(figure, this)?));
        Ratio::of(&pairs(record, policy).filter_map(known).collect::<Vec<_>>())
    };
    let cell = |figure: Figure| Cell {
        figure,
        value: Spread::of(runs(record, policy).filter_map(|run| value(figure, run))),
        ratio: if is_first { None } else { ratio(figure) },
    };
    Row {
        guest: guest.map(str::to_owned),
        policy: policy.to_owned(),
        cells: Figure::ALL.iter().copied().map(cell).collect(),
    }
}

fn gain(record: &Record, policy: &str) -> Option<Gain> {
    let work = |run: &RunRecord| Figure::Touches.of_all(run, None, &record.scenario);
    let known = |(first, this): (&RunRecord, &RunRecord)| Some((work(first)?, work(this)?));
    let ratio = Ratio::of(&pairs(record, policy).filter_map(known).collect::<Vec<_>>())?;
    let times = pairs(record, policy).map(|(first, this)| time_to(this, work(first)?));
    // A run that never got there has no time, so there is no median either.
    let times: Option<Vec<f64>> = times.collect();
    Some(Gain { policy: policy.to_owned(), work: ratio, same_work_s: times.and_then(Spread::of) })
}

/// When all guests of `run` together had touched `work` pages; `None`: never.
fn time_to(run: &RunRecord, work: f64) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for (at, done) in work_over_time(run) {
        if done >= work {
            let (at_before, done_before): (f64, f64) = before;
            let part =
                if done > done_before { (work - done_before) / (done - done_before) } else { 1.0 };
            return Some(at_before + (at - at_before) * part.clamp(0.0, 1.0));
        }
        before = (at, done);
    }
    None
}

/// Pages touched by all guests together up to each sample's time.
fn work_over_time(run: &RunRecord) -> Vec<(f64, f64)> {
    let samples = run.guests.iter().map(|guest| guest.samples.len()).max().unwrap_or(0);
    let mut done = vec![0.0; run.guests.len()];
    let mut over_time = Vec::with_capacity(samples);
    for at in 0..samples {
        let mut at_s: f64 = 0.0;
        for (guest, done) in run.guests.iter().zip(&mut done) {
            let Some(sample) = guest.samples.get(at) else { continue };
            at_s = at_s.max(sample.at_s);
            if let Some(inside) = &sample.inside {
                *done = inside.touches as f64;
            }
        }
        over_time.push((at_s, done.iter().sum()));
    }
    over_time
}

/// The remarks of the runs, workloads that ended otherwise than they should, and remarks on the
/// runs as a whole.
fn remarks(record: &Record) -> Vec<String> {
    let mut remarks: Vec<String> = calls::remark(record).into_iter().collect();
    let twin = record.runs.iter().find_map(|run| Some((run, twin_of(record, run)?)));
    if let Some((best, twin)) = twin {
        let (best, twin) = (&best.policy, &twin.policy);
        remarks.push(format!("{best} is the run of {twin}: under it guests have all their memory"));
    }
    for run in record.runs.iter().filter(|run| twin_of(record, run).is_none()) {
        let of_run = format!("{}, repetition {}", run.policy, run.repetition);
        remarks.extend(run.remarks.iter().map(|remark| format!("{of_run}: {remark}")));
        for guest in &run.guests {
            let failed = guest.workloads.iter().filter(|workload| !workload.ended_well);
            remarks.extend(failed.map(|workload| {
                let after = workload.elapsed_ms as f64 / 1000.0;
                let (name, end) = (&workload.workload, &workload.end);
                format!("{of_run}: {name} in guest {} {end} after {after:.1} s", guest.guest)
            }));
        }
    }
    remarks
}

/// The run that `best` was copied from, if it is a copy.
fn twin_of<'a>(record: &'a Record, best: &RunRecord) -> Option<&'a RunRecord> {
    let is_twin = |run: &&RunRecord| {
        run.policy != best.policy && run.origin == best.origin && run.repetition == best.repetition
    };
    let is_best = record.scenario.best.as_ref() == Some(&best.policy) && best.origin.is_some();
    record.runs.iter().find(|run| is_best && is_twin(run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::at_full_speed;
    use crate::fixture;
    use ballast_lab_host::BEST;

    fn spread(values: &[f64]) -> Option<Spread> {
        Spread::of(values.iter().copied())
    }

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(spread(&[]), None);
        for (values, median) in [(&[3.0][..], 3.0), (&[5.0, 1.0], 3.0), (&[9.0, 1.0, 2.0], 2.0)] {
            let spread = spread(values).unwrap();
            assert_eq!((spread.median, spread.count), (median, values.len()), "{values:?}");
            assert!(spread.min <= spread.median && spread.median <= spread.max);
        }
    }

    #[test]
    fn ratios_with_zeros_say_so_instead_of_dividing() {
        assert_eq!(Ratio::of(&[]), None);
        assert_eq!(Ratio::of(&[(0.0, 0.0), (0.0, 0.0)]), Some(Ratio::BothZero));
        assert_eq!(Ratio::of(&[(2.0, 3.0), (0.0, 1.0)]), Some(Ratio::FromZero));
        let times = |values: &[f64]| spread(values).map(Ratio::Times);
        assert_eq!(Ratio::of(&[(2.0, 0.0)]), times(&[0.0]));
        assert_eq!(Ratio::of(&[(2.0, 5.0), (0.0, 0.0)]), times(&[2.5]));
    }

    #[test]
    fn full_speed_is_timed_from_the_last_start() {
        let mut record = fixture::record(&[("static", &[1000])]);
        let guest = &mut record.runs[0].guests[0];
        guest.workloads[0].started_s = 1.5;
        // It touches 100 pages in each second.
        assert_eq!(at_full_speed(guest, 100.0), Some(0.5));
        assert_eq!(at_full_speed(guest, 101.0), None);
        record.scenario.guests[0].full_speed_per_s = Some(101);
        let comparison = Comparison::new(&record);
        let cell = comparison.row(Some("a"), "static").unwrap().cell(Figure::FullSpeed).unwrap();
        assert_eq!(cell.value, None, "it was never that fast, and that is shown");
    }

    #[test]
    fn of_a_fixed_work_the_best_is_the_shortest_time() {
        let mut record = fixture::record(&[("static", &[100]), (BEST, &[200])]);
        record.scenario.guests[0].work = Some(80);
        let comparison = Comparison::new(&record);
        let value = |policy, figure| {
            comparison.row(Some("a"), policy).unwrap().cell(figure).unwrap().value.unwrap().median
        };
        assert_eq!(value("static", Figure::WorkTime), 8.0);
        assert_eq!(value(BEST, Figure::WorkTime), 4.0);
        assert_eq!(value("static", Figure::OfBest), 0.5);
        record.scenario.guests[0].work = None;
        assert!(!Comparison::new(&record).figures.contains(&Figure::WorkTime));
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        // The machine was twice as fast in the second repetition; the ratio stays the same.
        let record = fixture::record(&[("static", &[100, 200]), ("global", &[300, 600])]);
        let comparison = Comparison::new(&record);
        let row = comparison.row(Some("a"), "global").unwrap();
        let cell = row.cell(Figure::Touches).unwrap();
        assert_eq!(cell.value, spread(&[300.0, 600.0]));
        assert_eq!(cell.ratio, spread(&[3.0, 3.0]).map(Ratio::Times));
        assert_eq!(comparison.repetitions, 2);
        let baseline = comparison.row(Some("a"), "static").unwrap();
        assert!(baseline.cells.iter().all(|cell| cell.ratio.is_none()));
    }

    #[test]
    fn an_idle_guest_adds_no_work_to_the_total() {
        let record = fixture::record(&[("static", &[100]), ("global", &[150])]);
        let comparison = Comparison::new(&record);
        let touches = |guest, policy| {
            let row = comparison.row(guest, policy).unwrap();
            row.cell(Figure::Touches).unwrap().value.map(|value| value.median)
        };
        assert_eq!(touches(Some("b"), "global"), None);
        assert_eq!(touches(None, "global"), Some(150.0));
        assert_eq!(comparison.gains.len(), 1);
        assert_eq!(comparison.gains[0].work, Ratio::Times(spread(&[1.5]).unwrap()));
    }

    #[test]
    fn the_same_work_is_timed_on_the_series() {
        // Ten seconds, work growing steadily: 150 in all, so 100 are done at two thirds.
        let record = fixture::record(&[("static", &[100]), ("global", &[150])]);
        let comparison = Comparison::new(&record);
        let at = comparison.gains[0].same_work_s.unwrap().median;
        assert!((at - 10.0 * 100.0 / 150.0).abs() < 0.1, "{at}");
        let slower = fixture::record(&[("static", &[100]), ("global", &[50])]);
        assert_eq!(Comparison::new(&slower).gains[0].same_work_s, None);
    }

    #[test]
    fn workloads_that_ended_badly_are_reported() {
        let mut record = fixture::record(&[("static", &[100]), ("global", &[150])]);
        let workload = &mut record.runs[0].guests[0].workloads[0];
        workload.ended_well = false;
        workload.end = "was killed by signal 9".to_owned();
        let remarks = Comparison::new(&record).remarks;
        assert_eq!(
            remarks,
            ["static, repetition 1: grow in guest a was killed by signal 9 after 10.0 s"]
        );
    }
}
