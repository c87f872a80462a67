//! The host over time, thinned so that any length of record fits a plot.
//!
//! Idea: a point is the average, weighted by time, of a number of ticks. When there are too many
//! points, each two neighbours are merged and that number doubles.

use std::time::Duration;

use ballast_model::Bytes;

use crate::advice::CoursePoint;
use crate::totals::bytes;

/// Most points: about as many as a plot has columns.
const POINTS_MAX: usize = 400;

/// All guests over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    parts: Vec<CoursePart>,
    /// Ticks in each part except the last.
    stride: u64,
    /// Ticks in the last part.
    filled: u64,
}

/// Sums of a part of the time, in bytes times milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct CoursePart {
    at_ms: i64,
    ms: u128,
    sums: [u128; 4],
}

impl CoursePart {
    fn plus(self, later: CoursePart) -> CoursePart {
        let sums = std::array::from_fn(|place| self.sums[place] + later.sums[place]);
        // Times in a plot never go back, even if the clock was set back.
        CoursePart { at_ms: self.at_ms.max(later.at_ms), ms: self.ms + later.ms, sums }
    }
}

impl Course {
    /// Takes in a point that stands for `passed`.
    pub(crate) fn add(&mut self, point: CoursePoint, passed: Duration) {
        let CoursePoint { at_ms, held, imagined, needed, returnable } = point;
        let ms = passed.as_millis();
        let sums = [held, imagined, needed, returnable].map(|it| u128::from(it.get()) * ms);
        let part = CoursePart { at_ms, ms, sums };
        self.stride = self.stride.max(1);
        match self.parts.last_mut() {
            Some(last) if self.filled < self.stride => {
                *last = last.plus(part);
                self.filled += 1;
            }
            _ => {
                if self.parts.len() == POINTS_MAX {
                    let halved = self
                        .parts
                        .chunks(2)
                        .filter_map(|pair| pair.iter().copied().reduce(CoursePart::plus));
                    self.parts = halved.collect();
                    self.stride *= 2;
                }
                let before = self.parts.last().map_or(at_ms, |last| last.at_ms);
                self.parts.push(CoursePart { at_ms: at_ms.max(before), ..part });
                self.filled = 1;
            }
        }
    }

    pub(crate) fn points(&self) -> Vec<CoursePoint> {
        let point = |part: &CoursePart| {
            let [held, imagined, needed, returnable]: [Bytes; 4] =
                part.sums.map(|sum| bytes(sum / part.ms.max(1)));
            CoursePoint { at_ms: part.at_ms, held, imagined, needed, returnable }
        };
        self.parts.iter().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(ticks: i64) -> Vec<CoursePoint> {
        let mut course = Course::default();
        for tick in 0..ticks {
            let held = Bytes::mib(tick.unsigned_abs());
            let point = CoursePoint { at_ms: tick * 1000, held, ..CoursePoint::default() };
            course.add(point, Duration::from_secs(1));
        }
        course.points()
    }

    #[test]
    fn a_short_course_has_every_tick() {
        let points = course(5);
        let held: Vec<u64> = points.iter().map(|point| point.held.get() >> 20).collect();
        assert_eq!(held, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_long_course_is_thinned_and_keeps_its_mean() {
        let points = course(8 * POINTS_MAX as i64);
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert!(points.is_sorted_by_key(|point| (point.at_ms, point.held)));
        assert_eq!(points.last().unwrap().at_ms, (8 * POINTS_MAX as i64 - 1) * 1000);
        let sum: u64 = points.iter().map(|point| point.held.get()).sum();
        let mean = sum / points.len() as u64 / (1 << 20);
        assert!(mean.abs_diff(4 * POINTS_MAX as u64) < 20, "{mean}");
    }
}
