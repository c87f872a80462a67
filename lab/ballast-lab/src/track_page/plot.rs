//! A guest's figures over time, and its last miss curve.
//!
//! Idea: lines over time; the background is shaded where the guest was watched.
//! Limits: of a guest tracked for more than [`COLUMNS_MAX`] intervals, only every nth interval is
//! drawn.

use ballast_chart::{Axis, Chart, Colour, Frame, PALETTE, rgb};
use ballast_daemon::track::{Row, WatchedInterval};
use ballast_model::MissCurve;

/// The shade of watched intervals; the page's style sheet has the same colour.
const WATCHED: Colour = rgb(0x2a, 0x8a, 0x5f);
const OPACITY: f64 = 0.12;
/// The greatest number of points of a line; a plot has hardly more columns.
const COLUMNS_MAX: usize = 1000;
const FRAME: Frame = Frame { size: (900, 190), left: 72, right: 36, top: 4, letters: 15 };

/// A line: its name, its colour, and its value in an interval.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) colour: Colour,
    of: fn(&Row) -> Option<f64>,
}

/// A plot over time.
pub(super) struct Panel {
    pub(super) heading: &'static str,
    pub(super) lines: &'static [Line],
    is_memory: bool,
}

/// All plots over time, in their order.
pub(super) const PANELS: [Panel; 5] = [
    Panel {
        heading: "memory",
        lines: &[
            Line {
                name: "working set",
                colour: PALETTE[0],
                of: |row| Some(row.known?.get() as f64),
            },
            Line {
                name: "touched in the interval",
                colour: PALETTE[1],
                of: |row| Some(seen(row)?.touched.get() as f64),
            },
            Line {
                name: "half of the touches fit",
                colour: PALETTE[5],
                of: |row| Some(seen(row)?.half_miss?.get() as f64),
            },
        ],
        is_memory: true,
    },
    Panel {
        heading: "cost, in per cent of one core",
        lines: &[Line {
            name: "cost",
            colour: PALETTE[3],
            of: |row| Some(row.cost_share() * 100.0),
        }],
        is_memory: false,
    },
    Panel {
        heading: "touches seen in an interval",
        lines: &[Line {
            name: "touches",
            colour: PALETTE[4],
            of: |row| Some(seen(row)?.touches as f64),
        }],
        is_memory: false,
    },
    Panel {
        heading: "events that tell a new phase",
        lines: &[Line {
            name: "events",
            colour: PALETTE[2],
            of: |row| row.events.map(|events| events as f64),
        }],
        is_memory: false,
    },
    Panel {
        heading: "hot set, in watched pieces",
        lines: &[Line {
            name: "hot set",
            colour: PALETTE[6],
            of: |row| Some(seen(row)?.hot_granules? as f64),
        }],
        is_memory: false,
    },
];

fn seen(row: &Row) -> Option<&WatchedInterval> {
    row.seen.as_ref()
}

impl Panel {
    /// Whether there is any value to draw.
    pub(super) fn has_any(&self, rows: &[Row]) -> bool {
        self.lines.iter().any(|line| rows.iter().any(|row| (line.of)(row).is_some()))
    }

    /// Draws the plot.
    pub(super) fn chart(&self, rows: &[Row]) -> Chart {
        let thinned: Vec<&Row> =
            rows.iter().step_by(rows.len().div_ceil(COLUMNS_MAX).max(1)).collect();
        let values =
            |line: &Line| thinned.iter().map(|row| (at(row), (line.of)(row))).collect::<Vec<_>>();
        let all = self.lines.iter().flat_map(values).filter_map(|(_, value)| value);
        let greatest = all.fold(1.0, f64::max);
        let up = match self.is_memory {
            true => Axis::bytes(greatest as u64),
            false => Axis::counts(greatest),
        };
        let mut chart = Chart::new(FRAME, Axis::time(rows.last().map_or(1.0, at)), up);
        for stretch in watched(&thinned) {
            chart.shade(stretch, WATCHED, OPACITY);
        }
        for line in self.lines {
            // The line is interrupted where a value is missing.
            for part in values(line).split(|(_, value)| value.is_none()) {
                let points = part.iter().filter_map(|(at, value)| Some((*at, (*value)?)));
                chart.line(points, line.colour, 2);
            }
        }
        chart
    }
}

/// Draws the last miss curve: misses in an interval at every size.
pub(super) fn curve(curve: &MissCurve) -> Chart {
    let points = curve.points();
    let step = curve.step().get() as f64;
    let size = step * (points.len().max(2) - 1) as f64;
    let most = points.first().copied().unwrap_or(1).max(1);
    let mut chart = Chart::new(FRAME, Axis::bytes(size as u64), Axis::counts(most as f64));
    let stride = points.len().div_ceil(COLUMNS_MAX).max(1);
    let points = points.iter().enumerate().step_by(stride);
    chart.line(points.map(|(k, misses)| (k as f64 * step, *misses as f64)), PALETTE[0], 2);
    chart.with_columns()
}

/// When the guest was watched: (from, to) in seconds.
fn watched(rows: &[&Row]) -> Vec<(f64, f64)> {
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    let mut before = 0.0;
    let mut was_on = false;
    for row in rows {
        let at = at(row);
        if row.seen.is_some() {
            match stretches.last_mut() {
                Some(last) if was_on => last.1 = at,
                _ => stretches.push((before, at)),
            }
        }
        (before, was_on) = (at, row.seen.is_some());
    }
    stretches
}

/// The end of an interval, in seconds.
fn at(row: &Row) -> f64 {
    row.at.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use ballast_daemon::track::fixture::row;

    #[test]
    fn lines_have_gaps_and_watched_stretches_are_shaded() {
        let rows: Vec<Row> =
            (1..=6).map(|second| row(second, !(3..=4).contains(&second))).collect();
        let references: Vec<&Row> = rows.iter().collect();
        assert_eq!(watched(&references), [(0.0, 2.0), (4.0, 6.0)]);
        let svg = PANELS[0].chart(&rows).svg().unwrap();
        let lines = |colour: &str| svg.matches(&format!("stroke=\"{colour}\"")).count();
        assert_eq!((lines("#1F4E8C"), lines("#E07B1A")), (1, 2));
        assert!(svg.contains("MiB"), "{svg}");
        assert!(PANELS[0].has_any(&rows) && !PANELS[4].has_any(&rows));
    }

    #[test]
    fn no_rows_and_many_rows_can_be_drawn() {
        assert!(PANELS[1].chart(&[]).svg().is_ok());
        let many: Vec<Row> = (0..5000).map(|second| row(second, true)).collect();
        assert!(PANELS[0].chart(&many).svg().unwrap().len() < 200_000);
        let step = ballast_model::Bytes::mib(1);
        let flat = MissCurve::new(step, Duration::from_secs(1), vec![0]).unwrap();
        assert!(curve(&flat).svg().is_ok());
    }
}
