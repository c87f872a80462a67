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
        "figures    ballast {}, milliseconds; {} instances of each kind, {} runs of exact on each, one of\n           the program; both give the same allocation for all of them",
        report.version, report.instances, report.repetitions
    );
    for setup in report.figures.chunk_by(|a, b| a.setup == b.setup) {
        let _ = writeln!(out, "\n{}", setup[0].setup);
        out.push_str(&table(setup, width));
    }
    if report.is_quick {
        out.push_str("\nquick instances are too small for figures to be held against goals\n");
    }
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn table(figures: &[Figures], width: Option<u16>) -> String {
    let columns = [
        ("CURVES", Left),
        ("EXACT", Right),
        ("WORST INSTANCE", Right),
        ("WORST RUN", Right),
        ("BY THE CLOCK", Right),
        ("WORST RUN", Right),
        ("PROGRAM", Right),
        ("× PROGRAM", Right),
        ("LEAST", Right),
    ];
    format::table(&columns, figures.iter().map(row), width)
}

fn row(figures: &Figures) -> Vec<String> {
    let (processor, wall) = (figures.exact.processor_ms, figures.exact.wall_ms);
    vec![
        figures.curves.to_owned(),
        figure(processor.median),
        figure(processor.worst_instance),
        figure(processor.worst_run),
        figure(wall.median),
        figure(wall.worst_run),
        figure(figures.program.processor_ms.median),
        figure(figures.times_program),
        figure(figures.times_program_least),
    ]
}
