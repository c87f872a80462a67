//! What a guest held over time, recorded and under each policy, as SVG.
//!
//! Idea: demand is an area, so that a line that dips into it is memory lacking.

use ballast_model::Bytes;
use plotters::prelude::*;

use super::series::GuestSeries;
use crate::figures;
use crate::output::axis::TimeUnit;
use crate::output::svg::{self, Area, COLOURS, Failure, GRID, INK};

const SIZE: (u32, u32) = (640, 220);
/// What was demanded, and what was held; a style sheet knows neither, and none is of [`COLOURS`].
pub(super) const DEMAND: RGBColor = RGBColor(0xb8, 0xbe, 0xc6);
pub(super) const RECORDED: RGBColor = RGBColor(0x22, 0x22, 0x22);

/// Draws one guest.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(super) fn draw(series: &GuestSeries) -> anyhow::Result<String> {
    svg::inside(SIZE, |area| draw_on(area, series))
}

fn draw_on<'a>(area: &Area<'a>, series: &GuestSeries) -> Result<(), Failure<'a>> {
    let points = &series.points;
    let end_s = points.last().map_or(0.0, |point| point.at_ms as f64 / 1000.0).max(1.0);
    let unit = TimeUnit::of(end_s);
    let at = |ms: i64| ms as f64 / 1000.0 / unit.seconds;
    let mib = |bytes: Bytes| bytes.as_mib_f64();
    let sizes = points.iter().flat_map(|point| {
        [point.demand, point.recorded].into_iter().chain(point.imagined.iter().copied())
    });
    let highest = sizes.max().unwrap_or_default();
    let mut chart = ChartBuilder::on(area)
        .margin_top(8)
        .margin_right(14)
        .x_label_area_size(24)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..end_s / unit.seconds, 0.0..mib(highest).max(1.0) * 1.04)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(10)
        .y_labels(5)
        .x_label_formatter(&|moment| format!("{} {}", figures::axis(*moment), unit.name))
        .y_label_formatter(&|mib| figures::size(mib * 1_048_576.0))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .draw()?;
    let demand = points.iter().map(|point| (at(point.at_ms), mib(point.demand)));
    chart.draw_series(AreaSeries::new(demand, 0.0, DEMAND.mix(0.5)))?;
    let recorded = points.iter().map(|point| (at(point.at_ms), mib(point.recorded)));
    chart.draw_series(LineSeries::new(recorded, RECORDED.stroke_width(2)))?;
    for (policy, colour) in COLOURS.iter().enumerate() {
        let line: Vec<_> = points
            .iter()
            .filter_map(|point| Some((at(point.at_ms), mib(*point.imagined.get(policy)?))))
            .collect();
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
    }
    Ok(())
}
