//! The report for people.

use comfy_table::CellAlignment::{Left, Right};

use super::report::{Figures, Mean, Report};
use crate::bench::goal;
use crate::bench::track::percent;
use crate::commands::format;
use crate::figures;

/// Two tables, and the goals.
pub(in super::super) fn render(report: &Report, width: Option<u16>) -> String {
    let mut out = format!(
        "Working sets of emulated guests against every page they touched, on {}; intervals of {} s\n\n",
        report.processor.as_deref().unwrap_or("an unknown processor"),
        report.interval_s,
    );
    let columns = [
        ("GUEST", Left),
        ("WAY", Left),
        ("TOUCHED", Right),
        ("ERROR", Right),
        ("WORKING SET", Right),
        ("MOST", Right),
        ("BIAS", Right),
        ("GROWTH", Right),
        ("FALL", Right),
        ("COST", Right),
        ("WATCHED", Right),
        ("TRAP", Right),
    ];
    out.push_str(&format::table(&columns, report.figures.iter().map(row), width));
    let columns = [
        ("WAY", Left),
        ("ERROR, MEAN", Right),
        ("WORST GUEST", Right),
        ("WORKING SET", Right),
        ("COST", Right),
        ("PAPER", Right),
    ];
    out.push('\n');
    out.push_str(&format::table(&columns, report.means.iter().map(mean_row), width));
    out.push_str(
        "\nERROR: of the memory touched in an interval, mean over the intervals of |told - touched| / touched.\n\
         WORKING SET, MOST, BIAS: of the working set told, which has more in it where a guest comes back to\n\
         memory after some intervals; in the second table of constant, flux and random-array, which do not.\n\
         GROWTH, FALL: intervals until it was within 10 % again, of the slowest change. COST: of a core, as\n\
         the tracker says. PAPER: MEB 5.2.1, of random-array alone.\n",
    );
    for failed in &report.failed {
        out.push_str(&format!("\nnot measured: {}: {}\n", failed.guest.name(), failed.why));
    }
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn row(it: &Figures) -> Vec<String> {
    let lag = |lag: Option<usize>| lag.map_or(figures::NONE.to_owned(), |lag| lag.to_string());
    vec![
        it.guest.name().to_owned(),
        it.way.name().to_owned(),
        figures::size(it.truth_bytes as f64),
        percent(it.touched_error),
        percent(it.error),
        percent(it.error_most),
        percent(it.bias),
        lag(it.growth_lag),
        lag(it.fall_lag),
        percent(it.cost_cores),
        percent(it.share),
        format!("{:.1} us", it.trap_us),
    ]
}

fn mean_row(it: &Mean) -> Vec<String> {
    vec![
        it.way.name().to_owned(),
        percent(it.touched_error),
        percent(it.touched_error_most),
        it.error_whole.map_or(figures::NONE.to_owned(), percent),
        percent(it.cost_cores),
        it.way.paper().map_or(figures::NONE.to_owned(), percent),
    ]
}
