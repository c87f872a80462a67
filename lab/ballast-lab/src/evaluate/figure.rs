//! The figures of a row: the paper's, and ours from the results of its jobs.
//!
//! Idea: the result of a job is the JSON of the command that it stands for: of `simulate`, of `imt`
//! for each series, or the record of `lab run`. The paper's figures are those in the scenarios
//! whose source is the row's place; ours are looked up in the results.
//! Limits: for recorded series, our figure is the mean over the series, as the paper's is over its
//! programs; a series without the figure is left out.

use anyhow::Context;
use ballast_scenario_run::compare::Comparison;
use ballast_scenario_run::paper;
use ballast_scenario_run::part::{self, PartRecord};
use ballast_scenario_run::record::{GuestRun, Record, RunRecord, Sample};
use ballast_scenario_run::simulate::paper::PaperFigure;
use ballast_scenario_run::simulate::parameter::{Parameter, defaults};
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;
use serde_json::Value;
use std::path::Path;

use super::catalogue::{OwnFigure, Row};
use super::job::{Task, lab_scenario, read_bounded};
use super::measure::Measure;
use crate::commands::lab_run::description;

/// The adaptive threshold of `imt`.
const ADAPTIVE: &str = "adaptive";
/// Thresholds this close count as the same.
const THRESHOLD_WITHIN: f64 = 1e-6;

/// A figure to compare.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// What was measured, in words.
    pub(crate) what: String,
    /// The scenario, or the folder of series.
    pub(crate) subject: String,
    /// The policy, or the threshold of intermittent tracking.
    pub(crate) policy: String,
    /// The guest; `None`: all guests together.
    pub(crate) guest: Option<String>,
    pub(crate) measure: Measure,
    /// The paper's figure; `None`: there is none, the figure is a goal.
    pub(crate) paper: Option<f64>,
    /// Which parameters of the model were fitted to this place of the paper, in words.
    pub(crate) fitted: Option<String>,
    lookup: Lookup,
}

/// Where our figure is.
#[derive(Clone, Debug, PartialEq)]
enum Lookup {
    /// This figure of the scenario's `[[paper]]` tables, by index.
    OfScenario(usize, PaperFigure),
    /// A figure of the catalogue.
    Own(OwnFigure),
}

/// The contestants of a scenario that `figure` is about or is measured against.
pub(crate) fn contestants(figure: &Figure) -> Vec<&str> {
    let mut names = vec![figure.policy.as_str()];
    if let Lookup::Own(own) = &figure.lookup {
        names.extend(own.against.iter().map(String::as_str));
    }
    names.extend(figure.measure.baseline());
    names
}

/// The figures of `row` to which `task` has the results.
///
/// # Errors
/// The scenario cannot be read.
pub(crate) fn figures(row: &Row, task: &Task, scenarios: &Path) -> anyhow::Result<Vec<Figure>> {
    let (papers, parameters) = of_scenario(task, scenarios)?;
    let of_row = |paper: &PaperFigure| row.sources.contains(&paper.source);
    let numbered = papers.into_iter().enumerate().filter(|(_, paper)| of_row(paper));
    let from_scenario = numbered.map(|(number, paper)| Figure {
        what: paper.what.clone(),
        subject: task.subject().to_owned(),
        policy: paper.policy.clone(),
        guest: paper.guest.as_ref().map(ToString::to_string),
        measure: paper.metric.into(),
        paper: Some(paper.value),
        fitted: fitted(&parameters, &paper.source),
        lookup: Lookup::OfScenario(number, paper),
    });
    let own = row.figures.iter().map(|own| Figure {
        what: own.what.clone(),
        subject: task.subject().to_owned(),
        policy: own.policy.clone(),
        guest: own.guest.clone(),
        measure: own.metric,
        paper: own.value,
        fitted: own
            .value
            .and_then(|_| row.sources.iter().find_map(|source| fitted(&parameters, source))),
        lookup: Lookup::Own(own.clone()),
    });
    Ok(from_scenario.chain(own).collect())
}

