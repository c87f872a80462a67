//! How long transfers took, compared with their goals, as a table for a terminal and a page.

use ballast_report::Report;
use serde::Serialize;

use super::figures::{NONE, or_none, size, times};
use super::record::{Record, RunRecord, TransferRecord};

/// The goals of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goals {
    /// Time from the demand to the receiver's first memory, in seconds; has to be less.
    pub first_use_s: f64,
    /// Time until all has arrived against the time of the balloon alone; at most this.
    pub ratio: f64,
}

/// The goals of this project.
pub const GOALS: Goals = Goals { first_use_s: 0.3, ratio: 1.25 };

/// A run in which a transfer was timed.
pub(super) struct TransferRow<'a> {
    run: &'a RunRecord,
    transfer: &'a TransferRecord,
}

/// The runs in which a transfer was timed.
pub(super) fn rows(record: &Record) -> impl Iterator<Item = TransferRow<'_>> {
    record.runs.iter().filter_map(|run| Some(TransferRow { run, transfer: run.transfer.as_ref()? }))
}

/// The columns.
pub(super) fn report<'a>(record: &'a Record) -> Report<'a, TransferRow<'a>> {
    Report::<TransferRow<'a>>::new()
        .text("policy", |it| it.run.name(record))
        .figure("first memory after", |it| span(it.transfer.first_use_s))
        .figure("all given after", |it| span(it.transfer.given_s))
        .figure("all there after", |it| span(it.transfer.arrived_s))
        .figure("balloon alone", |it| span(Some(it.transfer.balloon_alone_s)))
        .figure("ratio", |it| or_none(it.transfer.ratio().map(times)))
        .figure("looks apart, at most", |it| span(Some(it.transfer.polls_apart_s_max)))
}

fn span(s: Option<f64>) -> String {
    match s {
        None => NONE.to_owned(),
        Some(s) if s < 1.0 => format!("{:.0} ms", 1000.0 * s),
        Some(s) => format!("{s:.2} s"),
    }
}

/// The texts above and below the table; `None` if no transfer was timed.
pub(super) fn words(record: &Record) -> Option<(String, String)> {
    let TransferRecord { from, to, amount_bytes, .. } =
        record.runs.iter().find_map(|run| run.transfer.as_ref())?;
    let above = format!(
        "Transfer of {} from {from} to {to}, timed from the moment {to} begins to need it:",
        size(*amount_bytes as f64)
    );
    let goals = format!(
        "Goals: the first memory within {:.0} ms, all of it within {} the time that the balloon alone needs.",
        1000.0 * GOALS.first_use_s,
        times(GOALS.ratio)
    );
    Some((above, goals))
}

/// The table for a terminal; empty if no transfer was timed.
pub(super) fn render(record: &Record) -> String {
    let Some((above, below)) = words(record) else { return String::new() };
    format!("\n{above}\n{}{below}\n", report(record).in_capitals().table(rows(record), None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use expect_test::expect;

    #[test]
    fn times_are_compared_with_the_balloon_alone() {
        let mut record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        assert_eq!(render(&record), "");
        let transfer = |first_use_s, arrived_s| TransferRecord {
            from: "b".to_owned(),
            to: "a".to_owned(),
            amount_bytes: 1 << 30,
            first_use_s,
            given_s: arrived_s,
            arrived_s,
            balloon_alone_s: 2.0,
            polls_apart_s_max: 0.0071,
        };
        record.runs[0].transfer = Some(transfer(None, None));
        record.runs[1].transfer = Some(transfer(Some(0.25), Some(2.4)));
        expect![[r#"

            Transfer of 1GiB from b to a, timed from the moment a begins to need it:
            POLICY  FIRST MEMORY AFTER  ALL GIVEN AFTER  ALL THERE AFTER  BALLOON ALONE  RATIO  LOOKS APART, AT MOST
            static                   –                –                –         2.00 s      –                  7 ms
            global              250 ms           2.40 s           2.40 s         2.00 s  1.20×                  7 ms
            Goals: the first memory within 300 ms, all of it within 1.25× the time that the balloon alone needs.
        "#]]
        .assert_eq(&render(&record));
    }
}
