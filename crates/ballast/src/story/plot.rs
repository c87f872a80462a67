//! One plot as SVG.
//!
//! Idea: lines and areas are drawn in fixed colours that the page's style sheet recognises and
//! replaces for light, dark and print; without a style sheet they are right for a white page.
//! Limits: time on the horizontal axis, both axes from zero.

use anyhow::Context;
use plotters::prelude::*;

use super::figures;
use super::series::{Kind, Panel, Series};
use crate::output::svg::{self, Area, Failure, GRID, INK};

/// Width of every plot, in its own units.
pub(super) const WIDTH: u32 = 600;
/// Room at the left, for the figures of the axis.
pub(super) const LEFT: u32 = 58;
/// Room at the right.
pub(super) const RIGHT: u32 = 14;
/// Room above.
const TOP: u32 = 8;
/// Room below, for the figures of the axis.
const BOTTOM: u32 = 24;
const FONT_SIZE: u32 = 12;

/// The colour of a series; the style sheet knows these too.
const fn colour(kind: Kind) -> RGBColor {
    match kind {
        Kind::Used => RGBColor(0x6b, 0x9b, 0xd1),
        Kind::Allocation => RGBColor(0x1f, 0x4e, 0x8c),
        Kind::Target => RGBColor(0xe0, 0x7b, 0x1a),
        Kind::Wanted => RGBColor(0x8a, 0x8f, 0x98),
        Kind::Touched => RGBColor(0xc2, 0x3b, 0x8f),
        Kind::Swap => RGBColor(0xb3, 0x3a, 0x3a),
        Kind::Throughput => RGBColor(0x2a, 0x8a, 0x5f),
        Kind::Faults => RGBColor(0x8e, 0x4a, 0xa8),
    }
}

/// The colour of a series as the style sheet writes it.
#[cfg(test)]
pub(super) fn colour_name(kind: Kind) -> String {
    svg::colour_name(colour(kind))
}

/// Draws `series` with axes to `x_end` seconds and `y_end`.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(super) fn draw(
    panel: Panel,
    series: &[Series],
    x_end: f64,
    y_end: f64,
) -> anyhow::Result<String> {
    let height = if panel == Panel::Memory { 250 } else { 130 };
    svg::inside((WIDTH, height), |area| draw_on(area, panel, series, x_end, y_end))
        .with_context(|| format!("the plot {:?}", panel.title()))
}

fn draw_on<'a>(
    area: &Area<'a>,
    panel: Panel,
    series: &[Series],
    x_end: f64,
    y_end: f64,
) -> Result<(), Failure<'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
    let letters = ("sans-serif", FONT_SIZE).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(10)
        .y_labels(if panel == Panel::Memory { 7 } else { 4 })
        .x_label_formatter(&|seconds| format!("{seconds:.0} s"))
        .y_label_formatter(&|value| figures::axis(*value))
        .label_style(letters)
        .draw()?;
    for one in series {
        let colour = colour(one.kind);
        let points = one.points.iter().copied();
        match one.kind {
            Kind::Used | Kind::Swap | Kind::Throughput | Kind::Faults => {
                let filled = AreaSeries::new(points, 0.0, colour.mix(0.25));
                chart.draw_series(filled.border_style(colour.stroke_width(1)))?;
            }
            Kind::Target => {
                chart.draw_series(LineSeries::new(steps(&one.points), colour.stroke_width(2)))?;
            }
            Kind::Allocation => {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            }
            Kind::Wanted | Kind::Touched => {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(1)))?;
            }
        }
    }
    Ok(())
}

/// Points by which a value holds until the next one.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut steps = Vec::with_capacity(points.len() * 2);
    for &(at, value) in points {
        if let Some(&(_, before)) = steps.last()
            && before != value
        {
            steps.push((at, before));
        }
        steps.push((at, value));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_shows_its_series_in_their_colours() {
        let series = [Kind::Used, Kind::Wanted, Kind::Target, Kind::Allocation]
            .map(|kind| Series { kind, points: vec![(0.0, 1.0), (5.0, 3.0), (9.0, 2.0)] });
        let svg = draw(Panel::Memory, &series, 10.0, 4.0).unwrap();
        for one in &series {
            assert!(svg.contains(&colour_name(one.kind)), "{:?}", one.kind);
        }
        assert!(svg.starts_with("<svg viewBox="), "{}", &svg[..80]);
        assert!(!svg.contains("http"), "no address of any kind");
    }

    #[test]
    fn steps_hold_their_value_until_the_next() {
        let held = steps(&[(0.0, 1.0), (1.0, 1.0), (2.0, 5.0)]);
        assert_eq!(held, [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 5.0)]);
    }
}
