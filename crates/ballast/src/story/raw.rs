//! The raw data beside a page: the record as JSON, its samples as CSV.
//!
//! Limits: an empty field of the CSV is a figure that is not known.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::record::{Record, Sample};
use crate::csv::quoted;

/// The columns of the CSV.
const COLUMNS: [&str; 21] = [
    "policy",
    "repetition",
    "guest",
    "at_s",
    "target_bytes",
    "allocation_bytes",
    "used_bytes",
    "doing",
    "report_at_ms",
    "guest_used_bytes",
    "guest_available_bytes",
    "swap_used_bytes",
    "swap_in_bytes",
    "swap_out_bytes",
    "major_faults",
    "touches",
    "iterations",
    "size_bytes",
    "size_wanted_bytes",
    "touched_bytes",
    "doing_text",
];

/// The files that belong to the page `report`.
pub fn paths(report: &Path) -> [PathBuf; 2] {
    [report.with_extension("json"), report.with_extension("csv")]
}

/// Writes `record` beside the page `report`.
///
/// # Errors
/// When a file cannot be written.
pub fn write(record: &Record, report: &Path) -> anyhow::Result<()> {
    let [json, csv] = paths(report);
    let text = serde_json::to_string_pretty(record)? + "\n";
    write_file(&json, &text)?;
    write_file(&csv, &to_csv(record))
}

/// Writes a file, and says which where it cannot be.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let why = || {
        format!(
            "cannot write {}: make room, or name another place with --report PATH",
            path.display()
        )
    };
    fs::write(path, text).with_context(why)
}

fn to_csv(record: &Record) -> String {
    let mut out = COLUMNS.join(",") + "\n";
    for run in &record.runs {
        for guest in &run.guests {
            let of_guest = [run.policy.clone(), run.repetition.to_string(), guest.guest.clone()];
            for sample in &guest.samples {
                let fields = of_guest.iter().cloned().chain(fields(sample));
                out.push_str(&fields.collect::<Vec<_>>().join(","));
                out.push('\n');
            }
        }
    }
    out
}

fn fields(sample: &Sample) -> impl Iterator<Item = String> {
    let daemon = sample.daemon.clone().unwrap_or_default();
    let inside = sample.inside.clone();
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let of_guest = inside.map_or_else(
        || vec![String::new(); 10],
        |it| {
            let unsigned = [
                it.used_bytes,
                it.available_bytes,
                it.swap_used_bytes,
                it.swap_in_bytes,
                it.swap_out_bytes,
                it.major_faults,
                Some(it.touches),
                Some(it.iterations),
                Some(it.size_bytes),
                Some(it.size_wanted_bytes),
            ];
            unsigned.into_iter().map(number).collect()
        },
    );
    let report_at = sample.inside.as_ref().map(|it| it.at_ms.to_string()).unwrap_or_default();
    [
        format!("{:.3}", sample.at_s),
        number(daemon.target_bytes),
        number(daemon.allocation_bytes),
        number(daemon.used_bytes),
        quoted(daemon.doing.as_deref().unwrap_or_default()),
        report_at,
    ]
    .into_iter()
    .chain(of_guest)
    .chain([number(sample.touched_bytes)])
    .chain([quoted(daemon.doing_text.as_deref().unwrap_or_default())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::fixture;

    #[test]
    fn the_csv_has_a_line_for_every_sample_and_a_field_for_every_column() {
        let record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        let csv = to_csv(&record);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * 2 * 11);
        assert!(lines.iter().all(|line| line.split(',').count() == COLUMNS.len()), "{csv}");
        let late = lines[1 + 4];
        assert!(late.starts_with("static,1,a,4.000,") && late.ends_with(",,,,,,,,,,,,"), "{late}");
    }

    #[test]
    fn the_json_reads_back() {
        let record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
