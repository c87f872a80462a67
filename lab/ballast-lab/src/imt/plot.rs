//! Working sets as recorded and as estimated, one plot for each threshold, as in MEB Fig. 12.
//!
//! Idea: the background is shaded where tracking is on. The line of the estimate is drawn over that
//! of the working set, so the visible parts of the working set are the error.
//! Limits: a series longer than [`COLUMNS_MAX`] is divided into that many stretches. Each is drawn
//! by its least and greatest value, and shaded if any of it was tracked.

use ballast_chart::{Axis, Chart, Colour, Frame, Key, Sheet, Sign, rgb};

use super::runs::Run;
use super::summary::{Trace, percent};

/// The page's style sheet has the same colours.
const WSS: Colour = rgb(0x1f, 0x4e, 0x8c);
const ESTIMATE: Colour = rgb(0xe0, 0x7b, 0x1a);
const EVENTS: Colour = rgb(0x8a, 0x6d, 0x1f);
const TRACKED: Colour = rgb(0x2a, 0x8a, 0x5f);
/// Opacity of the shading.
const OPACITY: f64 = 0.16;
/// The greatest number of stretches in which a series is drawn; a plot has hardly more columns.
const COLUMNS_MAX: usize = 1000;
const FRAME: Frame = Frame { size: (900, 170), left: 64, right: 32, top: 4, letters: 15 };

/// The legend: for each entry its name in the style sheet, its sign and its text.
pub(super) const KEYS: [(&str, Sign, &str); 3] = [
    ("wss", Sign::Line(WSS), "working set as recorded"),
    ("estimate", Sign::Line(ESTIMATE), "as estimated"),
    ("tracked", Sign::Shade(TRACKED, OPACITY), "tracking is on"),
];

/// The content of one plot.
#[derive(Clone, Copy)]
pub(super) enum Panel<'a> {
    /// A run: both lines on shaded ground.
    Run(&'a Run),
    /// The events that were recorded.
    Events,
}

/// All plots, one below the other.
///
/// # Errors
/// The drawing library fails, which is not expected.
pub(crate) fn sheet(trace: Trace<'_>, runs: &[Run]) -> anyhow::Result<String> {
    let panel =
        |panel| ballast_chart::Panel { heading: Some(heading(panel)), chart: chart(trace, panel) };
    let key = |(_, sign, text): (_, _, &str)| Key { sign, text: text.to_owned() };
    let sheet = Sheet {
        frame: FRAME,
        title: "Intermittent tracking".to_owned(),
        legend: KEYS.into_iter().map(key).collect(),
        panels: runs.iter().map(Panel::Run).chain([Panel::Events]).map(panel).collect(),
        otherwise: "",
    };
    sheet.svg()
}

/// The result of a run in one line.
pub(super) fn heading(panel: Panel<'_>) -> String {
    match panel {
        Panel::Run(run) => {
            let (up_ratio, mre) = (percent(run.replay.up_ratio), percent(run.replay.mre));
            format!("{} · tracked {up_ratio} of the time · mean error {mre}", run.title())
        }
        Panel::Events => "events in an interval".to_owned(),
    }
}

/// One plot, without heading.
pub(super) fn chart(trace: Trace<'_>, panel: Panel<'_>) -> Chart {
    let interval = trace.interval.as_secs_f64();
    let at = |index: usize| index as f64 * interval;
    let line = |values: Vec<u64>| {
        let corners = steps(&values).into_iter();
        corners.map(move |(index, value)| (at(index), value as f64))
    };
    let time = Axis::time(at(trace.series.len()));
    match panel {
        Panel::Run(run) => {
            let sizes: Vec<u64> = trace.series.iter().map(|it| it.wss.get()).collect();
            let estimates: Vec<u64> =
                run.replay.intervals.iter().map(|it| it.estimate.get()).collect();
            let greatest = sizes.iter().chain(&estimates).max().copied().unwrap_or(1);
            let mut chart = Chart::new(FRAME, time, Axis::bytes(greatest));
            let tracked: Vec<bool> = run.replay.intervals.iter().map(|it| it.is_tracked).collect();
            for (from, to) in stretches(&tracked) {
                chart.shade((at(from), at(to)), TRACKED, OPACITY);
            }
            chart.line(line(sizes), WSS, 3);
            chart.line(line(estimates), ESTIMATE, 2);
            chart
        }
        Panel::Events => {
            let events: Vec<u64> = trace.series.iter().map(|it| it.events).collect();
            let greatest = events.iter().max().copied().unwrap_or(1).max(1);
            let mut chart = Chart::new(FRAME, time, Axis::counts(greatest as f64));
            chart.line(line(events), EVENTS, 1);
            chart
        }
    }
}

