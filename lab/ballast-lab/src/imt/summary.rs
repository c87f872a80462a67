//! The figures of a series as text: a table like MEB Table II.

use std::time::Duration;

use ballast_estimate::phase::RecordedInterval;

use super::runs::Run;
use ballast_report::figures::or_none;
use ballast_report::{Report, format, harmless_line};

/// The series that is replayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace<'a> {
    /// The file's name.
    pub(crate) name: &'a str,
    /// Its intervals.
    pub(crate) series: &'a [RecordedInterval],
    /// The time between two rows.
    pub(crate) interval: Duration,
}

impl Trace<'_> {
    /// Its length in words.
    pub(crate) fn extent(&self) -> String {
        let count = self.series.len();
        let interval_ms = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let all = format::span(interval_ms.saturating_mul(count as u64));
        let intervals = if count == 1 { "interval" } else { "intervals" };
        format!("{count} {intervals} of {}, {all} in all", format::span(interval_ms))
    }
}

/// The figures of `runs` as text, wrapped to `width` columns if given.
pub(crate) fn render(trace: Trace<'_>, runs: &[Run], width: Option<u16>) -> String {
    let name = harmless_line(trace.name);
    let table = columns("MRE").in_capitals().table(runs, width);
    let end = if table.ends_with('\n') { "" } else { "\n" };
    format!("{name}: {}\n\n{table}{end}", trace.extent())
}

/// The columns; `error` is the heading of the mean relative error.
pub(crate) fn columns(error: &str) -> Report<'static, Run> {
    Report::<Run>::new()
        .text("mode", Run::mode)
        .figure("threshold", Run::threshold)
        .figure("up ratio", |it| percent(it.replay.up_ratio))
        .figure(error, |it| percent(it.replay.mre))
}

/// A ratio in per cent, or a sign that there is none.
pub(crate) fn percent(ratio: Option<f64>) -> String {
    or_none(ratio.map(|it| format!("{:.1} %", it * 100.0)))
}

#[cfg(test)]
mod tests {
    use ballast_estimate::phase::IntermittentSettings;
    use ballast_model::Bytes;
    use expect_test::expect;

    use super::*;
    use crate::imt::runs::runs;

    fn render_of(wss: &[u64]) -> String {
        let series: Vec<_> =
            wss.iter().map(|wss| RecordedInterval { wss: Bytes::mib(*wss), events: 100 }).collect();
        let runs = runs(&series, IntermittentSettings::default());
        let interval = Duration::from_secs(5);
        render(Trace { name: "a\n.csv", series: &series, interval }, &runs, None)
    }

    /// The first five of ten intervals fill the filters; the last two are estimated at half of
    /// their true size.
    #[test]
    fn the_table_equals_one_by_hand() {
        expect![[r#"
            a�.csv: 10 intervals of 5.0s, 50.0s in all

            MODE         THRESHOLD  UP RATIO     MRE
            fixed             0.05    50.0 %  10.0 %
            fixed             0.10    50.0 %  10.0 %
            fixed             0.15    50.0 %  10.0 %
            fixed             0.20    50.0 %  10.0 %
            fixed             0.25    50.0 %  10.0 %
            fixed             0.30    50.0 %  10.0 %
            adaptive  0.20 at last    50.0 %  10.0 %
        "#]]
        .assert_eq(&render_of(&[100, 100, 100, 100, 100, 100, 100, 100, 200, 200]));
    }

    #[test]
    fn an_undefined_error_is_a_dash() {
        let text = render_of(&[0]);
        assert!(text.starts_with("a\u{fffd}.csv: 1 interval of 5.0s, 5.0s in all\n"), "{text}");
        assert!(text.contains("100.0 %    –\n"), "{text}");
    }
}
