//! Working sets as recorded and as estimated, one plot for every threshold, as MEB Fig. 12 has them.
//!
//! Idea: the ground is shaded where tracking is on; the line of the estimate lies over that of the working
//! set and hides it, so what can be seen of the latter is the error.
//! Limits: a series longer than [`COLUMNS_MAX`] is drawn by the least and the greatest of so many stretches,
//! each shaded if any of it was tracked.

use plotters::prelude::*;

use super::runs::Run;
use super::summary::{Trace, cells};
use crate::figures;
use crate::output::axis::{Axis, Scale, TimeUnit};
use crate::output::svg::{
    self, Area, FONT_SIZE, Failure, GRID, INK, Places, TITLE_FONT_SIZE, label,
};

/// The style sheet of the page knows these.
const WSS: RGBColor = RGBColor(0x1f, 0x4e, 0x8c);
const ESTIMATE: RGBColor = RGBColor(0xe0, 0x7b, 0x1a);
const EVENTS: RGBColor = RGBColor(0x8a, 0x6d, 0x1f);
const TRACKED: RGBColor = RGBColor(0x2a, 0x8a, 0x5f);
/// Of the shading.
const OPACITY: f64 = 0.16;
/// Most stretches that a series is drawn in; a plot has hardly more columns.
const COLUMNS_MAX: usize = 1000;
const WIDTH: u32 = 900;
/// Of a plot, with the axis of time.
const HEIGHT: u32 = 170;
/// Of the line over a plot, and of the legend.
const HEADING: u32 = 26;
const LEFT: u32 = 64;
/// Half of the last figure of the axis of time stands beyond its end.
const RIGHT: u32 = 32;
const BOTTOM: u32 = 24;

/// What a line of the legend stands for.
pub(super) const KEYS: [(&str, &str); 3] = [
    ("wss", "working set as recorded"),
    ("estimate", "as estimated"),
    ("tracked", "tracking is on"),
];

/// What one plot is of.
#[derive(Clone, Copy)]
pub(super) enum Panel<'a> {
    /// A run: both lines on shaded ground.
    Run(&'a Run),
    /// The events that were recorded.
    Events,
}

/// All plots under each other.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(crate) fn alone(trace: Trace<'_>, runs: &[Run]) -> anyhow::Result<String> {
    let panels: Vec<_> = runs.iter().map(Panel::Run).chain([Panel::Events]).collect();
    let height = HEADING * 2 + (HEADING + HEIGHT) * panels.len() as u32;
    Ok(svg::alone((WIDTH, height), |area| draw_alone(area, trace, &panels))? + "\n")
}

/// A plot for a page, without heading.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(super) fn inside(trace: Trace<'_>, panel: Panel<'_>) -> anyhow::Result<String> {
    svg::inside((WIDTH, HEIGHT), |area| draw(area, trace, panel))
}

/// What a run came to, in a line.
pub(super) fn heading(panel: Panel<'_>) -> String {
    match panel {
        Panel::Run(run) => {
            let [_, up_ratio, mre] = cells(run);
            format!("{} · tracked {up_ratio} of the time · mean error {mre}", run.title())
        }
        Panel::Events => "events in an interval".to_owned(),
    }
}

fn draw_alone<'a>(
    area: &Area<'a>,
    trace: Trace<'_>,
    panels: &[Panel<'_>],
) -> Result<(), Failure<'a>> {
    area.fill(&WHITE)?;
    let title = ("sans-serif", TITLE_FONT_SIZE).into_font().color(&BLACK);
    area.draw_text("Intermittent tracking", &title, (LEFT as i32, 8))?;
    draw_legend(area)?;
    let (_, mut rest) = area.split_vertically(HEADING * 2);
    let letters = ("sans-serif", FONT_SIZE).into_font().color(&BLACK);
    for panel in panels {
        let (one, others) = rest.split_vertically(HEADING + HEIGHT);
        let (above, below) = one.split_vertically(HEADING);
        above.draw_text(&heading(*panel), &letters, (LEFT as i32, 8))?;
        draw(&below, trace, *panel)?;
        rest = others;
    }
    Ok(())
}

