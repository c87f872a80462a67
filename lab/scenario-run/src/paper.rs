//! What a paper measured in the situation that was played, beside what was measured here.
//!
//! Idea: a scenario of the lab carries a paper's figures as those of `ballast simulate` do (`[[paper]]`), and each
//! names which of ours it is to be seen beside.
//! Limits: sizes and machines differ, which the scenario says in words; nothing is computed with both.

use anyhow::{Context, bail};
use ballast_lab::Scenario;
use comfy_table::CellAlignment::{Left, Right};
use serde_json::Value;

use super::compare::{Comparison, Figure, Ratio};
use super::record::Record;
use crate::commands::format;
use crate::simulate::beside::shown;
use crate::simulate::paper::{Metric, PAPER_MAX, PaperFigure};

/// What the columns are.
pub(super) const COLUMNS: [&str; 6] = ["what", "guest", "policy", "paper", "here", "source"];

/// The figures that `scenario` carries.
///
/// # Errors
/// Which of them is none, and why.
pub(super) fn figures(scenario: &Scenario) -> anyhow::Result<Vec<PaperFigure>> {
    if scenario.paper.len() > PAPER_MAX {
        bail!("{} tables [[paper]]: expected at most {PAPER_MAX}", scenario.paper.len());
    }
    let one = |(number, table): (usize, &serde_json::Map<String, Value>)| {
        let told = || format!("[[paper]], the {}. of {}", number + 1, scenario.paper.len());
        let figure: PaperFigure =
            serde_json::from_value(Value::Object(table.clone())).with_context(told)?;
        figure
            .validate()
            .map_err(|(key, message)| anyhow::anyhow!("{key}: {message}"))
            .with_context(told)?;
        Ok(figure)
    };
    scenario.paper.iter().enumerate().map(one).collect()
}

/// A line for each figure.
pub(super) fn rows<'a>(
    record: &'a Record,
    comparison: &'a Comparison,
) -> impl Iterator<Item = Vec<String>> + 'a {
    record.scenario.paper.iter().map(|paper| {
        let guest = paper.guest.as_ref().map(|guest| guest.as_str());
        vec![
            paper.what.clone(),
            guest.unwrap_or_default().to_owned(),
            paper.policy.clone(),
            shown(paper.metric, Some(paper.value)),
            shown(paper.metric, here(paper, comparison)),
            paper.source.clone(),
        ]
    })
}

/// Ours; `None` where there is none, or the policy did not run.
fn here(paper: &PaperFigure, comparison: &Comparison) -> Option<f64> {
    let guest = paper.guest.as_ref().map(|guest| guest.as_str());
    let row = comparison.row(guest, &paper.policy)?;
    let value = |figure| Some(row.cell(figure)?.value?.median);
    let to_static = |figure| match row.cell(figure)?.ratio {
        Some(Ratio::Times(times)) if comparison.policies.first()? == "static" => Some(times.median),
        _ => None,
    };
    match paper.metric {
        Metric::WorkRatio => value(Figure::OfBest),
        Metric::SpeedupVsStatic => to_static(Figure::Touches),
        Metric::MajorFaults => value(Figure::MajorFaults),
        Metric::MajorFaultsVsStatic => to_static(Figure::MajorFaults),
        Metric::AllocationBytes => value(Figure::AllocationLast),
        Metric::AllocationMeanBytes => value(Figure::AllocationMean),
        Metric::ConvergeS if row.cell(Figure::NearNeed).is_some() => value(Figure::NearNeed),
        Metric::ConvergeS => value(Figure::Settled),
        // What is written to swap may be dropped there again.
        Metric::SwapBytes => None,
    }
}

/// The table for a terminal; nothing where no paper is compared with.
pub(super) fn render(record: &Record, comparison: &Comparison) -> String {
    if record.scenario.paper.is_empty() {
        return String::new();
    }
    let names = COLUMNS.map(str::to_uppercase);
    let right = |name: &str| matches!(name, "PAPER" | "HERE");
    let columns =
        names.each_ref().map(|name| (name.as_str(), if right(name) { Right } else { Left }));
    let table = format::table(&columns, rows(record, comparison), None);
    format!("\nThe paper's figures, measured on its own machines, beside ours:\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::fixture;
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
    fn each_figure_beside_the_papers() {
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

    #[test]
    fn a_figure_that_is_none_is_told_by_its_number() {
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
