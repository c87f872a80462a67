//! The memory that guests held during a replay, thinned so that a journal of any length fits.
//!
//! Idea: of a fixed number of ticks one point is kept, with the highest demand among them. When
//! there are too many points, every two become one.
//! Limits: the first [`GUESTS_MAX`] guests that have demand; [`POINTS_MAX`] points each.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestId};
use ballast_replay::ReplayRow;

/// The greatest number of guests whose points are kept.
pub(crate) const GUESTS_MAX: usize = 64;
/// The greatest number of points of a guest: more than a plot has columns.
const POINTS_MAX: usize = 1024;

/// A guest at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Milliseconds since the first tick.
    pub(super) at_ms: i64,
    /// The most that it used and swapped in since the previous point.
    pub(super) demand: Bytes,
    /// The memory that it held.
    pub(super) recorded: Bytes,
    /// The memory that it would have held under each policy.
    pub(super) imagined: Vec<Bytes>,
}

/// One guest over time.
#[derive(Clone, Debug, Default)]
pub(super) struct GuestSeries {
    pub(super) points: Vec<Point>,
    /// Ticks in each point but the last.
    stride: u64,
    /// Ticks in the last point.
    filled: u64,
}

/// All guests over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    first_ms: Option<i64>,
    last_ms: i64,
    pub(super) guests: BTreeMap<GuestId, GuestSeries>,
}

impl Series {
    /// Adds a tick: the rows of every policy, in the policies' order.
    pub(crate) fn add(&mut self, wall_ms: i64, rows: &[Vec<ReplayRow>]) {
        let first_ms = *self.first_ms.get_or_insert(wall_ms);
        // Time does not go back even if the clock was set back.
        self.last_ms = self.last_ms.max(wall_ms.saturating_sub(first_ms));
        let Some(first) = rows.first() else { return };
        for (place, row) in first.iter().enumerate() {
            let is_known = self.guests.contains_key(&row.id);
            if !is_known && self.guests.len() >= GUESTS_MAX {
                continue;
            }
            let imagined = rows.iter().filter_map(|rows| rows.get(place)).map(|row| row.imagined);
            let point = Point {
                at_ms: self.last_ms,
                demand: row.demand,
                recorded: row.recorded,
                imagined: imagined.collect(),
            };
            self.guests.entry(row.id.clone()).or_default().add(point);
        }
    }
}

impl GuestSeries {
    fn add(&mut self, point: Point) {
        match self.points.last_mut() {
            Some(last) if self.filled < self.stride => {
                *last = Point { demand: last.demand.max(point.demand), ..point };
                self.filled += 1;
            }
            _ => {
                if self.points.len() == POINTS_MAX {
                    self.halve();
                }
                self.stride = self.stride.max(1);
                self.points.push(point);
                self.filled = 1;
            }
        }
    }

    /// Replaces every two points by the later one, with the higher demand of both.
    fn halve(&mut self) {
        let pairs = self.points.chunks(2).filter_map(|pair| {
            let last = pair.last()?;
            let demand = pair.iter().map(|point| point.demand).max()?;
            Some(Point { demand, ..last.clone() })
        });
        self.points = pairs.collect();
        self.stride *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, mib: u64) -> ReplayRow {
        ReplayRow {
            id: name.parse().unwrap(),
            demand: Bytes::mib(mib),
            recorded: Bytes::mib(mib + 1),
            imagined: Bytes::mib(mib + 2),
            recorded_swap_in: Bytes::ZERO,
            imagined_swap_in: Bytes::ZERO,
            is_predictable: true,
            recorded_target: None,
            imagined_target: None,
        }
    }

    #[test]
    fn a_short_series_has_every_tick() {
        let mut series = Series::default();
        for (wall_ms, mib) in [(5000, 1), (6000, 2), (4000, 3)] {
            series.add(wall_ms, &[vec![row("a", mib)], vec![row("a", mib + 10)]]);
        }
        let points = &series.guests[&"a".parse().unwrap()].points;
        let times: Vec<i64> = points.iter().map(|point| point.at_ms).collect();
        assert_eq!(times, [0, 1000, 1000], "time does not go back");
        assert_eq!(points[2].imagined, [Bytes::mib(5), Bytes::mib(15)]);
    }

    #[test]
    fn a_long_series_is_thinned_and_keeps_its_peaks() {
        let mut series = Series::default();
        let ticks = 10 * POINTS_MAX as i64 + 7;
        for tick in 0..ticks {
            let mib = if tick == 4321 { 900 } else { 100 };
            series.add(tick * 1000, &[vec![row("a", mib)]]);
        }
        let points = &series.guests[&"a".parse().unwrap()].points;
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert_eq!(points.last().unwrap().at_ms, (ticks - 1) * 1000);
        assert!(points.is_sorted_by_key(|point| point.at_ms));
        let peak = points.iter().find(|point| point.demand == Bytes::mib(900)).unwrap();
        assert!((4321..4321 + 16).contains(&(peak.at_ms / 1000)), "{peak:?}");
    }

    #[test]
    fn no_more_guests_than_are_kept() {
        let mut series = Series::default();
        let rows: Vec<_> = (0..2 * GUESTS_MAX).map(|at| row(&format!("g{at:03}"), 1)).collect();
        series.add(0, &[rows]);
        assert_eq!(series.guests.len(), GUESTS_MAX);
    }
}