fn draw_legend<'a>(area: &Area<'a>) -> Result<(), Failure<'a>> {
    const ENTRY_WIDTH: i32 = 220;
    let letters = ("sans-serif", FONT_SIZE).into_font().color(&BLACK);
    for (index, (key, text)) in KEYS.into_iter().enumerate() {
        let x = LEFT as i32 + index as i32 * ENTRY_WIDTH;
        let y = HEADING as i32;
        match key {
            "tracked" => {
                let corners = [(x, y + 4), (x + 20, y + 18)];
                area.draw(&Rectangle::new(corners, TRACKED.mix(OPACITY).filled()))?;
            }
            key => {
                let colour = if key == "wss" { WSS } else { ESTIMATE };
                let line = [(x, y + 11), (x + 20, y + 11)];
                area.draw(&PathElement::new(line, colour.stroke_width(3)))?;
            }
        }
        area.draw_text(text, &letters, (x + 26, y + 3))?;
    }
    Ok(())
}

fn draw<'a>(area: &Area<'a>, trace: Trace<'_>, panel: Panel<'_>) -> Result<(), Failure<'a>> {
    let interval = trace.interval.as_secs_f64();
    let unit = TimeUnit::of(interval * trace.series.len() as f64);
    let time = Time { unit: unit.name, interval: interval / unit.seconds };
    let events = || trace.series.iter().map(|it| it.events);
    let sizes = || trace.series.iter().map(|it| it.wss.get());
    let greatest = match panel {
        Panel::Run(run) => {
            sizes().chain(run.replay.intervals.iter().map(|it| it.estimate.get())).max()
        }
        Panel::Events => events().max(),
    };
    let bytes = matches!(panel, Panel::Run(_)).then_some(1);
    let axis = Axis::memory(Scale::Linear, 1, greatest.unwrap_or(1), bytes);
    let mut chart = ChartBuilder::on(area)
        .margin_right(RIGHT)
        .margin_top(4)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..time.of(trace.series.len()), Places::of(&axis))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(10)
        .x_label_formatter(&|moment| format!("{} {}", figures::axis(*moment), time.unit))
        .y_label_formatter(&|place| label(&axis, *place))
        .label_style(("sans-serif", FONT_SIZE).into_font().color(&INK))
        .draw()?;
    let line = |values: Vec<u64>| {
        let corners = steps(&values).into_iter();
        corners.map(|(index, value)| (time.of(index), axis.place(value as f64))).collect::<Vec<_>>()
    };
    match panel {
        Panel::Run(run) => {
            let tracked = run.replay.intervals.iter().map(|it| it.is_tracked);
            let shades = stretches(&tracked.collect::<Vec<_>>()).into_iter().map(|(from, to)| {
                let corners = [(time.of(from), 0.0), (time.of(to), 1.0)];
                Rectangle::new(corners, TRACKED.mix(OPACITY).filled())
            });
            chart.draw_series(shades)?;
            let estimates = run.replay.intervals.iter().map(|it| it.estimate.get());
            let (recorded, estimated) = (line(sizes().collect()), line(estimates.collect()));
            chart.draw_series(LineSeries::new(recorded, WSS.stroke_width(3)))?;
            chart.draw_series(LineSeries::new(estimated, ESTIMATE.stroke_width(2)))?;
        }
        Panel::Events => {
            let events = line(events().collect());
            chart.draw_series(LineSeries::new(events, EVENTS.stroke_width(1)))?;
        }
    }
    Ok(())
}

/// The axis of time, in the unit that suits the whole series.
struct Time {
    unit: &'static str,
    /// Of that unit.
    interval: f64,
}

impl Time {
    /// When the interval at `index` begins.
    fn of(&self, index: usize) -> f64 {
        index as f64 * self.interval
    }
}

/// Values that hold for an interval each, as the corners of a line.
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

/// From where to where something is so.
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

    use ballast_estimate::phase::{IntermittentSettings, Recorded};
    use ballast_model::Bytes;

    use super::*;
    use crate::imt::runs::runs;

    fn drawn(series: &[Recorded], interval: Duration) -> String {
        let runs = runs(series, IntermittentSettings::default());
        alone(Trace { name: "x", series, interval }, &runs).unwrap()
    }

    #[test]
    fn every_threshold_has_its_plot_with_both_lines_and_what_was_tracked() {
        let recorded = |i: u64| Recorded { wss: Bytes::mib(100 + i / 30 * 50), events: 1000 };
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
            vec![Recorded { wss: Bytes::new(wss), events }; count]
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
    fn what_is_tracked_is_one_stretch_as_long_as_it_lasts() {
        assert_eq!(stretches(&[true, true, false, true]), [(0, 2), (3, 4)]);
        let long: Vec<bool> = (0..2000).map(|i| i == 777).collect();
        assert_eq!(stretches(&long), [(776, 778)]);
    }
}
