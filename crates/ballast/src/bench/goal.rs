//! Figures held against what they should be.
//!
//! Idea: a goal is a figure of the report and a bound, named beside each other, so that nothing is
//! said to be met without showing by how much.

use comfy_table::CellAlignment::{Left, Right};
use serde::Serialize;

use crate::commands::format;

/// A bound.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure and what it should be.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Goal {
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) found: f64,
    pub(super) wanted: Wanted,
    pub(super) is_met: bool,
}

impl Goal {
    pub(super) fn new(what: String, unit: &'static str, found: f64, wanted: Wanted) -> Self {
        let is_met = match wanted {
            Wanted::AtLeast(least) => found >= least,
            Wanted::AtMost(most) => found <= most,
        };
        Self { what, unit, found, wanted, is_met }
    }
}

/// Goals for people; nothing where there are none.
pub(super) fn table(goals: &[Goal], width: Option<u16>) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let columns = [("GOAL", Left), ("WANTED", Right), ("FOUND", Right), ("", Left)];
    format!("\n{}", format::table(&columns, goals.iter().map(row), width))
}

fn row(goal: &Goal) -> Vec<String> {
    let unit = |value| match goal.unit {
        "" => figure(value),
        unit => format!("{} {unit}", figure(value)),
    };
    let wanted = match goal.wanted {
        Wanted::AtLeast(least) => format!("≥ {}", unit(least)),
        Wanted::AtMost(most) => format!("≤ {}", unit(most)),
    };
    let met = if goal.is_met { "met" } else { "NOT MET" };
    vec![goal.what.clone(), wanted, unit(goal.found), met.to_owned()]
}

/// Three digits, or five places where that is nothing.
pub(super) fn figure(n: f64) -> String {
    match n {
        _ if n >= 100.0 => format!("{n:.0}"),
        _ if n >= 10.0 => format!("{n:.1}"),
        _ if n >= 0.1 => format!("{n:.2}"),
        _ => format!("{n:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        for (n, text) in [(0.00043, "0.00043"), (0.25, "0.25"), (18.04, "18.0"), (122.4, "122")] {
            assert_eq!(figure(n), text);
        }
    }
}
