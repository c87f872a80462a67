//! The raw data beside a page: the record as JSON, its samples as CSV.
//!
//! Limits: an empty field of the CSV is an unknown figure.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::record::{GuestRun, InsideSample, OutsideSample, Record, RunRecord, Sample};
use ballast_report::{Report, csv_field};

/// The paths of the raw data that belong to the page `report`.
pub fn paths(report: &Path) -> [PathBuf; 2] {
    [report.with_extension("json"), report.with_extension("csv")]
}

/// Writes `record` beside the page `report`.
///
/// # Errors
/// A file cannot be written.
pub fn write(record: &Record, report: &Path) -> anyhow::Result<()> {
    let [json, csv] = paths(report);
    let text = serde_json::to_string_pretty(record)? + "\n";
    write_file(&json, text)?;
    let mut text = Vec::new();
    write_csv(record, &mut text)?;
    write_file(&csv, text)
}

/// Writes a file, and says which where it cannot be.
pub fn write_file(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let why = || {
        format!(
            "cannot write {}: make room, or name another place with --report PATH",
            path.display()
        )
    };
    fs::write(path, text).with_context(why)
}

/// One row of the CSV: a sample of a guest in a run.
type SampleRow<'a> = (&'a RunRecord, &'a GuestRun, &'a Sample);

fn columns<'a>() -> Report<'a, SampleRow<'a>> {
    fn number<'a>(figure: fn(&Sample) -> Option<u64>) -> impl Fn(&SampleRow<'a>) -> String {
        move |it| csv_field(figure(it.2))
    }
    fn outside<'a>(figure: fn(&OutsideSample) -> Option<u64>) -> impl Fn(&SampleRow<'a>) -> String {
        move |it| csv_field(it.2.daemon.as_ref().and_then(figure))
    }
    fn inside<'a>(figure: fn(&InsideSample) -> Option<u64>) -> impl Fn(&SampleRow<'a>) -> String {
        move |it| csv_field(it.2.inside.as_ref().and_then(figure))
    }
    fn text<'a>(text: fn(&OutsideSample) -> Option<&String>) -> impl Fn(&SampleRow<'a>) -> String {
        move |it| it.2.daemon.as_ref().and_then(text).cloned().unwrap_or_default()
    }
    Report::<SampleRow<'a>>::new()
        .text("policy", |it| it.0.policy.clone())
        .figure("repetition", |it| it.0.repetition)
        .text("guest", |it| it.1.guest.clone())
        .figure("at_s", |it| format!("{:.3}", it.2.at_s))
        .figure("target_bytes", outside(|it| it.target_bytes))
        .figure("allocation_bytes", outside(|it| it.allocation_bytes))
        .figure("used_bytes", outside(|it| it.used_bytes))
        .text("doing", text(|it| it.doing.as_ref()))
        .figure("report_at_ms", |it| csv_field(it.2.inside.as_ref().map(|inside| inside.at_ms)))
        .figure("guest_used_bytes", inside(|it| it.used_bytes))
        .figure("guest_available_bytes", inside(|it| it.available_bytes))
        .figure("swap_used_bytes", inside(|it| it.swap_used_bytes))
        .figure("swap_in_bytes", inside(|it| it.swap_in_bytes))
        .figure("swap_out_bytes", inside(|it| it.swap_out_bytes))
        .figure("major_faults", inside(|it| it.major_faults))
        .figure("touches", inside(|it| Some(it.touches)))
        .figure("iterations", inside(|it| Some(it.iterations)))
        .figure("size_bytes", inside(|it| Some(it.size_bytes)))
        .figure("size_wanted_bytes", inside(|it| Some(it.size_wanted_bytes)))
        .figure("touched_bytes", number(|it| it.touched_bytes))
        .text("doing_text", text(|it| it.doing_text.as_ref()))
}

fn write_csv(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let guests = record.runs.iter().flat_map(|run| run.guests.iter().map(move |it| (run, it)));
    let rows = guests.flat_map(|(run, guest)| guest.samples.iter().map(move |it| (run, guest, it)));
    let columns = columns();
    columns.write_csv_head(out)?;
    columns.write_csv(rows, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_csv_has_every_sample_and_column() {
        let record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        let mut csv = Vec::new();
        write_csv(&record, &mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * 2 * 11);
        assert!(
            lines.iter().all(|line| line.split(',').count() == columns().heads().count()),
            "{csv}"
        );
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
