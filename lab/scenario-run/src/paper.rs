//! A paper's figures and ours for the same scenario.
//!
//! Idea: a lab scenario has a paper's figures in the same form as a scenario of `ballast simulate`
//! (`[[paper]]`); each names our metric to compare it with.
//! Limits: sizes and machines differ, as the scenario says in words; no figure is computed from a
//! paper's and ours.

use anyhow::{Context, bail};
use ballast_lab_host::Scenario;
use serde_json::Value;

use super::compare::{Comparison, Figure, Ratio, Row, Spread};
use super::record::Record;
use crate::simulate::paper::{Metric, PAPER_MAX, PaperFigure};
use crate::simulate::paper_comparison::shown;
use ballast_report::Report;

/// The paper's figures in `scenario`.
///
/// # Errors
/// A figure is not valid; the error says which and why.
pub fn figures(scenario: &Scenario) -> anyhow::Result<Vec<PaperFigure>> {
    if scenario.paper.len() > PAPER_MAX {
        bail!("{} tables [[paper]]: expected at most {PAPER_MAX}", scenario.paper.len());
    }
    let one = |(number, table): (usize, &serde_json::Map<String, Value>)| {
        let context = || format!("[[paper]], the {}. of {}", number + 1, scenario.paper.len());
        let figure: PaperFigure =
            serde_json::from_value(Value::Object(table.clone())).with_context(context)?;
        figure
            .validate()
            .map_err(|(key, message)| anyhow::anyhow!("{key}: {message}"))
            .with_context(context)?;
        Ok(figure)
    };
    scenario.paper.iter().enumerate().map(one).collect()
}

/// The columns.
pub(super) fn report(comparison: &Comparison) -> Report<'_, PaperFigure> {
    Report::<PaperFigure>::new()
        .text("what", |it| it.what.clone())
        .text("guest", |it| it.guest_name().to_owned())
        .text("policy", |it| it.policy.clone())
        .figure("paper", |it| shown(it.metric, Some(it.value)))
        .figure("here", |it| shown(it.metric, measured(it, comparison).map(|it| it.median)))
        .text("source", |it| it.source.clone())
}

/// Our value over repetitions; `None` if there is none, or the policy did not run.
fn measured(paper: &PaperFigure, comparison: &Comparison) -> Option<Spread> {
    value(source(paper, comparison)?, paper, comparison)
}

/// Our value in each repetition of `whole`; `repetitions` has the comparison of each by itself.
pub fn by_repetition(
    paper: &PaperFigure,
    whole: &Comparison,
    repetitions: &[Comparison],
) -> Vec<Option<f64>> {
    // A repetition without the figure must not get its value from another figure.
    let source = source(paper, whole);
    let own = |own| Some(value(source?, paper, own)?.median);
    repetitions.iter().map(own).collect()
}

/// Where our value for a paper's figure is in a row of a comparison.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The value of this figure.
    Value(Figure),
    /// Its ratio to `static`.
    ToStatic(Figure),
    /// The ratio of `static` to it.
    StaticTo(Figure),
}

fn row<'a>(paper: &PaperFigure, comparison: &'a Comparison) -> Option<&'a Row> {
    comparison.row(paper.guest.as_ref().map(|guest| guest.as_str()), &paper.policy)
}

fn source(paper: &PaperFigure, comparison: &Comparison) -> Option<Source> {
    let row = row(paper, comparison)?;
    let has_value = |figure| row.cell(figure).is_some_and(|cell| cell.value.is_some());
    Some(match paper.metric {
        Metric::WorkRatio => Source::Value(Figure::OfBest),
        // Every policy does all touches of a fixed work, so the times are compared.
        Metric::SpeedupVsStatic if has_value(Figure::WorkTime) => {
            Source::StaticTo(Figure::WorkTime)
        }
        Metric::SpeedupVsStatic => Source::ToStatic(Figure::Touches),
        Metric::MajorFaults => Source::Value(Figure::MajorFaults),
        Metric::MajorFaultsVsStatic => Source::ToStatic(Figure::MajorFaults),
        Metric::AllocationBytes => Source::Value(Figure::AllocationLast),
        Metric::AllocationMeanBytes => Source::Value(Figure::AllocationMean),
        Metric::ConvergeS if row.cell(Figure::NearNeed).is_some() => {
            Source::Value(Figure::NearNeed)
        }
        Metric::ConvergeS => Source::Value(Figure::Settled),
        // A run has no figure for swap in use: memory written to swap may have left it again.
        Metric::SwapBytes => return None,
    })
}

fn value(source: Source, paper: &PaperFigure, comparison: &Comparison) -> Option<Spread> {
    let row = row(paper, comparison)?;
    let to_static = |figure| match row.cell(figure)?.ratio {
        Some(Ratio::Times(times)) if comparison.policies.first()? == "static" => Some(times),
        _ => None,
    };
    match source {
        Source::Value(figure) => row.cell(figure)?.value,
        Source::ToStatic(figure) => to_static(figure),
        Source::StaticTo(figure) => to_static(figure).map(Spread::reciprocal),
    }
}

