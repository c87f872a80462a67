//! The report for people.

use comfy_table::CellAlignment::{Left, Right};

use super::super::super::goal;
use super::report::{Figures, Report};
use crate::commands::format;
use crate::figures;

/// A table, and the goals.
pub(in super::super) fn render(report: &Report, width: Option<u16>) -> String {
    let mut out = format!(
        "Miss curves of a sample against the exact trace behind the same hot set and revocations;\n\
         {}, {} intervals of a second\n\n",
        report.machine.processor.as_deref().unwrap_or("an unknown processor"),
        report.intervals
    );
    let columns = [
        ("PROGRAM", Left),
        ("HOT SET", Right),
        ("WATCHED", Right),
        ("TOUCHES", Right),
        ("SEEN OF ALL", Right),
        ("SEEN", Right),
        ("ERROR", Right),
        ("WORST", Right),
    ];
    out.push_str(&format::table(&columns, report.figures.iter().map(row), width));
    out.push_str(
        "\nERROR: mean over all sizes from the hot set on of how far the normalised misses are apart. TOUCHES:\n\
         of an interval. SEEN OF ALL: by a tracker of every page; SEEN: by this one.\n\
         What no tracker of intervals sees: touches of a page that is accessible, until it leaves the hot set or\n\
         the interval ends. Without a hot set that is every touch but the first of each page and interval, so\n\
         the curve is one of first touches, and says how often memory is needed in an interval, not how often\n\
         it is used in it.\n",
    );
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn row(it: &Figures) -> Vec<String> {
    let hot = match it.hot_bytes {
        0 => "none".to_owned(),
        bytes => figures::size(bytes as f64),
    };
    let share = |error: f64| format!("{error:.4}");
    vec![
        it.program.name().to_owned(),
        hot,
        format!("{:.2} %", it.share * 100.0),
        format!("{:.0}", it.touches),
        format!("{:.0}", it.seen_of_all_pages),
        format!("{:.0}", it.seen),
        it.error.map_or(figures::NONE.to_owned(), share),
        it.error.map_or(figures::NONE.to_owned(), |_| share(it.error_most)),
    ]
}
