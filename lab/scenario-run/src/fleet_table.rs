//! What happened in a fleet, as tables for a terminal and a page.

use ballast_report::Report;

use super::figures::{NONE, or_none, size, times};
use super::fleet_findings::{Expectation, expectations, occupied, work_times};
use super::fleet_record::MigrationRecord;
use super::record::{Record, RunRecord};

/// A move in a run.
pub(super) struct MigrationRow<'a> {
    run: &'a RunRecord,
    migration: &'a MigrationRecord,
}

/// All moves that were ordered.
pub(super) fn rows(record: &Record) -> impl Iterator<Item = MigrationRow<'_>> {
    record.runs.iter().flat_map(|run| {
        let migrations = run.fleet.iter().flat_map(|fleet| &fleet.migrations);
        migrations.map(move |migration| MigrationRow { run, migration })
    })
}

/// The columns of the moves.
pub(super) fn report<'a>(record: &'a Record) -> Report<'a, MigrationRow<'a>> {
    Report::<MigrationRow<'a>>::new()
        .text("run", |it| it.run.name(record))
        .text("guest", |it| it.migration.guest.clone())
        .text("from", |it| it.migration.from.clone())
        .text("to", |it| it.migration.to.clone())
        .figure("ordered at", |it| span(it.migration.phases.first().map(|it| it.at_s)))
        .figure("copied from", |it| span(it.migration.at("copying")))
        .figure("runs there at", |it| span(it.migration.at("moved")))
        .figure("took", |it| span(it.migration.took_s()))
        .figure("stood still", |it| or_none(it.migration.still_s().map(ms)))
        .text("ended", |it| it.migration.ended.clone().unwrap_or_else(|| NONE.to_owned()))
}

fn span(s: Option<f64>) -> String {
    or_none(s.map(|s| format!("{s:.1} s")))
}

fn ms(s: f64) -> String {
    format!("{:.0} ms", 1000.0 * s)
}

/// The columns of the expectations and their results.
pub(super) fn findings<'a>() -> Report<'a, Expectation> {
    Report::<Expectation>::new()
        .text("", |it| if it.is_met { "met" } else { "NOT MET" }.to_owned())
        .text("expected", |it| it.expected.clone())
        .text("found", |it| it.found.clone())
}

/// The outcome in sentences; empty for a scenario with one host.
pub(super) fn words(record: &Record) -> Vec<String> {
    let Some(info) = &record.scenario.fleet else { return Vec::new() };
    let mut words = Vec::new();
    if let Some(work) = work_times(record) {
        words.push(format!(
            "In the last {:.0} s all guests together did {} the work with moves ({} to {}).",
            info.window_s,
            times(work.median),
            times(work.min),
            times(work.max)
        ));
    }
    if let Some((run, host, over)) = occupied(record) {
        words.push(format!(
            "{run}: the guests' processes on host {host} occupied up to {} more than its budget: a QEMU \
             whose guest memory is shared, as the page tracker needs it, occupies all of it while it is copied.",
            size(over as f64)
        ));
    }
    for run in &record.runs {
        let Some(fleet) = &run.fleet else { continue };
        for discarded in &fleet.discarded {
            words.push(format!(
                "A run of {} counted for nothing and was repeated: the kernel of guest {} died, which an emulated guest may while it is copied ({}).",
                run.name(record),
                discarded.guest,
                discarded.console.trim()
            ));
        }
    }
    words
}

/// The tables for a terminal; empty for a scenario with one host.
pub(super) fn render(record: &Record) -> String {
    if record.scenario.fleet.is_none() {
        return String::new();
    }
    let mut out = "\nMoves between hosts:\n".to_owned();
    match rows(record).next() {
        None => out.push_str("none was ordered\n"),
        Some(_) => out.push_str(&report(record).in_capitals().table(rows(record), None)),
    }
    for sentence in words(record) {
        out.push_str(&format!("{sentence}\n"));
    }
    out.push_str("\nExpectations:\n");
    for it in expectations(record) {
        let sign = if it.is_met { "met:    " } else { "NOT MET:" };
        out.push_str(&format!("{sign} {}\n         {}\n", it.expected, it.found));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use expect_test::expect;

    #[test]
    fn moves_and_expectations_follow_each_other() {
        assert_eq!(render(&fixture::record(&[("static", &[1])])), "");
        expect![[r#"

            Moves between hosts:
            RUN   GUEST  FROM  TO  ORDERED AT  COPIED FROM  RUNS THERE AT   TOOK  STOOD STILL  ENDED
            move  a      x     y        2.0 s        3.0 s          3.0 s  1.0 s         0 ms  moved
            In the last 5 s all guests together did 4.00× the work with moves (4.00× to 4.00×).

            Expectations:
            met:     with moves one guest leaves host x within 5 s, and without none moves
                     move: a from x to y
            met:     all guests together do at least 1.50 × the work in the last 5 s
                     4.00 × (4.00 to 4.00 in 1 pairs of runs)
            met:     every guest has its floor all the time, on whatever host
                     so in 44 looks
            met:     no host's guests hold more than its budget
                     at most 90.0 % of it
            met:     work goes on where it was: no clock or counter of a guest falls
                     move: a touched 280 pages at y
            met:     no daemon's checker refuses a plan
                     0 refused
            met:     the leader is killed while an order is under way, and another host finishes
                     move: z led and was killed in phase ordered, y led after 1.2 s; the order: moved and put away
        "#]].assert_eq(&render(&fixture::fleet()));
    }
}
