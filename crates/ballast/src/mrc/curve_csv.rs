//! Curves as CSV: a line for every point, the traces one after the other.

use super::outcome::Outcome;
use crate::csv::quoted;

/// The columns.
const COLUMNS: &str = "trace,pages,miss_ratio_warm,miss_ratio_total\n";

/// The curves of `outcomes` with at most `points` points each.
pub(crate) fn render(outcomes: &[Outcome], points: usize) -> String {
    let mut out = COLUMNS.to_owned();
    for outcome in outcomes {
        let trace = quoted(&outcome.trace);
        for point in outcome.points(points) {
            out.push_str(&format!(
                "{trace},{},{},{}\n",
                point.pages, point.miss_ratio_warm, point.miss_ratio_total
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::fixture::{self, PAGES};

    #[test]
    fn there_is_a_line_for_every_point_of_every_trace() {
        let outcomes =
            [fixture::outcome("a,b", &[1, 1], PAGES), fixture::outcome("none", &[], PAGES)];
        let csv = render(&outcomes, 10);
        assert_eq!(csv, format!("{COLUMNS}\"a,b\",0,1,1\n\"a,b\",1,0,0.5\n"));
    }
}