fn of_scenario(
    task: &Task,
    scenarios: &Path,
) -> anyhow::Result<(Vec<PaperFigure>, Vec<Parameter>)> {
    match task {
        Task::Simulate { scenario, .. } => {
            let path = scenarios.join(scenario);
            let file = ScenarioFile::parse(&read_bounded(&path)?, &path)?;
            let mut parameters = file.parameters;
            let is_set = |key: &str| parameters.iter().any(|own| own.key == key);
            let others = defaults().into_iter().map(|(parameter, _)| parameter);
            let others: Vec<Parameter> = others.filter(|it| !is_set(&it.key)).collect();
            parameters.extend(others);
            Ok((file.paper, parameters))
        }
        Task::Lab { scenario } => {
            let scenario = lab_scenario(&scenarios.join(scenario))?;
            Ok((paper::figures(&scenario)?, Vec::new()))
        }
        Task::Series { .. } => Ok((Vec::new(), Vec::new())),
    }
}

/// The keys of the parameters that were fitted to `source`, in words.
fn fitted(parameters: &[Parameter], source: &str) -> Option<String> {
    let is_to = |parameter: &&Parameter| parameter.fitted_to.iter().any(|it| it == source);
    let keys: Vec<&str> = parameters.iter().filter(is_to).map(|it| it.key.as_str()).collect();
    match &keys[..] {
        [] => None,
        [one] => Some(format!("{one} was")),
        several => Some(format!("{} were", several.join(", "))),
    }
}

/// The results of all jobs of a task.
#[derive(Clone, Debug)]
pub(crate) enum TaskResults {
    /// The JSON of simulations, by repetition.
    Simulations(Vec<Value>),
    /// The JSON of replays of series.
    Replays(Vec<Value>),
    /// Runs on real guests.
    Runs(Box<Record>),
}

impl TaskResults {
    /// Reads the `results` of the jobs of `task`.
    ///
    /// # Errors
    /// They do not have the form of that task's results, or its scenario cannot be read.
    pub(crate) fn new(
        task: &Task,
        results: Vec<Value>,
        scenarios: &Path,
    ) -> anyhow::Result<TaskResults> {
        let scenario = match task {
            Task::Simulate { .. } => return Ok(TaskResults::Simulations(results)),
            Task::Series { .. } => return Ok(TaskResults::Replays(results)),
            Task::Lab { scenario } => scenarios.join(scenario),
        };
        let part = |result| serde_json::from_value(result).context("a kept result is no run");
        let parts: Vec<PartRecord> =
            results.into_iter().map(part).collect::<anyhow::Result<_>>()?;
        let text = read_bounded(&scenario)?;
        let scenario = lab_scenario(&scenario)?;
        Ok(TaskResults::Runs(Box::new(part::record(&scenario, &description(&text), parts)?)))
    }
}

/// Our values of one figure by repetition; `None`: that repetition has no such figure.
pub(crate) type Values = Vec<Option<f64>>;

/// Our values for each of `figures`, from the results of a task's jobs.
///
/// # Errors
/// A result does not have the form of the task's results.
pub(crate) fn ours(figures: &[Figure], results: &TaskResults) -> anyhow::Result<Vec<Values>> {
    match results {
        TaskResults::Simulations(results) => {
            let values = |figure: &Figure| -> Values {
                results.iter().map(|result| simulated(figure, result)).collect()
            };
            Ok(figures.iter().map(values).collect())
        }
        TaskResults::Replays(results) => {
            let values = |figure: &Figure| -> Values {
                results.iter().map(|result| replayed(figure, result)).collect()
            };
            Ok(figures.iter().map(values).collect())
        }
        TaskResults::Runs(record) => {
            let whole = Comparison::new(record);
            let repetitions = 1..=record.scenario.repetitions;
            let each = repetitions.map(|it| Comparison::of_repetition(record, it));
            let each: Vec<Comparison> = each.collect();
            figures.iter().map(|figure| measured(figure, record, &whole, &each)).collect()
        }
    }
}

