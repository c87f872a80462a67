//! Memory moved in each run, as a table for a terminal and a page.
//!
//! Limits: of several reasons of one kind only the first is shown in words, with their number.

use super::figures::{NONE, or_none, size};
use super::record::{MoveReason, MoveRecord, Record, RunRecord};
use ballast_report::Report;

/// A line: a mechanism of a guest with its first reason, or a further reason below it.
#[derive(Clone)]
pub(super) struct MoveRow<'a> {
    first: Option<(&'a RunRecord, &'a MoveRecord)>,
    why: String,
}

/// The lines; empty if no memory was moved.
pub(super) fn rows(record: &Record) -> Vec<MoveRow<'_>> {
    record.runs.iter().flat_map(|run| run.moves.iter().flat_map(|row| lines(run, row))).collect()
}

fn lines<'a>(run: &'a RunRecord, row: &'a MoveRecord) -> impl Iterator<Item = MoveRow<'a>> {
    let mut reasons = row.reasons.iter().map(reason);
    let why = reasons.next().unwrap_or_else(|| "not ordered".to_owned());
    let first = MoveRow { first: Some((run, row)), why };
    std::iter::once(first).chain(reasons.map(|why| MoveRow { first: None, why }))
}

/// The columns.
pub(super) fn report<'a>(record: &'a Record) -> Report<'a, MoveRow<'a>> {
    let of = |cell: fn(&MoveRecord) -> String| {
        move |it: &MoveRow<'a>| it.first.map_or(String::new(), |(_, row)| cell(row))
    };
    let policy = |it: &MoveRow<'a>| it.first.map_or(String::new(), |(run, _)| run.name(record));
    Report::new()
        .text("policy", policy)
        .text("guest", of(|row| row.guest.clone()))
        .text("by", of(|row| row.mechanism.clone()))
        .figure("orders", of(|row| row.orders.to_string()))
        .figure("to the host", of(|row| bytes(row.to_host_bytes)))
        .figure("to the guest", of(|row| bytes(row.to_guest_bytes)))
        .figure("a second", of(|row| or_none(row.bytes_per_s().map(size))))
        .text("why", |it| it.why.clone())
}

fn bytes(bytes: u64) -> String {
    if bytes == 0 { NONE.to_owned() } else { size(bytes as f64) }
}

fn reason(MoveReason { text, count, .. }: &MoveReason) -> String {
    match count {
        1 => text.clone(),
        _ => format!("{text} ({count}×)"),
    }
}

/// The table for a terminal.
pub(super) fn render(record: &Record) -> String {
    let rows = rows(record);
    if rows.is_empty() {
        return "\nNo memory was moved.\n".to_owned();
    }
    format!(
        "\nWhat was moved, by which mechanism and why:\n{}",
        report(record).in_capitals().table(rows, None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use expect_test::expect;

    #[test]
    fn a_line_for_each_mechanism_and_each_further_reason() {
        let mut record = fixture::record(&[("static", &[100]), ("global", &[250])]);
        assert_eq!(render(&record), "\nNo memory was moved.\n");
        let reason = |code: &str, text: &str, count| MoveReason {
            code: code.to_owned(),
            text: text.to_owned(),
            count,
        };
        let row = |mechanism: &str, orders, to_host_mib: u64, moving_s, reasons| MoveRecord {
            guest: "a".to_owned(),
            mechanism: mechanism.to_owned(),
            orders,
            to_host_bytes: to_host_mib << 20,
            to_guest_bytes: 0,
            moving_s,
            reasons,
        };
        record.runs[1].moves = vec![
            row(
                "balloon",
                4,
                200,
                2.0,
                vec![
                    reason("balloon-takes-it", "a balloon takes", 3),
                    reason("no-balloon", "there is none", 1),
                ],
            ),
            row("page-out", 0, 0, 0.0, vec![]),
        ];
        expect![[r#"

            What was moved, by which mechanism and why:
            POLICY  GUEST  BY        ORDERS  TO THE HOST  TO THE GUEST  A SECOND  WHY
            global  a      balloon        4       200MiB             –    100MiB  a balloon takes (3×)
                                                                                  there is none
            global  a      page-out       0            –             –         –  not ordered
        "#]]
        .assert_eq(&render(&record));
    }
}
