//! The report for people.

use std::fmt::Write;

use comfy_table::CellAlignment::{Left, Right};

use super::super::goal::{self, figure};
use super::report::{Figures, Report};
use crate::commands::format;

/// The whole report, tables wrapped to `width` columns if given.
pub(super) fn render(report: &Report, width: Option<u16>) -> String {
    let mut out = report.machine.line();
    let _ = writeln!(
        out,
        "figures    ballast {}, milliseconds a decision for {} guests; {} decisions of each, in turn",
        report.version, report.guests, report.repetitions
    );
    for situation in report.figures.chunk_by(|a, b| a.situation == b.situation) {
        let _ = writeln!(out, "\n{}", situation[0].situation);
        out.push_str(&table(situation, width));
    }
    if report.is_quick {
        out.push_str("\nfew guests are too few for figures to be held against goals\n");
    }
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn table(figures: &[Figures], width: Option<u16>) -> String {
    let columns = [
        ("", Left),
        ("MEDIAN", Right),
        ("WORST RUN", Right),
        ("BY THE CLOCK", Right),
        ("WORST RUN", Right),
        ("× FLOOR", Right),
    ];
    format::table(&columns, figures.iter().map(row), width)
}

fn row(figures: &Figures) -> Vec<String> {
    let (processor, wall) = (figures.processor_ms, figures.wall_ms);
    vec![
        figures.what.to_owned(),
        figure(processor.median),
        figure(processor.worst),
        figure(wall.median),
        figure(wall.worst),
        figure(figures.times_floor),
    ]
}
