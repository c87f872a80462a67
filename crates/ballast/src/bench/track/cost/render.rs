//! The report for people.

use comfy_table::CellAlignment::{Left, Right};

use super::super::super::goal;
use super::super::native::running::Place;
use super::super::percent;
use super::report::{Figures, Mean, Report};
use crate::commands::format;
use crate::figures;

/// Two tables, and the goals.
pub(in super::super) fn render(report: &Report, width: Option<u16>) -> String {
    let mut out = format!(
        "What tracking costs a program on {}, and how right it is; {} pairs of windows, the tracker's thread {}\n\n",
        report.machine.processor.as_deref().unwrap_or("an unknown processor"),
        report.rounds,
        match report.handler {
            Place::Beside => "on the program's core",
            Place::Apart => "on another core",
            Place::Free => "on any core",
        }
    );
    let columns = [
        ("PROGRAM", Left),
        ("WAY", Left),
        ("SLOWDOWN", Right),
        ("±", Right),
        ("STOPPED", Right),
        ("ERROR", Right),
        ("WORKING SET", Right),
        ("TRAPS/S", Right),
        ("TRAP", Right),
        ("SAID", Right),
        ("LOST", Right),
        ("DAEMON", Right),
        ("UP", Right),
        ("WATCHED", Right),
    ];
    out.push_str(&format::table(&columns, report.figures.iter().map(row), width));
    let columns = [
        ("WAY", Left),
        ("SLOWDOWN, MEAN", Right),
        ("±", Right),
        ("MOST", Right),
        ("STOPPED", Right),
        ("ERROR, MEAN", Right),
        ("MOST", Right),
        ("DAEMON", Right),
        ("PAPER", Right),
    ];
    out.push('\n');
    out.push_str(&format::table(&columns, report.means.iter().map(mean_row), width));
    out.push_str(
        "\nSLOWDOWN: how much longer the program takes, without what others took of its core; ±: one standard\n\
         error of it. STOPPED: the part of that in which traps stopped it, exact. ERROR: mean relative error of the working set against what\n\
         was really touched, over all intervals, those of rest too. TRAP: how long one stopped the program;\n\
         SAID: how long the tracker says. DAEMON: of a core. UP: intervals tracked.\n\
         PAPER: MEB Table I, the mean over SPEC programs, which compute between their accesses.\n",
    );
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn row(it: &Figures) -> Vec<String> {
    vec![
        it.program.name().to_owned(),
        it.way.name().to_owned(),
        percent(it.slowdown),
        percent(it.slowdown_error),
        percent(it.stopped),
        percent(it.wss_error),
        format!(
            "{} of {}",
            figures::size(it.wss_bytes as f64),
            figures::size(it.memory_bytes as f64)
        ),
        format!("{:.0}", it.traps_per_s),
        micros(it.trap_ns),
        micros(it.trap_said_ns),
        percent(it.dropped),
        percent(it.daemon_cores),
        percent(it.up_ratio),
        percent(it.share),
    ]
}

fn micros(ns: f64) -> String {
    format!("{:.1} us", ns / 1e3)
}

fn mean_row(it: &Mean) -> Vec<String> {
    vec![
        it.way.name().to_owned(),
        percent(it.slowdown),
        percent(it.slowdown_error),
        percent(it.slowdown_most),
        percent(it.stopped),
        percent(it.wss_error),
        percent(it.wss_error_most),
        percent(it.daemon_cores),
        it.way.paper().map_or(figures::NONE.to_owned(), percent),
    ]
}