fn simulated(figure: &Figure, result: &Value) -> Option<f64> {
    let own = match &figure.lookup {
        Lookup::OfScenario(number, _) => {
            return result["paper"].get(*number)?["simulated"].as_f64();
        }
        Lookup::Own(own) => own,
    };
    let guest = own.guest.as_deref();
    let of = |policy: &str| of_policy(result, policy, guest);
    let against = |value: &dyn Fn(&str) -> Option<f64>| {
        let others: Vec<f64> = own.against.iter().map(|it| value(it)).collect::<Option<_>>()?;
        let most = others.into_iter().reduce(f64::max).filter(|most| *most > 0.0)?;
        Some(value(&own.policy)? / most)
    };
    let field = |name: &str| of(&own.policy)?.get(name)?.as_f64();
    match own.metric {
        Measure::TouchesAgainst => against(&|policy| touches(of(policy)?)),
        Measure::WorkAgainst => against(&|policy| of(policy)?.get("work_ratio")?.as_f64()),
        Measure::WorkRatio => field("work_ratio"),
        Measure::SpeedupVsStatic if guest.is_none() => field("speedup_vs_static"),
        Measure::SpeedupVsStatic => {
            let under_static = of("static")?.get("work_ratio")?.as_f64().filter(|it| *it > 0.0)?;
            Some(field("work_ratio")? / under_static)
        }
        Measure::MajorFaults => field("major_faults"),
        Measure::MajorFaultsVsStatic => {
            let under_static = of("static")?.get("major_faults")?.as_f64()?;
            (under_static > 0.0).then_some(field("major_faults")? / under_static)
        }
        Measure::AllocationBytes | Measure::AllocationMeanBytes => field("allocation_mean_bytes"),
        Measure::AllocationMaxBytes => field("allocation_max_bytes"),
        Measure::AllocationLastBytes => field("allocation_last_bytes"),
        Measure::ConvergeS => field("converge_s"),
        Measure::SwapBytes => field("swap_used_max_bytes"),
        Measure::Violations => field("violations"),
        Measure::UpRatio
        | Measure::Mre
        | Measure::SwapLastBytes
        | Measure::WorkRatioUntilSettled
        | Measure::WorkRatioSettled => None,
    }
}

/// The part of a simulation's result for a policy, or for a guest under it.
fn of_policy<'a>(result: &'a Value, policy: &str, guest: Option<&str>) -> Option<&'a Value> {
    let named = |list: &'a Value, key: &str, name: &str| {
        list.as_array()?.iter().find(|it| it[key].as_str() == Some(name))
    };
    let own = named(&result["policies"], "policy", policy)?;
    match guest {
        None => Some(own),
        Some(guest) => named(&own["guests"], "guest", guest),
    }
}

/// Page touches of a guest, or of all guests of a policy.
fn touches(of: &Value) -> Option<f64> {
    match of.get("guests") {
        None => of.get("work")?.as_f64(),
        Some(guests) => guests.as_array()?.iter().map(|guest| guest["work"].as_f64()).sum(),
    }
}

/// The mean over series.
fn replayed(figure: &Figure, result: &Value) -> Option<f64> {
    let key = match figure.measure {
        Measure::UpRatio => "up_ratio",
        Measure::Mre => "mre",
        _ => return None,
    };
    let is_wanted = |run: &&Value| match figure.policy.parse::<f64>() {
        Ok(wanted) => {
            run["threshold"].as_f64().is_some_and(|it| (it - wanted).abs() < THRESHOLD_WITHIN)
        }
        Err(_) => figure.policy == ADAPTIVE && run["mode"].as_str() == Some(ADAPTIVE),
    };
    let of_series =
        |series: &Value| series["runs"].as_array()?.iter().find(is_wanted)?[key].as_f64();
    let values: Vec<f64> = result.as_array()?.iter().filter_map(of_series).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// By repetition; `whole` compares all runs of `record`, `each` those of each repetition.
fn measured(
    figure: &Figure,
    record: &Record,
    whole: &Comparison,
    each: &[Comparison],
) -> anyhow::Result<Values> {
    let repetitions = 1..=record.scenario.repetitions;
    if figure.measure.is_of_samples() {
        let value = |repetition| sampled(figure, run(record, &figure.policy, repetition)?);
        return Ok(repetitions.map(value).collect());
    }
    if figure.measure == Measure::Violations {
        let budget = record.scenario.budget_bytes;
        let value = |repetition| over_budget(run(record, &figure.policy, repetition)?, budget);
        return Ok(repetitions.map(value).collect());
    }
    if let Some(run_figure) = figure.measure.run_figure() {
        let value = |own: &Comparison| {
            let row = own.row(figure.guest.as_deref(), &figure.policy)?;
            row.cell(run_figure)?.value.map(|it| it.median)
        };
        return Ok(each.iter().map(value).collect());
    }
    let wanted = match &figure.lookup {
        Lookup::OfScenario(_, paper) => paper.clone(),
        Lookup::Own(own) if own.metric == Measure::TouchesAgainst => {
            return Ok(repetitions.map(|it| against(own, record, it)).collect());
        }
        Lookup::Own(own) => PaperFigure {
            what: own.what.clone(),
            policy: own.policy.clone(),
            guest: own.guest.as_ref().map(|guest| guest.parse()).transpose()?,
            metric: own.metric.metric().context("a measure that no real run has")?,
            value: own.value.unwrap_or_default(),
            source: figure.subject.clone(),
        },
    };
    Ok(paper::by_repetition(&wanted, whole, each))
}

fn run<'a>(record: &'a Record, policy: &str, repetition: u32) -> Option<&'a RunRecord> {
    record.runs.iter().find(|run| run.policy == policy && run.repetition == repetition)
}

