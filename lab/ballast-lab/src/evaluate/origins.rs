//! Where each figure of the simulator's machines comes from.
//!
//! Idea: scenario files say it beside the values (`[[parameters]]`), and the simulator beside its
//! defaults. The table is made from both, so it cannot differ from what was simulated. Scenarios
//! with the same value for the same reason share a line.

use std::path::Path;

use anyhow::Context;
use ballast_report::Report;
use ballast_scenario_run::simulate::parameter::{Origin, Parameter, defaults};
use ballast_scenario_run::simulate::scenario_file::ScenarioFile;
use serde::Serialize;

use super::catalogue::Catalogue;
use super::job::{Task, read_bounded};

/// One figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OriginRow {
    /// The scenarios that have it; empty: it is the default of all scenarios that do not set it.
    pub(crate) scenarios: Vec<String>,
    #[serde(flatten)]
    pub(crate) parameter: Parameter,
    pub(crate) value: String,
}

/// The figures of the scenarios that `catalogue` simulates, then the defaults.
///
/// # Errors
/// A scenario cannot be read, or names a key that it does not have.
pub(crate) fn origins(catalogue: &Catalogue, scenarios: &Path) -> anyhow::Result<Vec<OriginRow>> {
    let mut rows: Vec<OriginRow> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for task in catalogue.rows().flat_map(|(_, row)| Task::of(row)) {
        let Task::Simulate { scenario, .. } = &task else { continue };
        if seen.contains(scenario) {
            continue;
        }
        seen.push(scenario.clone());
        for (parameter, value) in of_scenario(&scenarios.join(scenario))? {
            let same = rows.iter_mut().find(|it| it.parameter == parameter && it.value == value);
            match same {
                Some(row) => row.scenarios.push(task.subject().to_owned()),
                None => {
                    let scenarios = vec![task.subject().to_owned()];
                    rows.push(OriginRow { scenarios, parameter, value });
                }
            }
        }
    }
    rows.extend(defaults().into_iter().map(|(parameter, value)| OriginRow {
        scenarios: Vec::new(),
        parameter,
        value,
    }));
    Ok(rows)
}

fn of_scenario(path: &Path) -> anyhow::Result<Vec<(Parameter, String)>> {
    let text = read_bounded(path)?;
    let file = ScenarioFile::parse(&text, path)?;
    let table: toml::Table = text.parse().with_context(|| path.display().to_string())?;
    let with_value = |parameter: Parameter| {
        let values = parameter.values(&table);
        anyhow::ensure!(
            !values.is_empty(),
            "{}: parameters: there is no {} in this file",
            path.display(),
            parameter.key
        );
        Ok((parameter, values.join(", ")))
    };
    file.parameters.into_iter().map(with_value).collect()
}

/// The columns.
pub(crate) fn columns() -> Report<'static, OriginRow> {
    let origin = |row: &OriginRow| match row.parameter.origin {
        Origin::Measured => "measured".to_owned(),
        Origin::Paper => "from a paper".to_owned(),
        Origin::Fitted => format!("fitted to {}", row.parameter.fitted_to.join(", ")),
        Origin::Assumed => "assumed".to_owned(),
    };
    let of = |row: &OriginRow| match row.scenarios.is_empty() {
        true => "default".to_owned(),
        false => row.scenarios.join(", "),
    };
    Report::<OriginRow>::new()
        .text("parameter", |it| it.parameter.key.clone())
        .text("value", |it| it.value.clone())
        .text("origin", origin)
        .text("because", |it| it.parameter.because.clone())
        .text("scenarios", of)
}