/// The table for a terminal; empty without a paper.
pub(super) fn render(record: &Record, comparison: &Comparison) -> String {
    if record.scenario.paper.is_empty() {
        return String::new();
    }
    let table = report(comparison).in_capitals().table(&record.scenario.paper, None);
    format!("\nThe paper's figures, measured on its own machines, beside ours:\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use expect_test::expect;

    fn figure(metric: Metric, policy: &str, guest: Option<&str>, value: f64) -> PaperFigure {
        PaperFigure {
            what: "memory in the end".to_owned(),
            policy: policy.to_owned(),
            guest: guest.map(|guest| guest.parse().unwrap()),
            metric,
            value,
            source: "a paper, table 1".to_owned(),
        }
    }

    #[test]
    fn each_figure_is_shown_with_the_papers() {
        let work: [(&str, &[u64]); 2] = [("static", &[1_000_000]), ("global", &[2_340_000])];
        let mut record = fixture::record(&work);
        record.scenario.paper = vec![
            figure(Metric::AllocationBytes, "global", Some("a"), 12e9),
            figure(Metric::AllocationBytes, "auction", Some("a"), 11e9),
            figure(Metric::AllocationMeanBytes, "global", Some("a"), 10e9),
            figure(Metric::ConvergeS, "global", None, 10.0),
            figure(Metric::SpeedupVsStatic, "global", Some("a"), 3.0),
            figure(Metric::SpeedupVsStatic, "static", Some("a"), 1.0),
        ];
        let text = render(&record, &Comparison::new(&record));
        expect![[r#"

            The paper's figures, measured on its own machines, beside ours:
            WHAT               GUEST  POLICY     PAPER    HERE  SOURCE
            memory in the end  a      global   11.2GiB  712MiB  a paper, table 1
            memory in the end  a      auction  10.2GiB       –  a paper, table 1
            memory in the end  a      global    9.3GiB  602MiB  a paper, table 1
            memory in the end         global      10 s    10 s  a paper, table 1
            memory in the end  a      global     3.00×   2.34×  a paper, table 1
            memory in the end  a      static     1.00×       –  a paper, table 1
        "#]]
        .assert_eq(&text);
        record.scenario.paper.clear();
        assert_eq!(render(&record, &Comparison::new(&record)), "");
    }

    /// At a steady rate 300,000 touches take 3 s under `static` and 2 s under `global`.
    #[test]
    fn a_fixed_work_gains_by_its_time() {
        let mut record = fixture::record(&[("static", &[1_000_000]), ("global", &[1_500_000])]);
        record.scenario.guests[0].work = Some(300_000);
        let comparison = Comparison::new(&record);
        let speedup = figure(Metric::SpeedupVsStatic, "global", Some("a"), 3.0);
        let found = measured(&speedup, &comparison).unwrap();
        assert!((found.median - 1.5).abs() < 1e-9 && found.min <= found.max, "{found:?}");
    }

    /// In its second repetition no guest finishes; touches would compare something else.
    #[test]
    fn a_repetition_has_its_value_of_the_same_figure() {
        let work: [(&str, &[u64]); 2] =
            [("static", &[1_000_000, 100_000]), ("global", &[1_500_000, 150_000])];
        let mut record = fixture::record(&work);
        let speedup = figure(Metric::SpeedupVsStatic, "global", Some("a"), 3.0);
        let values = |record: &Record| {
            let each = [1, 2].map(|it| Comparison::of_repetition(record, it));
            by_repetition(&speedup, &Comparison::new(record), &each)
        };
        assert_eq!(values(&record), [Some(1.5), Some(1.5)]);
        record.scenario.guests[0].work = Some(300_000);
        let [Some(first), None] = values(&record)[..] else { panic!("{:?}", values(&record)) };
        assert!((first - 1.5).abs() < 1e-9, "{first}");
    }

    #[test]
    fn a_bad_figure_is_named_by_its_number() {
        let text = "name = \"x\"\nduration = \"1s\"\n[host]\nbudget = \"1GiB\"\n[[guests]]\nname = \"a\"\n\
                    memory = \"512MiB\"\n[[paper]]\nwhat = \"w\"\npolicy = \"tws\"\nsource = \"s\"\n";
        let read = |more: &str| {
            let text = format!("{text}{more}");
            figures(&Scenario::parse(&text, std::path::Path::new("x.toml")).unwrap())
        };
        assert_eq!(read("metric = \"converge_s\"\nvalue = 10.0").unwrap().len(), 1);
        let negative = read("metric = \"converge_s\"\nvalue = -1.0").unwrap_err();
        assert!(format!("{negative:#}").contains("the 1. of 1: value: -1"), "{negative:#}");
        let unknown = read("metric = \"speed\"\nvalue = 1.0").unwrap_err();
        assert!(format!("{unknown:#}").contains("unknown variant `speed`"), "{unknown:#}");
    }
}
