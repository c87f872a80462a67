//! Allocations over time under one policy, as SVG.
//!
//! Idea: a line per guest, in colours that the page's style sheet lightens for dark pages.
//! Limits: the guests that moved most, so that lines can be told apart.

use ballast_model::Bytes;
use ballast_sim::{GuestReport, PolicyReport};
use plotters::prelude::*;

use crate::figures;
use crate::output::svg::{self, Area, COLOURS, Failure, GRID, INK};

/// Guests drawn.
pub(super) const GUESTS_MAX: usize = COLOURS.len();
const SIZE: (u32, u32) = (640, 220);
/// A guest that is drawn, and its colour as a style sheet writes it.
pub(super) struct Drawn<'a> {
    pub(super) guest: &'a GuestReport,
    pub(super) colour: String,
}

/// The guests that moved most, by name.
pub(super) fn drawn(report: &PolicyReport) -> Vec<Drawn<'_>> {
    let mut guests: Vec<&GuestReport> = report.guests.iter().collect();
    guests.sort_by_key(|guest| std::cmp::Reverse(guest.moved));
    guests.truncate(GUESTS_MAX);
    guests.sort_by(|a, b| a.id.cmp(&b.id));
    guests
        .into_iter()
        .zip(COLOURS)
        .map(|(guest, rgb)| Drawn { guest, colour: svg::colour_name(rgb) })
        .collect()
}

/// Draws them to `y_end`.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(super) fn draw(drawn: &[Drawn<'_>], y_end: Bytes) -> anyhow::Result<String> {
    svg::inside(SIZE, |area| draw_on(area, drawn, y_end))
}

fn draw_on<'a>(area: &Area<'a>, drawn: &[Drawn<'_>], y_end: Bytes) -> Result<(), Failure<'a>> {
    let at = |point: &ballast_sim::Point| point.at.as_secs_f64();
    let ends = drawn.iter().filter_map(|it| it.guest.series.last()).map(at);
    let x_end = ends.fold(1.0, f64::max);
    let mib = |bytes: Bytes| bytes.as_mib_f64();
    let mut chart = ChartBuilder::on(area)
        .margin_top(8)
        .margin_right(14)
        .x_label_area_size(24)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..x_end, 0.0..mib(y_end).max(1.0))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(10)
        .y_labels(5)
        .x_label_formatter(&|seconds| format!("{} s", figures::axis(*seconds)))
        .y_label_formatter(&|mib| figures::size(mib * 1_048_576.0))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .draw()?;
    for (one, colour) in drawn.iter().zip(COLOURS) {
        let points = one.guest.series.iter().map(|point| (at(point), mib(point.allocation)));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    }
    Ok(())
}
