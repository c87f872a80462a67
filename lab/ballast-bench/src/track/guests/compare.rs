//! Compares estimates with the truth, interval by interval.
//!
//! Idea: each interval of the truth is compared with the latest estimate at its end, however old.
//! So a way with few estimates is judged by what a balancer would have had.
//!
//! - error: `|estimate − truth| / truth`, its mean (MEB, IMT: MRE) and greatest;
//! - lag: a change is an interval whose truth is at least a quarter above the previous one, or at
//!   least a fifth below. It is followed when the estimate is within 10 % of it. The lag is the
//!   number of intervals that this takes: 0 if the estimate follows in the same interval, all
//!   remaining ones if the record ends first. A change that continues in the next interval is
//!   another change: a guest that grows for five seconds, each reported one interval late, is
//!   followed after one.
//!
//! Cost: O(intervals). Limits: intervals in which nothing was touched have no relative error and
//! are left out.

use std::time::Duration;

use ballast_model::Bytes;
use serde::Serialize;

/// A change: the least ratio to the previous interval for growth, and the greatest for a fall.
const GROWTH: f64 = 1.25;
const FALL: f64 = 1.0 / GROWTH;
/// A change is followed when the estimate is this close, as a ratio.
const FOLLOWED: f64 = 0.1;
/// The delay after an interval's end within which an estimate still counts for it, as a part of the
/// interval: such an estimate has seen less than a fifth of the next interval.
const LATE: f64 = 0.2;

/// An estimate, and its time on the host's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) at_ns: u64,
    pub(crate) bytes: Bytes,
}

/// The truth of the interval that ended at `end_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Actual {
    pub(crate) end_ns: u64,
    pub(crate) bytes: Bytes,
}

/// The truth and the estimate of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) truth: Bytes,
    pub(crate) estimate: Bytes,
}

/// The errors of estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Errors {
    /// Mean relative error, as a ratio.
    #[serde(rename = "error")]
    pub(crate) mean: f64,
    #[serde(rename = "error_most")]
    pub(crate) most: f64,
    /// The mean with its sign: above 0 the estimates are too high.
    pub(crate) bias: f64,
    /// Intervals until growth was followed, the greatest lag; `None`: there was no growth.
    pub(crate) growth_lag: Option<usize>,
    /// The same for falls.
    pub(crate) fall_lag: Option<usize>,
}

/// The intervals of `truth`, each `interval` long, from the first to the last that have an
/// estimate; both inputs are in order of time.
pub(crate) fn align(estimates: &[Estimate], truth: &[Actual], interval: Duration) -> Vec<Point> {
    let late_ns = (interval.as_nanos() as f64 * LATE) as u64;
    let last_ns = estimates.last().map_or(0, |estimate| estimate.at_ns);
    let point = |row: &Actual| {
        let known = estimates
            .partition_point(|estimate| estimate.at_ns <= row.end_ns.saturating_add(late_ns));
        let estimate = estimates.get(known.checked_sub(1)?)?;
        (row.bytes > Bytes::ZERO).then_some(Point { truth: row.bytes, estimate: estimate.bytes })
    };
    let until = truth.partition_point(|row| row.end_ns <= last_ns.saturating_add(late_ns));
    truth[..until].iter().filter_map(point).collect()
}

impl Point {
    fn error(self) -> f64 {
        self.estimate.get() as f64 / self.truth.get() as f64 - 1.0
    }
}

/// Compares; without intervals there is no error.
pub(crate) fn compare(points: &[Point]) -> Errors {
    if points.is_empty() {
        return Errors::default();
    }
    let mean = |of: fn(f64) -> f64| {
        points.iter().map(|point| of(point.error())).sum::<f64>() / points.len() as f64
    };
    Errors {
        mean: mean(f64::abs),
        most: points.iter().map(|point| point.error().abs()).fold(0.0, f64::max),
        bias: mean(|error| error),
        growth_lag: lag(points, |ratio| ratio >= GROWTH, |ratio| ratio >= 1.0 - FOLLOWED),
        fall_lag: lag(points, |ratio| ratio <= FALL, |ratio| ratio <= 1.0 + FOLLOWED),
    }
}

