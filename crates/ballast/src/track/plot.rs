//! What was seen of a guest, over time, and its last miss curve.
//!
//! Idea: one kind of plot, lines over an axis across and one up; the ground is shaded where the guest was
//! watched.
//! Limits: a guest followed for longer than [`COLUMNS_MAX`] intervals is drawn by every so many of them.

use ballast_model::MissCurve;
use plotters::prelude::*;

use super::row::{Row, Seen};
use crate::figures;
use crate::output::axis::{Axis, Scale};
use crate::output::svg::{self, Area, COLOURS, FONT_SIZE, Failure, GRID, INK, Places, label};

/// Shades where it was watched; the style sheet of the page knows it.
const WATCHED: RGBColor = RGBColor(0x2a, 0x8a, 0x5f);
const OPACITY: f64 = 0.12;
/// Most points of a line; a plot has hardly more columns.
const COLUMNS_MAX: usize = 1000;
const WIDTH: u32 = 900;
const HEIGHT: u32 = 190;
const LEFT: u32 = 72;
/// Half of the last figure of the axis across stands beyond its end.
const RIGHT: u32 = 36;
const BOTTOM: u32 = 24;

/// A line: what it is called, its colour, and what it is in an interval.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) colour: RGBColor,
    of: fn(&Row) -> Option<f64>,
}

/// A plot over time.
pub(super) struct Panel {
    pub(super) heading: &'static str,
    pub(super) lines: &'static [Line],
    is_memory: bool,
}

/// Every plot over time, in order.
pub(super) const PANELS: [Panel; 5] = [
    Panel {
        heading: "memory",
        lines: &[
            Line {
                name: "working set",
                colour: COLOURS[0],
                of: |row| Some(row.known?.get() as f64),
            },
            Line {
                name: "touched in the interval",
                colour: COLOURS[1],
                of: |row| Some(seen(row)?.touched.get() as f64),
            },
            Line {
                name: "half of the touches fit",
                colour: COLOURS[5],
                of: |row| Some(seen(row)?.half_miss?.get() as f64),
            },
        ],
        is_memory: true,
    },
    Panel {
        heading: "cost, in per cent of one core",
        lines: &[Line {
            name: "cost",
            colour: COLOURS[3],
            of: |row| Some(row.cost_share() * 100.0),
        }],
        is_memory: false,
    },
    Panel {
        heading: "touches seen in an interval",
        lines: &[Line {
            name: "touches",
            colour: COLOURS[4],
            of: |row| Some(seen(row)?.touches as f64),
        }],
        is_memory: false,
    },
    Panel {
        heading: "events that tell a new phase",
        lines: &[Line {
            name: "events",
            colour: COLOURS[2],
            of: |row| row.events.map(|events| events as f64),
        }],
        is_memory: false,
    },
    Panel {
        heading: "hot set, in watched pieces",
        lines: &[Line {
            name: "hot set",
            colour: COLOURS[6],
            of: |row| Some(seen(row)?.hot_granules? as f64),
        }],
        is_memory: false,
    },
];

fn seen(row: &Row) -> Option<&Seen> {
    row.seen.as_ref()
}

impl Panel {
    /// Whether there is anything to draw.
    pub(super) fn has_any(&self, rows: &[Row]) -> bool {
        self.lines.iter().any(|line| rows.iter().any(|row| (line.of)(row).is_some()))
    }

    /// The plot, for a page.
    ///
    /// # Errors
    /// When the drawing library refuses, which it has no reason to.
    pub(super) fn draw(&self, rows: &[Row]) -> anyhow::Result<String> {
        svg::inside((WIDTH, HEIGHT), |area| self.draw_on(area, rows))
    }

