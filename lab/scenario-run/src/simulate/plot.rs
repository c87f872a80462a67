//! Allocations over time under one policy.
//!
//! Idea: one line per guest, in colours that the page's style sheet lightens for dark pages.
//! Limits: only the guests whose allocations changed most are drawn, so that the lines can be told
//! apart.

use ballast_chart::{Axis, Chart, Frame, PALETTE, colour_name};
use ballast_model::Bytes;
use ballast_sim::{GuestReport, PolicyReport};

/// The greatest number of guests drawn.
pub(super) const GUESTS_MAX: usize = PALETTE.len();
const FRAME: Frame = Frame { size: (640, 220), left: 62, right: 14, top: 8, letters: 12 };

/// A guest that is drawn, and its colour as a style sheet writes it.
pub(super) struct DrawnGuest<'a> {
    pub(super) guest: &'a GuestReport,
    pub(super) colour: String,
}

/// The guests whose allocations changed most, in the order of their names.
pub(super) fn drawn(report: &PolicyReport) -> Vec<DrawnGuest<'_>> {
    let mut guests: Vec<&GuestReport> = report.guests.iter().collect();
    guests.sort_by_key(|guest| std::cmp::Reverse(guest.moved));
    guests.truncate(GUESTS_MAX);
    guests.sort_by(|a, b| a.id.cmp(&b.id));
    guests
        .into_iter()
        .zip(PALETTE)
        .map(|(guest, rgb)| DrawnGuest { guest, colour: colour_name(rgb) })
        .collect()
}

/// The plot of the guests' allocations; the axis ends at `highest`.
pub(super) fn chart(drawn: &[DrawnGuest<'_>], highest: Bytes) -> Chart {
    let at = |point: &ballast_sim::Point| point.at.as_secs_f64();
    let ends = drawn.iter().filter_map(|it| it.guest.series.last()).map(at);
    let time = Axis::time(ends.fold(1.0, f64::max));
    let mut chart = Chart::new(FRAME, time, Axis::bytes(highest.max(Bytes::mib(1)).get()));
    for (one, colour) in drawn.iter().zip(PALETTE) {
        let points = one.guest.series.iter();
        chart.line(points.map(|point| (at(point), point.allocation.get() as f64)), colour, 2);
    }
    chart
}
