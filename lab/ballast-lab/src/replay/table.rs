//! A replay as text: what was recorded and what would have been, for all guests together and for
//! each.

use ballast_replay::{ASSUMPTIONS, ReplayTotals};
use comfy_table::CellAlignment::{Left, Right};

use super::{MEANINGS, Replayed, cells, extent};
use ballast_report::format;

/// The table, and the assumptions behind its figures.
pub(crate) fn render(replayed: Replayed<'_>) -> String {
    let Replayed { journal, reports } = replayed;
    let Some(first) = reports.first() else { return String::new() };
    let row = |guest: &str, policy: &str, totals: ReplayTotals| {
        [guest.to_owned(), policy.to_owned()].into_iter().chain(cells(totals)).collect()
    };
    let mut rows: Vec<Vec<String>> = vec![row("all", "as recorded", first.recorded)];
    rows.extend(reports.iter().map(|report| row("", report.policy.as_str(), report.imagined)));
    for (number, (id, recorded, _)) in first.guests.iter().enumerate() {
        rows.push(row(id.as_str(), "as recorded", *recorded));
        for report in reports {
            if let Some((_, _, imagined)) = report.guests.get(number) {
                rows.push(row("", report.policy.as_str(), *imagined));
            }
        }
    }
    let names = [("GUEST", Left), ("POLICY", Left)].into_iter();
    let columns: Vec<_> = names.chain(MEANINGS.map(|(name, _)| (name, Right))).collect();
    let mut out = format!("{}: {}\n\n", journal.display(), extent(first));
    out.push_str(&format::table(&columns, rows, None));
    out.push_str("\nWhat is not recorded is imagined, by these assumptions:\n");
    out.extend(ASSUMPTIONS.iter().map(|text| format!("  - {text}\n")));
    out
}