    fn draw_on<'a>(&self, area: &Area<'a>, rows: &[Row]) -> Result<(), Failure<'a>> {
        let time = Time::of(rows);
        let thinned: Vec<&Row> =
            rows.iter().step_by(rows.len().div_ceil(COLUMNS_MAX).max(1)).collect();
        let values = |line: &Line| {
            thinned.iter().map(|row| (time.at(row), (line.of)(row))).collect::<Vec<_>>()
        };
        let all = self.lines.iter().flat_map(values).filter_map(|(_, value)| value);
        let greatest = all.fold(1.0, f64::max).ceil() as u64;
        let axis = Axis::memory(Scale::Linear, 1, greatest, self.is_memory.then_some(1));
        let end = rows.last().map_or(1.0, |row| time.at(row));
        let mut chart = ChartBuilder::on(area)
            .margin_right(RIGHT)
            .margin_top(4)
            .x_label_area_size(BOTTOM)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.0..end.max(f64::MIN_POSITIVE), Places::of(&axis))?;
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
        let shades = watched(&thinned, &time).into_iter().map(|(from, to)| {
            Rectangle::new([(from, 0.0), (to, 1.0)], WATCHED.mix(OPACITY).filled())
        });
        chart.draw_series(shades)?;
        for line in self.lines {
            let points = values(line);
            // A line ends where the figure was not seen.
            for part in points.split(|(_, value)| value.is_none()) {
                let places =
                    part.iter().filter_map(|(at, value)| Some((*at, axis.place((*value)?))));
                chart.draw_series(LineSeries::new(places, line.colour.stroke_width(2)))?;
            }
        }
        Ok(())
    }
}

/// The last curve: misses in an interval at every size.
///
/// # Errors
/// When the drawing library refuses, which it has no reason to.
pub(super) fn curve(curve: &MissCurve) -> anyhow::Result<String> {
    svg::inside((WIDTH, HEIGHT), |area| {
        let points = curve.points();
        let step = curve.step().get() as f64;
        let size = step * (points.len().max(2) - 1) as f64;
        let across = Axis::memory(Scale::Linear, 1, size as u64, Some(1));
        let up = Axis::memory(Scale::Linear, 1, points.first().copied().unwrap_or(1), None);
        let mut chart = ChartBuilder::on(area)
            .margin_right(RIGHT)
            .margin_top(4)
            .x_label_area_size(BOTTOM)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(Places::of(&across), Places::of(&up))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_label_formatter(&|place| label(&across, *place))
            .y_label_formatter(&|place| label(&up, *place))
            .label_style(("sans-serif", FONT_SIZE).into_font().color(&INK))
            .draw()?;
        let stride = points.len().div_ceil(COLUMNS_MAX).max(1);
        let places = points
            .iter()
            .enumerate()
            .step_by(stride)
            .map(|(k, misses)| (across.place(k as f64 * step), up.place(*misses as f64)));
        chart.draw_series(LineSeries::new(places, COLOURS[0].stroke_width(2)))?;
        Ok(())
    })
}

/// From when to when the guest was watched.
fn watched(rows: &[&Row], time: &Time) -> Vec<(f64, f64)> {
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    let mut before = 0.0;
    let mut was_on = false;
    for row in rows {
        let at = time.at(row);
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

/// The axis of time, in the unit that suits all of it.
struct Time {
    unit: &'static str,
    unit_s: f64,
}

impl Time {
    fn of(rows: &[Row]) -> Time {
        let (unit, unit_s) = match rows.last().map_or(0.0, |row| row.at.as_secs_f64()) {
            all if all < 300.0 => ("s", 1.0),
            all if all < 18_000.0 => ("min", 60.0),
            _ => ("h", 3600.0),
        };
        Time { unit, unit_s }
    }

    fn at(&self, row: &Row) -> f64 {
        row.at.as_secs_f64() / self.unit_s
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn a_line_ends_where_there_is_nothing_and_the_ground_is_shaded_where_something_was() {
        let rows: Vec<Row> =
            (1..=6).map(|second| row(second, !(3..=4).contains(&second))).collect();
        let references: Vec<&Row> = rows.iter().collect();
        assert_eq!(watched(&references, &Time::of(&rows)), [(0.0, 2.0), (4.0, 6.0)]);
        let svg = PANELS[0].draw(&rows).unwrap();
        let lines = |colour: &str| svg.matches(&format!("stroke=\"{colour}\"")).count();
        assert_eq!((lines("#1F4E8C"), lines("#E07B1A")), (1, 2));
        assert!(svg.contains("MiB"), "{svg}");
        assert!(PANELS[0].has_any(&rows) && !PANELS[4].has_any(&rows));
    }

    #[test]
    fn nothing_and_very_much_can_be_drawn() {
        assert!(PANELS[1].draw(&[]).is_ok());
        let many: Vec<Row> = (0..5000).map(|second| row(second, true)).collect();
        assert!(PANELS[0].draw(&many).unwrap().len() < 200_000);
        let step = ballast_model::Bytes::mib(1);
        let flat = MissCurve::new(step, Duration::from_secs(1), vec![0]).unwrap();
        assert!(curve(&flat).is_ok());
    }
}
