//! The comparison as a table for a terminal.

use ballast_report::format;
use comfy_table::CellAlignment::{Left, Right};

use super::calibration::Calibration;
use super::compare::{Comparison, Row};
use super::record::Record;
use super::{calibration_table, domains_table, figures, fleet_table, moves_table};
use super::{paper, transfer_table, words};

/// The comparison, its meaning in sentences, and the simulator's figures beside it.
pub fn render(
    record: &Record,
    comparison: &Comparison,
    calibration: Option<&Calibration>,
) -> String {
    let mut out = format!("{}: {}\n\n", record.scenario.name, words::setting(record));
    out.push_str(&table(comparison));
    out.push('\n');
    for sentence in words::outcome(record, comparison) {
        out.push_str(&format!("{sentence}\n"));
    }
    for remark in &comparison.remarks {
        out.push_str(&format!("note: {remark}\n"));
    }
    out.push_str(&fleet_table::render(record));
    out.push_str(&moves_table::render(record));
    out.push_str(&domains_table::render(record));
    out.push_str(&transfer_table::render(record));
    out.push_str(&paper::render(record, comparison));
    if let (Some(calibration), Some(first)) = (calibration, comparison.policies.first()) {
        out.push_str(&format!("\n{}", calibration_table::render(calibration, first)));
    }
    out
}

fn table(comparison: &Comparison) -> String {
    let names: Vec<String> =
        comparison.figures.iter().map(|figure| figure.name().to_uppercase()).collect();
    let columns: Vec<_> = [("GUEST", Left), ("POLICY", Left)]
        .into_iter()
        .chain(names.iter().map(|name| (name.as_str(), Right)))
        .collect();
    let mut lines = Vec::new();
    for (number, row) in comparison.rows.iter().enumerate() {
        let begins_guest = number % comparison.policies.len().max(1) == 0;
        if begins_guest && number > 0 {
            lines.push(vec![String::new()]);
        }
        let name = match (&row.guest, begins_guest) {
            (Some(guest), true) => guest.clone(),
            (None, true) => "all".to_owned(),
            (_, false) => String::new(),
        };
        let values = row.cells.iter().map(|cell| figures::value(cell.figure, cell.value));
        lines.push([name, row.policy.clone()].into_iter().chain(values).collect());
        lines.extend(ratios(comparison, row));
    }
    format::table(&columns, lines, None)
}

/// The line below a policy with its ratios to the first; `None` for the first policy itself.
fn ratios(comparison: &Comparison, row: &Row) -> Option<Vec<String>> {
    let first = comparison.policies.first()?;
    if row.policy == *first {
        return None;
    }
    let ratios = row.cells.iter().map(|cell| figures::ratio(cell.ratio));
    Some([String::new(), format!("  to {first}")].into_iter().chain(ratios).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use expect_test::expect;

    #[test]
    fn one_run_of_each_has_no_spread() {
        let record = fixture::record(&[("static", &[1_000_000]), ("global", &[2_340_000])]);
        let text = render(&record, &Comparison::new(&record), None);
        expect![[r#"
            made-up: 2 guests, 1GiB for all of them, 10 s under each of static, global, once

            GUEST  POLICY       PAGE TOUCHES  PASSES  RUN TIME  MAJOR FAULTS  SWAP-IN  SWAP-OUT  MEMORY, MEAN  MEMORY, END  SETTLED AFTER
            a      static             1.00 M   100 k    10.0 s          1000   3.9MiB    7.8MiB        512MiB       512MiB              –
                   global             2.34 M   234 k    10.0 s             0       0B        0B        602MiB       712MiB          9.0 s
                     to static         2.34×   2.34×     1.00×         0.00×    0.00×     0.00×         1.18×        1.39×              –

            b      static                  –       –         –             0       0B        0B        512MiB       512MiB              –
                   global                  –       –         –             0       0B        0B        422MiB       312MiB         10.0 s
                     to static             –       –         –        both 0   both 0    both 0         0.82×        0.61×              –

            all    static             1.00 M   100 k    10.0 s          1000   3.9MiB    7.8MiB          1GiB         1GiB              –
                   global             2.34 M   234 k    10.0 s             0       0B        0B          1GiB         1GiB         10.0 s
                     to static         2.34×   2.34×     1.00×         0.00×    0.00×     0.00×         1.00×        1.00×              –

            With global guest a did 2.34× the work of static in the same 10 s; the work of static was done after 5 s (from one run of each; ballast lab run --repetitions shows the spread).

            No memory was moved.
        "#]].assert_eq(&text);
    }

    #[test]
    fn repetitions_show_median_and_range() {
        let work: [(&str, &[u64]); 2] = [("static", &[10, 20, 40]), ("global", &[30, 50, 60])];
        let record = fixture::record(&work);
        let text = table(&Comparison::new(&record));
        assert!(text.contains("20 (10…40)"), "{text}");
        assert!(text.contains("2.50× (1.50×…3.00×)"), "{text}");
    }
}
