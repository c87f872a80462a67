//! The report for people.

use std::fmt::Write;

use comfy_table::CellAlignment::{Left, Right};

use super::super::goal::{self, figure};
use super::report::{EngineReport, Report, WorkloadReport};
use crate::commands::format;

/// No figure.
const NONE: &str = "–";

/// The whole report, tables wrapped to `width` columns if given.
pub(super) fn render(report: &Report, width: Option<u16>) -> String {
    let machine = &report.machine;
    let mut out = format!(
        "processor  {}, core {}; {}\n",
        machine.processor.as_deref().unwrap_or("unknown"),
        machine.core,
        list(&machine.caches)
    );
    let instructions = list(&machine.features);
    let compiled = list(&machine.compiled_for);
    let _ = writeln!(
        out,
        "has        {instructions}; compiled for the baseline and {compiled}; exact uses {}",
        report.exact_path
    );
    let _ = writeln!(
        out,
        "figures    ballast {}, median of {} runs, interleaved; the core's time, page faults included",
        report.version, report.repetitions
    );
    for workload in &report.workloads {
        out.push('\n');
        out.push_str(&table(workload, width));
    }
    if report.is_quick {
        out.push_str("\nquick workloads are too small for figures to be held against goals\n");
    }
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn list(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "nothing more".to_owned() } else { names.join(" ") }
}

fn table(workload: &WorkloadReport, width: Option<u16>) -> String {
    let title = format!(
        "{}: {}; {} references to {} pages\n",
        workload.workload,
        workload.what,
        grouped(workload.references),
        grouped(workload.pages)
    );
    let columns = [
        ("ENGINE", Left),
        ("M/S", Right),
        ("LEAST–GREATEST", Right),
        ("OF FLOOR", Right),
        ("× AVL", Right),
        ("× EXACT", Right),
        ("BYTES/PAGE", Right),
        ("MEAN ERROR", Right),
        ("WORST", Right),
        ("", Left),
    ];
    title + &format::table(&columns, workload.engines.iter().map(row), width)
}

fn row(engine: &EngineReport) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let rate = engine.million_per_second;
    let note = match engine.is_prefix {
        true => format!("first {} references only", grouped(engine.references)),
        false => String::new(),
    };
    vec![
        engine.engine.to_owned(),
        figure(rate.median),
        format!("{}–{}", figure(rate.least), figure(rate.greatest)),
        or_none(engine.share_of_floor.map(|share| format!("{} %", figure(share * 100.0)))),
        or_none(engine.times_avl.map(figure)),
        or_none(engine.times_exact.map(figure)),
        or_none(engine.bytes_per_page.map(figure)),
        or_none(engine.error_mean.map(|error| format!("{error:.5}"))),
        or_none(engine.error_worst.map(|error| format!("{error:.5}"))),
        note,
    ]
}

/// A number in groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (16_000_000, "16,000,000")] {
            assert_eq!(grouped(n), text);
        }
    }
}
