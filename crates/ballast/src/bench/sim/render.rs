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
        "figures    ballast {}, multiples of real time at ticks of 1 s, policies in turn",
        report.version
    );
    for setup in report.figures.chunk_by(|a, b| a.setup == b.setup) {
        let Figures { setup: name, virtual_s, runs, .. } = &setup[0];
        let _ = writeln!(out, "\n{name}, {virtual_s} virtual seconds; runs of each policy: {runs}");
        out.push_str(&table(setup, width));
    }
    if report.is_quick {
        out.push_str("\nquick hosts are too small for figures to be held against goals\n");
    }
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn table(figures: &[Figures], width: Option<u16>) -> String {
    let columns = [
        ("POLICY", Left),
        ("× REAL TIME", Right),
        ("WORST RUN", Right),
        ("BY THE CLOCK", Right),
        ("WORST RUN", Right),
        ("× TO THE PAGE", Right),
    ];
    format::table(&columns, figures.iter().map(row), width)
}

fn row(figures: &Figures) -> Vec<String> {
    let (processor, wall) = (figures.times_real_time, figures.times_real_time_wall);
    vec![
        figures.policy.to_owned(),
        figure(processor.median),
        figure(processor.worst),
        figure(wall.median),
        figure(wall.worst),
        figures.times_pages.map(figure).unwrap_or_default(),
    ]
}