/// In how many samples of `run` its guests together held more than `budget` bytes. Samples in which
/// the allocation of a guest is unknown do not count; `None`: it is unknown in all of them.
fn over_budget(run: &RunRecord, budget: u64) -> Option<f64> {
    let samples = run.guests.iter().map(|guest| guest.samples.len()).min()?;
    let held = |at: usize| -> Option<u64> {
        run.guests.iter().map(|guest| guest.samples[at].daemon.as_ref()?.allocation_bytes).sum()
    };
    let known: Vec<u64> = (0..samples).filter_map(held).collect();
    let over = known.iter().filter(|held| **held > budget).count();
    (!known.is_empty()).then_some(over as f64)
}

/// A figure of a guest in `run`, computed from its samples.
fn sampled(figure: &Figure, run: &RunRecord) -> Option<f64> {
    let guest = run.guest(figure.guest.as_deref()?)?;
    let mut held = guest.samples.iter().filter_map(|it| it.daemon.as_ref()?.allocation_bytes);
    let mut swapped = guest.samples.iter().filter_map(|it| it.inside.as_ref()?.swap_used_bytes);
    match figure.measure {
        Measure::SwapBytes => swapped.max().map(|bytes| bytes as f64),
        Measure::SwapLastBytes => swapped.next_back().map(|bytes| bytes as f64),
        Measure::AllocationMaxBytes => held.max().map(|bytes| bytes as f64),
        Measure::AllocationLastBytes => held.next_back().map(|bytes| bytes as f64),
        Measure::Mre => tracking_error(&guest.samples),
        _ => None,
    }
}

