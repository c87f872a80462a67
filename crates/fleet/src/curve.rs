//! A miss-ratio curve in at most sixteen points, as hosts send it to each other.
//!
//! Idea: planning for a fleet needs only the rough shape of each curve, and there may be hundreds
//! of thousands of curves. A few sizes with their misses a second are enough, if the size that
//! keeps the guest's objective is one of them.
//! Cost: at most [`CompactCurve::POINTS_MAX`] points a guest.
//! Limits: between two points `misses_per_s` reads the curve as a step, and the planner's estimate
//! of benefits (`plan/benefit`) as a line. Beyond the last point more memory saves nothing.

use ballast_model::Bytes;

/// Misses a second for a few sizes of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactCurve {
    points: Vec<(Bytes, u64)>,
}

/// Why points are not a compact curve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompactCurveError {
    /// None, or too many.
    #[error("a miss curve of {0} points: expected 1 to {max}", max = CompactCurve::POINTS_MAX)]
    Points(usize),
    /// Sizes that do not rise.
    #[error("a miss curve with {1} after {0}: expected rising sizes")]
    Sizes(Bytes, Bytes),
    /// More memory, more misses.
    #[error("a miss curve that rises from {0} to {1} misses a second")]
    Rises(u64, u64),
    /// More misses than a machine can have.
    #[error("a miss curve with {0} misses a second: expected at most {max}", max = CompactCurve::MISSES_MAX)]
    Misses(u64),
}

impl CompactCurve {
    /// Most points of one curve.
    pub const POINTS_MAX: usize = 16;
    /// Most misses a second. At a page each, 2^32 would be 16 TiB a second.
    pub const MISSES_MAX: u64 = 1 << 32;

    /// A curve from pairs of size and misses a second, in order of rising size.
    ///
    /// # Errors
    /// The first thing that is wrong: the number of points, or their order, or too many misses.
    pub fn new(points: Vec<(Bytes, u64)>) -> Result<CompactCurve, CompactCurveError> {
        if points.is_empty() || points.len() > CompactCurve::POINTS_MAX {
            return Err(CompactCurveError::Points(points.len()));
        }
        if points[0].1 > CompactCurve::MISSES_MAX {
            return Err(CompactCurveError::Misses(points[0].1));
        }
        for pair in points.windows(2) {
            let ((smaller, before), (larger, after)) = (pair[0], pair[1]);
            if larger <= smaller {
                return Err(CompactCurveError::Sizes(smaller, larger));
            }
            if after > before {
                return Err(CompactCurveError::Rises(before, after));
            }
        }
        Ok(CompactCurve { points })
    }

    /// The same with one more point: the size that keeps the guest's objective, with the objective
    /// in misses a second. The point is left out if the curve has one of that size already.
    ///
    /// # Errors
    /// As for `new`.
    pub fn with_objective(
        mut points: Vec<(Bytes, u64)>,
        objective: Option<(Bytes, u64)>,
    ) -> Result<CompactCurve, CompactCurveError> {
        if let Some((size, misses_per_s_max)) = objective
            && let Err(at) = points.binary_search_by_key(&size, |point| point.0)
        {
            points.insert(at, (size, misses_per_s_max));
        }
        CompactCurve::new(points)
    }

    /// The sizes and misses a second, by rising size; at least one.
    pub fn points(&self) -> &[(Bytes, u64)] {
        &self.points
    }

    /// Misses a second with `memory`: those of the largest size not above it, or of the first.
    pub fn misses_per_s(&self, memory: Bytes) -> u64 {
        let above = self.points.partition_point(|(size, _)| *size <= memory);
        self.points[above.saturating_sub(1)].1
    }

    /// The least size with at most `misses_per_s`; `None` if no size of the curve is enough.
    pub fn size_for(&self, misses_per_s: u64) -> Option<Bytes> {
        self.points.iter().find(|(_, misses)| *misses <= misses_per_s).map(|(size, _)| *size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, u64)]) -> Result<CompactCurve, CompactCurveError> {
        CompactCurve::new(points.iter().map(|&(mib, misses)| (Bytes::mib(mib), misses)).collect())
    }

    #[test]
    fn misses_are_those_of_the_size_below() {
        let curve = curve(&[(64, 100), (128, 40), (256, 0)]).unwrap();
        for (mib, misses) in [(0, 100), (64, 100), (127, 100), (128, 40), (255, 40), (999, 0)] {
            assert_eq!(curve.misses_per_s(Bytes::mib(mib)), misses, "{mib} MiB");
        }
        for (rate, mib) in [(100, 64), (99, 128), (40, 128), (39, 256), (0, 256)] {
            assert_eq!(curve.size_for(rate), Some(Bytes::mib(mib)), "{rate}/s");
        }
    }

    #[test]
    fn an_objective_needs_its_own_size() {
        let points = || [(64, 100), (128, 40), (256, 0)].map(|(mib, rate)| (Bytes::mib(mib), rate));
        let curve = |mib, rate| {
            CompactCurve::with_objective(points().to_vec(), Some((Bytes::mib(mib), rate))).unwrap()
        };
        assert_eq!(curve(90, 50).size_for(50), Some(Bytes::mib(90)));
        assert_eq!(curve(300, 0).points().len(), 4);
        assert_eq!(curve(128, 50).points(), points());
    }

    #[test]
    fn invalid_curves_are_refused() {
        let too_long: Vec<_> = (0..17).map(|at| (at, 0)).collect();
        for points in [&[][..], &too_long, &[(2, 1), (2, 0)], &[(1, 1), (2, 2)], &[(1, 1 << 33)]] {
            assert!(curve(points).is_err(), "{points:?}");
        }
        assert_eq!(curve(&[(1, 5)]).unwrap().size_for(4), None);
    }
}
