//! The memory that a guest held over time, as recorded and under each policy.
//!
//! Idea: demand is drawn as an area, so a line within the area shows missing memory.

use ballast_chart::{Axis, Chart, Colour, Frame, PALETTE, rgb};
use ballast_model::Bytes;

use super::series::GuestSeries;

const FRAME: Frame = Frame { size: (640, 220), left: 62, right: 14, top: 8, letters: 12 };
/// Colours of the demand and of the memory held as recorded; they are in no style sheet, and not in
/// [`PALETTE`].
pub(super) const DEMAND: Colour = rgb(0xb8, 0xbe, 0xc6);
pub(super) const RECORDED: Colour = rgb(0x22, 0x22, 0x22);

/// The plot of one guest.
pub(super) fn chart(series: &GuestSeries) -> Chart {
    let points = &series.points;
    let at = |ms: i64| ms as f64 / 1000.0;
    let bytes = |bytes: Bytes| bytes.get() as f64;
    let sizes = points.iter().flat_map(|point| {
        [point.demand, point.recorded].into_iter().chain(point.imagined.iter().copied())
    });
    let highest = sizes.max().unwrap_or_default().max(Bytes::mib(1));
    let end_s = points.last().map_or(0.0, |point| at(point.at_ms)).max(1.0);
    let mut chart = Chart::new(FRAME, Axis::time(end_s), Axis::bytes(highest.get()));
    chart.area(points.iter().map(|it| (at(it.at_ms), bytes(it.demand))), DEMAND, 0.5, 0);
    chart.line(points.iter().map(|it| (at(it.at_ms), bytes(it.recorded))), RECORDED, 2);
    for (policy, colour) in PALETTE.into_iter().enumerate() {
        let imagined =
            points.iter().filter_map(|it| Some((at(it.at_ms), bytes(*it.imagined.get(policy)?))));
        chart.line(imagined, colour, 2);
    }
    chart
}