/// The mean relative error of the working set that the tracker reports, against the memory that the
/// guest's workloads use: over all samples that have both, beginning with the first one that has a
/// working set.
fn tracking_error(samples: &[Sample]) -> Option<f64> {
    let (mut sum, mut count, mut size) = (0.0, 0_u32, None);
    for sample in samples {
        size = sample.inside.as_ref().map(|inside| inside.size_bytes).or(size);
        let tracking = sample.daemon.as_ref().and_then(|daemon| daemon.tracking.as_ref());
        let seen = tracking.and_then(|tracking| tracking.working_set_bytes);
        if let (Some(seen), Some(size)) = (seen, size.filter(|size| *size > 0)) {
            sum += seen.abs_diff(size) as f64 / size as f64;
            count += 1;
        }
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Page touches under the policy of `own`, against the most under any of the other policies, in one
/// repetition.
fn against(own: &OwnFigure, record: &Record, repetition: u32) -> Option<f64> {
    let touches = |policy: &str| -> Option<u64> {
        let guests = &run(record, policy, repetition)?.guests;
        let is_own = |guest: &&GuestRun| own.guest.as_ref().is_none_or(|it| *it == guest.guest);
        let known: Vec<u64> = guests.iter().filter(is_own).filter_map(GuestRun::touches).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    };
    let others: Vec<u64> = own.against.iter().map(|it| touches(it)).collect::<Option<_>>()?;
    let most = others.into_iter().max().filter(|most| *most > 0)?;
    Some(touches(&own.policy)? as f64 / most as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(metric: Measure, policy: &str, guest: Option<&str>, against: &[&str]) -> Figure {
        let own = OwnFigure {
            what: "w".to_owned(),
            policy: policy.to_owned(),
            guest: guest.map(str::to_owned),
            metric,
            value: None,
            against: against.iter().map(|&it| it.to_owned()).collect(),
        };
        Figure {
            what: own.what.clone(),
            subject: "s".to_owned(),
            policy: own.policy.clone(),
            guest: own.guest.clone(),
            measure: metric,
            paper: None,
            fitted: None,
            lookup: Lookup::Own(own),
        }
    }

    fn result() -> Value {
        let policy = |name: &str, work: u64, ratio: f64| {
            json!({"policy": name, "work_ratio": ratio, "violations": 0, "guests": [
                {"guest": "a", "work": work, "work_ratio": work as f64 / 128.0, "major_faults": 4,
                 "allocation_max_bytes": 7},
                {"guest": "b", "work": 10, "major_faults": 0, "allocation_max_bytes": 9},
            ]})
        };
        json!({"policies": [
            policy("static", 10, 0.25), policy("global", 70, 0.75), policy("mom", 30, 0.5),
        ]})
    }

    #[test]
    fn figures_of_a_simulation_are_looked_up() {
        let found = |figure: &Figure| simulated(figure, &result());
        let touches = Measure::TouchesAgainst;
        assert_eq!(found(&own(touches, "global", None, &["mom", "static"])), Some(2.0));
        assert_eq!(found(&own(touches, "global", Some("a"), &["static"])), Some(7.0));
        assert_eq!(found(&own(Measure::WorkAgainst, "global", None, &["mom"])), Some(1.5));
        assert_eq!(found(&own(Measure::SpeedupVsStatic, "mom", Some("a"), &[])), Some(3.0));
        assert_eq!(found(&own(Measure::AllocationMaxBytes, "mom", Some("b"), &[])), Some(9.0));
        assert_eq!(found(&own(Measure::Violations, "mom", None, &[])), Some(0.0));
    }

    #[test]
    fn an_absent_policy_or_guest_has_no_figure() {
        let found = |figure: &Figure| simulated(figure, &result());
        let touches = Measure::TouchesAgainst;
        assert_eq!(found(&own(touches, "global", None, &["mom", "esx"])), None);
        assert_eq!(found(&own(Measure::WorkRatio, "esx", None, &[])), None);
        assert_eq!(found(&own(Measure::SpeedupVsStatic, "mom", Some("c"), &[])), None);
        let zero = own(Measure::MajorFaultsVsStatic, "mom", Some("b"), &[]);
        assert_eq!(found(&zero), None);
    }

    #[test]
    fn series_have_the_mean_of_those_that_know() {
        let run = |mode: &str, threshold: Option<f64>, up: f64, mre: Option<f64>| json!({"mode": mode, "threshold": threshold, "up_ratio": up, "mre": mre});
        let series = |up: f64, mre: Option<f64>| json!({"runs": [run("fixed", Some(0.05), up, mre), run("adaptive", None, 0.5, mre)]});
        let result = json!([series(0.2, Some(0.1)), series(0.4, None)]);
        let found = |measure, policy| replayed(&own(measure, policy, None, &[]), &result);
        assert!((found(Measure::UpRatio, "0.05").unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(found(Measure::Mre, "0.05"), Some(0.1));
        assert_eq!(found(Measure::UpRatio, "adaptive"), Some(0.5));
        assert_eq!(found(Measure::UpRatio, "0.10"), None);
        assert_eq!(found(Measure::WorkRatio, "adaptive"), None);
    }

    fn sample(held: u64, swapped: u64, size: u64, seen: Option<u64>) -> Sample {
        let sample = json!({
            "at_s": 1.0,
            "daemon": {"allocation_bytes": held, "tracking": {"state": "watching", "working_set_bytes": seen}},
            "inside": {"at_ms": 1000, "touches": 1, "iterations": 1, "size_bytes": size, "size_wanted_bytes": size, "swap_used_bytes": swapped},
        });
        serde_json::from_value(sample).unwrap()
    }

    #[test]
    fn figures_of_samples_are_those_of_their_guest() {
        let samples = vec![
            sample(5, 0, 100, None),
            sample(9, 40, 100, Some(90)),
            sample(7, 30, 50, Some(80)),
        ];
        let guest = GuestRun { guest: "a".to_owned(), samples, workloads: Vec::new() };
        let run: RunRecord = serde_json::from_value(json!({
            "policy": "meb", "repetition": 1, "measured_s": 3.0, "guests": [guest], "remarks": [],
        }))
        .unwrap();
        let found = |measure, guest| sampled(&own(measure, "meb", guest, &[]), &run);
        assert_eq!(found(Measure::SwapBytes, Some("a")), Some(40.0));
        assert_eq!(found(Measure::SwapLastBytes, Some("a")), Some(30.0));
        assert_eq!(found(Measure::AllocationMaxBytes, Some("a")), Some(9.0));
        assert_eq!(found(Measure::AllocationLastBytes, Some("a")), Some(7.0));
        // The errors are 0.1 and 0.6; the first sample has no working set.
        assert!((found(Measure::Mre, Some("a")).unwrap() - 0.35).abs() < 1e-9);
        assert_eq!(
            (found(Measure::SwapBytes, None), found(Measure::SwapBytes, Some("b"))),
            (None, None)
        );
    }

    #[test]
    fn samples_over_the_budget_are_counted() {
        let guest = |name: &str, held: [u64; 3]| GuestRun {
            guest: name.to_owned(),
            samples: held.iter().map(|held| sample(*held, 0, 1, None)).collect(),
            workloads: Vec::new(),
        };
        let guests = vec![guest("a", [5, 9, 7]), guest("b", [5, 1, 4])];
        let mut run = RunRecord { guests, ..RunRecord::default() };
        assert_eq!([9, 10, 11].map(|it| over_budget(&run, it)), [Some(3.0), Some(1.0), Some(0.0)]);
        run.guests[1].samples[2].daemon = None;
        assert_eq!(over_budget(&run, 10), Some(0.0), "what b held is unknown");
        run.guests[1].samples.clear();
        assert_eq!(over_budget(&run, 10), None);
    }

    /// With all its memory: 100 touches a second. Under the policy: 40 a second until its memory
    /// has settled at 4 s, and 80 after that.
    #[test]
    fn work_is_compared_before_and_after_memory_settles() {
        let run = |policy: &str, rates: [u64; 2]| {
            let sample = |second: u64| {
                let touches = second.min(4) * rates[0] + second.saturating_sub(4) * rates[1];
                let held = if second < 4 { 200 } else { 100 };
                json!({
                    "at_s": second,
                    "daemon": {"allocation_bytes": held},
                    "inside": {"at_ms": second * 1000, "touches": touches, "iterations": 0,
                               "size_bytes": 1, "size_wanted_bytes": 1},
                })
            };
            let samples: Vec<Value> = (0..=10).map(sample).collect();
            let guest = json!({"guest": "a", "samples": samples, "workloads": []});
            json!({"policy": policy, "repetition": 1, "measured_s": 10.0, "guests": [guest],
                   "remarks": []})
        };
        let guest = json!({"guest": "a", "boot_bytes": 200, "start_bytes": 200, "work": 500,
                           "workloads": []});
        let record: Record = serde_json::from_value(json!({
            "format_version": 1, "started_at": "T",
            "scenario": {"name": "s", "description": "", "budget_bytes": 200, "duration_s": 10.0,
                         "repetitions": 1, "policies": ["tws", "best"], "best": "best",
                         "guests": [guest]},
            "machine": {"accelerator": "tcg", "ballast": "0"},
            "runs": [run("tws", [40, 80]), run("best", [100, 100])],
        }))
        .unwrap();
        let figures = [Measure::WorkRatioUntilSettled, Measure::WorkRatioSettled]
            .map(|measure| own(measure, "tws", Some("a"), &[]));
        let found = ours(&figures, &TaskResults::Runs(Box::new(record))).unwrap();
        assert_eq!(found, [[Some(0.4)], [Some(0.8)]]);
    }

    #[test]
    fn parameters_fitted_to_a_place_are_named() {
        let parameter = |key: &str, places: &[&str]| Parameter {
            key: key.to_owned(),
            origin: ballast_scenario_run::simulate::parameter::Origin::Fitted,
            because: "b".to_owned(),
            fitted_to: places.iter().map(|&it| it.to_owned()).collect(),
        };
        let all =
            [parameter("a", &["MEB Table V"]), parameter("b", &["MEB Table IV", "MEB Table V"])];
        assert_eq!(fitted(&all, "MEB Table IV").as_deref(), Some("b was"));
        assert_eq!(fitted(&all, "MEB Table V").as_deref(), Some("a, b were"));
        assert_eq!(fitted(&all, "MEB Table VI"), None);
    }
}