/// The longest lag of a change. `is_change` decides on the ratio of a truth to the previous one,
/// `is_followed` on the ratio of a later estimate to the changed truth.
fn lag(
    points: &[Point],
    is_change: impl Fn(f64) -> bool,
    is_followed: impl Fn(f64) -> bool,
) -> Option<usize> {
    let of = |bytes: Bytes| bytes.get() as f64;
    let ratio = |index: usize| of(points[index].truth) / of(points[index - 1].truth);
    let changes = (1..points.len()).filter(|&index| is_change(ratio(index)));
    changes
        .map(|index| {
            let (changed_to, after) = (of(points[index].truth), &points[index..]);
            let followed =
                after.iter().position(|point| is_followed(of(point.estimate) / changed_to));
            followed.unwrap_or(after.len())
        })
        .max()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn points(pairs: &[(u64, u64)]) -> Vec<Point> {
        let point =
            |&(truth, estimate)| Point { truth: Bytes::mib(truth), estimate: Bytes::mib(estimate) };
        pairs.iter().map(point).collect()
    }

    /// Errors 10 %, 0, −20 %, 30 %: mean 15 %, with their signs 5 %.
    #[test]
    fn errors_equal_those_by_hand() {
        let errors = compare(&points(&[(100, 110), (200, 200), (100, 80), (10, 13)]));
        assert!((errors.mean - 0.15).abs() < 1e-9 && (errors.bias - 0.05).abs() < 1e-9);
        assert!((errors.most - 0.3).abs() < 1e-9);
        assert_eq!(compare(&[]), Errors::default());
    }

    #[test]
    fn lags_are_those_of_the_slowest_change() {
        for (pairs, growth, fall) in [
            (&[(100, 100), (110, 100), (100, 100)][..], None, None),
            // Followed at once, and one interval later.
            (&[(100, 100), (200, 195), (200, 200)], Some(0), None),
            (&[(100, 100), (200, 120), (200, 200), (400, 400)], Some(1), None),
            // A fall in two steps: 150 is followed after two intervals, 100 after two more.
            (&[(200, 200), (150, 200), (100, 170), (100, 140), (100, 105)], None, Some(2)),
            // A change that continues; each of its steps is reported one interval late.
            (&[(60, 60), (90, 60), (140, 90), (240, 140), (240, 240)], Some(1), None),
            // Never followed before the record ends.
            (&[(200, 200), (100, 200), (100, 200)], None, Some(2)),
        ] {
            let errors = compare(&points(pairs));
            assert_eq!((errors.growth_lag, errors.fall_lag), (growth, fall), "{pairs:?}");
        }
    }

    /// Rows end at 1, 2, … s. An estimate 0.1 s after a row's end belongs to that row, one 0.3 s
    /// after it to the next; an estimate stays in force until the next one.
    #[test]
    fn an_estimate_belongs_to_the_interval_just_ended() {
        let row = |s: u64, mib| Actual { end_ns: s * 1_000_000_000, bytes: Bytes::mib(mib) };
        let estimate = |ms: u64, mib| Estimate { at_ns: ms * 1_000_000, bytes: Bytes::mib(mib) };
        let truth = [row(1, 10), row(2, 20), row(3, 30), row(4, 40), row(5, 0), row(6, 60)];
        let all = align(&[estimate(2100, 2), estimate(3300, 3)], &truth, SECOND);
        assert_eq!(all, points(&[(20, 2), (30, 2)]));
        let all = align(&[estimate(1990, 2), estimate(4000, 3), estimate(5900, 4)], &truth, SECOND);
        assert_eq!(all, points(&[(20, 2), (30, 2), (40, 3), (60, 4)]));
        assert_eq!(align(&[], &truth, SECOND), []);
        assert_eq!(align(&[estimate(1000, 1)], &[], SECOND), []);
    }

    proptest! {
        #[test]
        fn the_truth_has_no_error(sizes in prop::collection::vec(1..1000_u64, 1..50)) {
            let same: Vec<(u64, u64)> = sizes.iter().map(|&size| (size, size)).collect();
            let errors = compare(&points(&same));
            prop_assert_eq!((errors.mean, errors.most), (0.0, 0.0));
            prop_assert!(errors.growth_lag.is_none_or(|lag| lag == 0));
            prop_assert!(errors.fall_lag.is_none_or(|lag| lag == 0));
        }

        #[test]
        fn the_mean_is_between_none_and_the_greatest(
            pairs in prop::collection::vec((1..1000_u64, 0..2000_u64), 1..50)
        ) {
            let errors = compare(&points(&pairs));
            prop_assert!(errors.mean <= errors.most + 1e-12);
            prop_assert!(errors.bias.abs() <= errors.mean + 1e-12);
        }
    }
}
