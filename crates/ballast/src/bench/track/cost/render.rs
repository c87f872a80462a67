//! The report for people.

use comfy_table::CellAlignment::{Left, Right};

use super::super::super::goal;
use super::report::{Figures, Mean, Report};
use crate::commands::format;
use crate::figures;

/// Two tables, and the goals.
pub(in super::super) fn render(report: &Report, width: Option<u16>) -> String {
    let mut out = format!(
        "What tracking costs a program on {}; median of {} pairs of windows\n\n",
        report.machine.processor.as_deref().unwrap_or("an unknown processor"),
        report.rounds
    );
    let columns = [
        ("PROGRAM", Left),
        ("WAY", Left),
        ("SLOWDOWN", Right),
        ("LEAST", Right),
        ("MOST", Right),
        ("TRAPS/S", Right),
        ("LOST", Right),
        ("DAEMON", Right),
        ("UP", Right),
        ("WATCHED", Right),
        ("WORKING SET", Right),
    ];
    out.push_str(&format::table(&columns, report.figures.iter().map(row), width));
    let columns = [
        ("WAY", Left),
        ("SLOWDOWN, MEAN", Right),
        ("MOST", Right),
        ("DAEMON", Right),
        ("PAPER", Right),
    ];
    out.push('\n');
    out.push_str(&format::table(&columns, report.means.iter().map(mean_row), width));
    out.push_str(
        "\nSLOWDOWN: how much longer the program takes. DAEMON: of a core. UP: intervals tracked.\n\
         PAPER: MEB Table I, the mean over SPEC programs, which compute between their accesses.\n",
    );
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn percent(share: f64) -> String {
    match share.abs() {
        _ if !share.is_finite() => figures::NONE.to_owned(),
        it if it >= 1.0 => format!("{:.0} %", share * 100.0),
        it if it >= 0.1 => format!("{:.1} %", share * 100.0),
        _ => format!("{:.2} %", share * 100.0),
    }
}

fn row(it: &Figures) -> Vec<String> {
    vec![
        it.program.name().to_owned(),
        it.way.name().to_owned(),
        percent(it.slowdown),
        percent(it.slowdown_least),
        percent(it.slowdown_most),
        format!("{:.0}", it.traps_per_s),
        percent(it.dropped),
        percent(it.daemon_cores),
        percent(it.up_ratio),
        percent(it.share),
        format!(
            "{} of {}",
            figures::size(it.wss_bytes as f64),
            figures::size(it.memory_bytes as f64)
        ),
    ]
}

fn mean_row(it: &Mean) -> Vec<String> {
    vec![
        it.way.name().to_owned(),
        percent(it.slowdown),
        percent(it.slowdown_most),
        percent(it.daemon_cores),
        it.way.paper().map_or(figures::NONE.to_owned(), percent),
    ]
}
