//! Curves as CSV: one line for each point, the traces one after the other.

use std::io::{self, Write};

use ballast_mrc::Step;
use ballast_report::Report;

use super::outcome::Outcome;

/// Writes the curves of `outcomes` with at most `points` points each.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn write(outcomes: &[Outcome], points: usize, out: &mut dyn Write) -> io::Result<()> {
    let columns = Report::<(&str, Step)>::new()
        .text("trace", |it| it.0.to_owned())
        .figure("pages", |it| it.1.pages)
        .figure("miss_ratio_warm", |it| it.1.miss_ratio_warm)
        .figure("miss_ratio_total", |it| it.1.miss_ratio_total);
    columns.write_csv_head(out)?;
    outcomes.iter().try_for_each(|outcome| {
        let points = outcome.points(points).into_iter();
        columns.write_csv(points.map(|point| (outcome.trace.as_str(), point)), out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::fixture::{self, PAGES};

    #[test]
    fn every_point_of_every_trace_has_a_line() {
        let outcomes =
            [fixture::outcome("a,b", &[1, 1], PAGES), fixture::outcome("none", &[], PAGES)];
        let mut csv = Vec::new();
        write(&outcomes, 10, &mut csv).unwrap();
        let expected =
            "trace,pages,miss_ratio_warm,miss_ratio_total\n\"a,b\",0,1,1\n\"a,b\",1,0,0.5\n";
        assert_eq!(String::from_utf8(csv).unwrap(), expected);
    }
}