/// Values that each hold for one interval, as the corners of a line.
fn steps(values: &[u64]) -> Vec<(usize, u64)> {
    let size = values.len().div_ceil(COLUMNS_MAX).max(1);
    let mut corners = Vec::new();
    for (index, stretch) in values.chunks(size).enumerate() {
        let (from, to) = (index * size, index * size + stretch.len());
        let least = stretch.iter().copied().min().unwrap_or(0);
        let greatest = stretch.iter().copied().max().unwrap_or(0);
        corners.extend([(from, least), (to, greatest)]);
    }
    corners
}

/// The stretches in which `is_so` holds: (first, one past the last).
fn stretches(is_so: &[bool]) -> Vec<(usize, usize)> {
    let size = is_so.len().div_ceil(COLUMNS_MAX).max(1);
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (index, stretch) in is_so.chunks(size).enumerate() {
        if !stretch.contains(&true) {
            continue;
        }
        let (from, to) = (index * size, index * size + stretch.len());
        match found.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => found.push((from, to)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_estimate::phase::{IntermittentSettings, RecordedInterval};
    use ballast_model::Bytes;

    use super::*;
    use crate::imt::runs::runs;

    fn drawn(series: &[RecordedInterval], interval: Duration) -> String {
        let runs = runs(series, IntermittentSettings::default());
        sheet(Trace { name: "x", series, interval }, &runs).unwrap()
    }

    #[test]
    fn every_threshold_has_its_plot() {
        let recorded =
            |i: u64| RecordedInterval { wss: Bytes::mib(100 + i / 30 * 50), events: 1000 };
        let series: Vec<_> = (0..90).map(recorded).collect();
        let svg = drawn(&series, Duration::from_secs(5));
        for text in
            ["T = 0.05", "T = 0.30", "T adaptive", "events in an interval", "128MiB", "7 min"]
        {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        for colour in ["#1F4E8C", "#E07B1A", "#2A8A5F"] {
            assert!(svg.matches(colour).count() >= 7, "{colour}");
        }
    }

    #[test]
    fn every_series_can_be_drawn() {
        let rows = |wss: u64, events: u64, count: usize| {
            vec![RecordedInterval { wss: Bytes::new(wss), events }; count]
        };
        for series in [rows(0, 0, 1), rows(u64::MAX, u64::MAX, 3), rows(1, 0, 5000), Vec::new()] {
            for interval in [Duration::from_millis(1), Duration::from_secs(86_400)] {
                let svg = drawn(&series, interval);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(svg.len() < 1 << 20, "{}", svg.len());
            }
        }
    }

    #[test]
    fn a_long_series_is_drawn_by_its_extremes() {
        let values: Vec<u64> = (0..2000).map(|i| if i == 777 { 9 } else { 5 }).collect();
        let corners = steps(&values);
        assert_eq!(corners.len(), 2 * COLUMNS_MAX);
        assert_eq!(&corners[776..780], [(776, 5), (778, 9), (778, 5), (780, 5)]);
        assert_eq!(steps(&[3, 4]), [(0, 3), (1, 3), (1, 4), (2, 4)]);
    }

    #[test]
    fn adjacent_tracked_intervals_are_one_stretch() {
        assert_eq!(stretches(&[true, true, false, true]), [(0, 2), (3, 4)]);
        let long: Vec<bool> = (0..2000).map(|i| i == 777).collect();
        assert_eq!(stretches(&long), [(776, 778)]);
    }
}
