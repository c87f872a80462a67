//! The report for people.

use comfy_table::CellAlignment::{Left, Right};

use super::super::super::goal;
use super::report::{Point, Report, Switch};
use crate::commands::format;
use crate::figures;

/// Two tables, and the goals.
pub(in super::super) fn render(report: &Report, width: Option<u16>) -> String {
    let mut out = format!(
        "Every granule watched, once a second, by their size, on {}\n\n",
        report.machine.processor.as_deref().unwrap_or("an unknown processor"),
    );
    let columns = [
        ("PROGRAM", Left),
        ("PAGES", Right),
        ("SLOWDOWN", Right),
        ("STOPPED", Right),
        ("TRAPS/S", Right),
        ("DAEMON", Right),
        ("ERROR", Right),
        ("LEAST", Right),
        ("GREATEST", Right),
    ];
    out.push_str(&format::table(&columns, report.points.iter().map(point), width));
    out.push_str(
        "\nERROR: of the working set against what was really touched. The paper, with 100 MB (MEB Fig. 2):\n\
         cost falls steeply to 32 pages and hardly beyond, where the error rises; 0.9 % at 32 pages (SPEC).\n\
         With 2 GB (Fig. 3): cost falls in proportion, and is flat above 512 pages. A granule counts whole, so\n\
         memory that is touched in one piece has no error, and memory touched here and there has. Where traps slow\n\
         the program down so much that it does not come round in an interval, it touches less than its working set.\n\n\
         The switch above 2 GiB, interval by interval:\n\n",
    );
    let columns = [
        ("SECOND", Right),
        ("PAGES", Right),
        ("WORKING SET", Right),
        ("TOUCHED", Right),
        ("ERROR", Right),
        ("TRAPS", Right),
        ("STOPPED", Right),
    ];
    let rows = report.switch.iter().enumerate().map(|(second, it)| switch(second, it));
    out.push_str(&format::table(&columns, rows, width));
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn point(it: &Point) -> Vec<String> {
    vec![
        it.footprint.name().to_owned(),
        it.pages.to_string(),
        percent(it.slowdown),
        percent(it.stopped),
        format!("{:.0}", it.traps_per_s),
        percent(it.daemon_cores),
        percent(it.error),
        percent(it.error_least),
        percent(it.error_greatest),
    ]
}

fn switch(second: usize, it: &Switch) -> Vec<String> {
    vec![
        (second + 1).to_string(),
        it.pages.to_string(),
        figures::size(it.wss_bytes as f64),
        figures::size(it.touched_bytes as f64),
        percent(it.error()),
        it.traps.to_string(),
        percent(it.stopped),
    ]
}
