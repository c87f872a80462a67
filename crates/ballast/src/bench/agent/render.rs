//! The report for people.

use std::fmt::Write;

use ballast_model::Bytes;
use comfy_table::CellAlignment::{Left, Right};

use super::super::goal::{self, figure};
use super::report::{Daemon, Own, Report};
use crate::commands::format;

/// The whole report, tables wrapped to `width` columns if given.
pub(super) fn render(report: &Report, width: Option<u16>) -> String {
    let processor = report.processor.as_deref().unwrap_or("unknown");
    let mut out = format!("processor  {processor}\nfigures    ballast {}\n", report.version);
    out.push_str("\nthe agent, a sample a second\n");
    let columns = [
        ("WHERE", Left),
        ("SAMPLES", Right),
        ("OF A CORE", Right),
        ("A SAMPLE", Right),
        ("RESIDENT", Right),
        ("PROGRAM", Right),
    ];
    out.push_str(&format::table(&columns, report.agent.iter().map(own), width));
    let daemon = &report.daemon;
    let _ = writeln!(
        out,
        "\nthe daemon, {} guests that report once a second, {} s of turns each",
        daemon.guests, daemon.length_s
    );
    let columns = [("DAEMON", Left), ("OF A CORE", Right), ("RESIDENT", Right)];
    let sides = [
        ("listens to agents", daemon.with_percent, daemon.with_bytes),
        ("does not", daemon.without_percent, daemon.without_bytes),
    ];
    let row = |(name, percent, bytes): (&str, f64, u64)| {
        vec![name.to_owned(), format!("{} %", figure(percent)), Bytes::new(bytes).to_string()]
    };
    out.push_str(&format::table(&columns, sides.into_iter().map(row), width));
    let _ = writeln!(out, "\n{}", emergencies(daemon));
    if report.is_quick {
        out.push_str("quick figures are not held against goals\n");
    }
    out.push_str(&goal::table(&report.goals, width));
    out
}

fn own(own: &Own) -> Vec<String> {
    vec![
        own.place.to_owned(),
        own.samples.to_string(),
        format!("{} %", figure(own.processor_percent)),
        format!("{} µs", figure(own.sample_us)),
        Bytes::new(own.resident_bytes).to_string(),
        Bytes::new(own.program_bytes).to_string(),
    ]
}

fn emergencies(daemon: &Daemon) -> String {
    let counted = format!("{} of {} emergencies answered", daemon.answered, daemon.emergencies);
    match (daemon.answer_median_ms, daemon.answer_worst_ms) {
        (Some(median), Some(worst)) => {
            format!("{counted}: median {} ms, the worst {} ms", figure(median), figure(worst))
        }
        _ => counted,
    }
}
