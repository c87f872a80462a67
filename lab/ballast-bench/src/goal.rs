//! Figures compared with goals.
//!
//! Idea: a goal shows its figure beside its bound, so that no goal counts as met without showing by
//! how much.

use ballast_report::Report;
use serde::Serialize;

use crate::shown::figure;

/// A bound.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum GoalBound {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure and its bound.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    unit: &'static str,
    pub(crate) found: f64,
    wanted: GoalBound,
    pub(crate) is_met: bool,
}

impl Goal {
    /// `found` must be at least `least`.
    pub(crate) fn at_least(
        what: impl Into<String>,
        unit: &'static str,
        found: f64,
        least: f64,
    ) -> Self {
        let (wanted, is_met) = (GoalBound::AtLeast(least), found >= least);
        Self { what: what.into(), unit, found, wanted, is_met }
    }

    /// `found` must be at most `most`.
    pub(crate) fn at_most(
        what: impl Into<String>,
        unit: &'static str,
        found: f64,
        most: f64,
    ) -> Self {
        let (wanted, is_met) = (GoalBound::AtMost(most), found <= most);
        Self { what: what.into(), unit, found, wanted, is_met }
    }

    fn bound(&self) -> String {
        match self.wanted {
            GoalBound::AtLeast(least) => format!("≥ {}", self.shown(least)),
            GoalBound::AtMost(most) => format!("≤ {}", self.shown(most)),
        }
    }

    fn shown(&self, value: f64) -> String {
        format!("{} {}", figure(value), self.unit).trim_end().to_owned()
    }
}

/// A table of goals as text; empty if there are none.
pub(crate) fn table(goals: &[Goal], width: Option<u16>) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let columns = Report::<Goal>::new()
        .text("GOAL", |it| it.what.clone())
        .figure("WANTED", Goal::bound)
        .figure("FOUND", |it| it.shown(it.found))
        .text("", |it| if it.is_met { "met" } else { "NOT MET" });
    format!("\n{}", columns.table(goals, width))
}
