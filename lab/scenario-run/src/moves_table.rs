//! What was moved in each run, as rows for a terminal and a page.
//!
//! Limits: of several reasons of one kind the first is told in words, with how often there was one.

use comfy_table::CellAlignment::{Left, Right};

use super::figures::{NONE, size};
use super::record::{MoveReason, MoveRecord, Record, RunRecord};
use crate::commands::format;

/// What the columns are.
pub(super) const COLUMNS: [&str; 8] =
    ["policy", "guest", "by", "orders", "to the host", "to the guest", "a second", "why"];

/// Whether a column holds figures.
pub(super) fn is_figure(column: usize) -> bool {
    (3..7).contains(&column)
}

/// A line for each mechanism of each guest, and for each further reason; empty where nothing was moved.
pub(super) fn rows(record: &Record) -> Vec<Vec<String>> {
    let of_run = |run: &RunRecord| {
        let policy = match record.scenario.repetitions {
            1 => run.policy.clone(),
            _ => format!("{} {}", run.policy, run.repetition),
        };
        let rows: Vec<_> = run.moves.iter().flat_map(|row| lines(&policy, row)).collect();
        rows
    };
    record.runs.iter().flat_map(of_run).collect()
}

fn lines(policy: &str, row: &MoveRecord) -> Vec<Vec<String>> {
    let bytes = |bytes: u64| if bytes == 0 { NONE.to_owned() } else { size(bytes as f64) };
    let rate = row.bytes_per_s().map_or(NONE.to_owned(), size);
    let mut reasons = row.reasons.iter().map(reason);
    let first = vec![
        policy.to_owned(),
        row.guest.clone(),
        row.mechanism.clone(),
        row.orders.to_string(),
        bytes(row.to_host_bytes),
        bytes(row.to_guest_bytes),
        rate,
        reasons.next().unwrap_or_else(|| "not ordered".to_owned()),
    ];
    let further = reasons.map(|why| {
        let mut line = vec![String::new(); COLUMNS.len() - 1];
        line.push(why);
        line
    });
    std::iter::once(first).chain(further).collect()
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
    let names = COLUMNS.map(str::to_uppercase);
    let align = |column| if is_figure(column) { Right } else { Left };
    let columns: Vec<_> =
        names.iter().enumerate().map(|(column, name)| (name.as_str(), align(column))).collect();
    format!(
        "\nWhat was moved, by which mechanism and why:\n{}",
        format::table(&columns, rows, None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::fixture;
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
