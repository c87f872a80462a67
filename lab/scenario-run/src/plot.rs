//! One plot of a guest under a policy.
//!
//! Idea: lines and areas have fixed colours. The page's style sheet recognises them and replaces
//! them for light, dark and print; without a style sheet they suit a white page.

use ballast_chart::{Axis, Chart, Colour, Frame, rgb};

use super::series::{Kind, Panel, Series};

/// The frame of the memory plot; the other plots are lower.
pub(super) const FRAME: Frame =
    Frame { size: (600, 250), left: 58, right: 14, top: 8, letters: 12 };
const LOW: Frame = Frame { size: (600, 130), ..FRAME };

/// The colour of a series; the style sheet has the same list.
const fn colour(kind: Kind) -> Colour {
    match kind {
        Kind::Used => rgb(0x6b, 0x9b, 0xd1),
        Kind::Allocation => rgb(0x1f, 0x4e, 0x8c),
        Kind::Target => rgb(0xe0, 0x7b, 0x1a),
        Kind::Wanted => rgb(0x8a, 0x8f, 0x98),
        Kind::Touched => rgb(0xc2, 0x3b, 0x8f),
        Kind::Swap => rgb(0xb3, 0x3a, 0x3a),
        Kind::Throughput => rgb(0x2a, 0x8a, 0x5f),
        Kind::Faults => rgb(0x8e, 0x4a, 0xa8),
    }
}

/// The plot of `series` up to `x_end` seconds and at least `greatest`.
pub(super) fn chart(panel: Panel, series: &[Series], x_end: f64, greatest: f64) -> Chart {
    let frame = if panel == Panel::Memory { FRAME } else { LOW };
    let mut chart = Chart::new(frame, Axis::time(x_end), Axis::counts(greatest));
    for one in series {
        let colour = colour(one.kind);
        let points = one.points.iter().copied();
        match one.kind {
            Kind::Used | Kind::Swap | Kind::Throughput | Kind::Faults => {
                chart.area(points, colour, 0.25, 1);
            }
            Kind::Target => chart.line(steps(&one.points), colour, 2),
            Kind::Allocation => chart.line(points, colour, 2),
            Kind::Wanted | Kind::Touched => chart.line(points, colour, 1),
        }
    }
    chart
}

/// The corners of a line whose values hold until the next one.
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
    use ballast_chart::colour_name;

    use super::*;

    #[test]
    fn a_plot_shows_its_series_in_their_colours() {
        let series = [Kind::Used, Kind::Wanted, Kind::Target, Kind::Allocation]
            .map(|kind| Series { kind, points: vec![(0.0, 1.0), (5.0, 3.0), (9.0, 2.0)] });
        let svg = chart(Panel::Memory, &series, 10.0, 4.0).svg().unwrap();
        for one in &series {
            assert!(svg.contains(&colour_name(colour(one.kind))), "{:?}", one.kind);
        }
    }

    #[test]
    fn steps_hold_their_value_until_the_next() {
        let held = steps(&[(0.0, 1.0), (1.0, 1.0), (2.0, 5.0)]);
        assert_eq!(held, [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 5.0)]);
    }
}
