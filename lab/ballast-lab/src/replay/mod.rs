//! The outputs of `ballast replay`; the decisions and the replay are in the pure crates.

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod page;
mod plot;
pub(crate) mod series;
pub(crate) mod table;

use std::path::Path;

use ballast_replay::{ReplayReport, ReplayTotals};

use ballast_report::figures;

/// A replay: the journal, and its reports.
#[derive(Clone, Copy)]
pub(crate) struct Replayed<'a> {
    /// The journal.
    pub(crate) journal: &'a Path,
    /// A report for each policy, in the order given; all reports cover the same ticks.
    pub(crate) reports: &'a [ReplayReport],
}

/// The meaning of each column of totals, by its name.
const MEANINGS: [(&str, &str); 4] = [
    ("LACKED MiB·s", "memory lacked, added up over time"),
    ("LACKING s", "time with any memory lacking, summed over guests"),
    ("MOVED", "memory moved, both ways"),
    ("HELD, MEAN", "memory held, on average over time"),
];

/// The cells of these columns.
fn cells(totals: ReplayTotals) -> [String; 4] {
    [
        figures::count(totals.lacked_mib_s as f64),
        format!("{:.0}", totals.lacking.as_secs_f64()),
        figures::size(totals.moved.get() as f64),
        figures::size(totals.allocation_mean.get() as f64),
    ]
}

/// The number of ticks and the time that they cover, in words.
fn extent(report: &ReplayReport) -> String {
    let span = humantime::format_duration(std::time::Duration::from_secs(report.span.as_secs()));
    format!("{} ticks, {span}", report.ticks)
}
