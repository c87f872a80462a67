//! One plot of the host over time, as SVG.
//!
//! Idea: three polylines, grid lines, and labels on the axes; the page's style has the colours.
//! Decision 20 says why the program on hosts does without a plotting library.
//! Limits: at most as many points as an advice has.

use std::fmt::Write;

use ballast_model::Bytes;
use ballast_replay::CoursePoint;

use crate::text::moment;

/// Width and height of the plotted area, and the margins for labels, in the units of the SVG.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 24.0;
/// Grid lines, not counting the bottom one.
const LINES: u32 = 4;

/// A line: its class in the page's style, its name, and what it shows.
type PlotLine = (&'static str, &'static str, fn(&CoursePoint) -> Bytes);

/// The lines, from the back to the front.
pub(crate) const PLOT_LINES: [PlotLine; 3] = [
    ("held", "held", |point| point.held),
    ("imagined", "held if balanced", |point| point.imagined),
    ("needed", "needed", |point| point.needed),
];

/// The plot of `course`; empty if that spans no time.
pub(crate) fn svg(course: &[CoursePoint]) -> String {
    let (Some(first), Some(last)) = (course.first(), course.last()) else { return String::new() };
    if first.at_ms == last.at_ms {
        return String::new();
    }
    let all = course.iter().flat_map(|point| PLOT_LINES.iter().map(|(_, _, of)| of(point)));
    let top = nice(all.max().unwrap_or_default());
    let x = |at_ms: i64| {
        LEFT + WIDTH * (at_ms - first.at_ms) as f64 / (last.at_ms - first.at_ms) as f64
    };
    let y = |size: Bytes| TOP + HEIGHT * (1.0 - size.get() as f64 / top.get().max(1) as f64);
    let mut out = format!(
        "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\"><title>Memory of all guests over time\
         </title>\n",
        LEFT + WIDTH + 12.0,
        TOP + HEIGHT + BOTTOM
    );
    for number in 0..=LINES {
        let size = top.fraction(number.into(), LINES.into());
        let at = y(size);
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT:.0}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{size}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (class, _, of) in PLOT_LINES {
        let points: Vec<String> = course
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.at_ms), y(of(point))))
            .collect();
        let points = points.join(" ");
        let _ = writeln!(out, "<polyline class=\"{class}\" points=\"{points}\"/>");
    }
    for (at_ms, anchor) in [(first.at_ms, "start"), (last.at_ms, "end")] {
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
            x(at_ms),
            TOP + HEIGHT + BOTTOM - 6.0,
            moment(at_ms)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The top of the axis: the least power of two, of at least 64 MiB, that is not below `size`, so
/// that labels are easy to read.
fn nice(size: Bytes) -> Bytes {
    let least = Bytes::mib(64);
    Bytes::new(size.max(least).get().checked_next_power_of_two().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_ms: i64, mib: u64) -> CoursePoint {
        CoursePoint { at_ms, held: Bytes::mib(mib), ..CoursePoint::default() }
    }

    #[test]
    fn lines_lie_within_the_frame() {
        let course: Vec<CoursePoint> =
            (0..50).map(|at| point(at * 1000, 100 * at.unsigned_abs())).collect();
        let plot = svg(&course);
        assert_eq!(plot.matches("<polyline").count(), PLOT_LINES.len());
        let points = plot.split("points=\"").skip(1).filter_map(|it| it.split('"').next());
        for pair in points.flat_map(|points| points.split(' ')) {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=LEFT + WIDTH).contains(&x), "{pair}");
            assert!((TOP..=TOP + HEIGHT).contains(&y), "{pair}");
        }
    }

    #[test]
    fn one_moment_is_no_plot() {
        assert_eq!(svg(&[]), "");
        assert_eq!(svg(&[point(5, 1), point(5, 2)]), "");
    }

    #[test]
    fn axes_end_above_all_lines() {
        for (mib, expected) in [(0, 64), (64, 64), (65, 128), (5000, 8192)] {
            assert_eq!(nice(Bytes::mib(mib)), Bytes::mib(expected), "{mib}");
        }
        assert_eq!(nice(Bytes::MAX), Bytes::MAX);
    }
}
