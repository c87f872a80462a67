//! The JSON of `ballast mrc --json`.
//!
//! Idea: counts are whole numbers wherever possible. They may have decimals where an engine samples
//! and scales its counts, or where counts are aged.
//! Limits: the histogram is complete; the curve has at most the requested number of points.

use ballast_mrc::{Histogram, Step};
use serde::{Serialize, Serializer};

use super::outcome::Outcome;

/// One trace.
#[derive(Serialize)]
pub(crate) struct Trace<'a> {
    trace: &'a str,
    format: &'static str,
    /// Number of bad records that were skipped.
    skipped: u64,
    accesses: u64,
    /// Number of different tags; null for statistical sampling.
    distinct: Option<u64>,
    cold: Option<Count>,
    engine: &'static str,
    /// Why this engine; null if the user chose it.
    engine_why: Option<&'a str>,
    /// The greatest memory that it occupied, in bytes.
    engine_memory_bytes: u64,
    /// Pages per tag.
    granularity: u64,
    reading: &'static str,
    /// Number of different pages; null if they were not counted separately from tags.
    pages_touched: Option<u64>,
    page_bytes: Option<u64>,
    /// References in an interval, after which counts age (`cold`, `histogram`, `curve`); null if
    /// they do not age.
    interval: Option<u64>,
    /// The weight that earlier counts keep with each interval.
    aging: Option<f64>,
    elapsed_s: f64,
    accesses_per_second: Option<f64>,
    working_sets: Vec<WorkingSet>,
    /// The estimate of statistical sampling; null from other engines.
    active_pages: Option<u64>,
    verified_with: Option<&'static str>,
    /// The mean absolute error against that engine, if this one samples.
    mean_absolute_error: Option<f64>,
    /// The unit of distances: `tags`, or `pages` if only touched pages count.
    distance_unit: &'static str,
    /// References by stack distance, from 1.
    histogram: Option<ByDistance<'a>>,
    curve: Vec<Point>,
}

#[derive(Serialize)]
struct WorkingSet {
    epsilon: f64,
    pages: u64,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct Point {
    pages: u64,
    miss_ratio_warm: f64,
    miss_ratio_total: f64,
}

/// A number of references; printed as a whole number if it is one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Count(f64);

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// All whole numbers up to this one are exact in an `f64`.
        const WHOLE_MAX: f64 = (1u64 << 53) as f64;
        if self.0.fract() == 0.0 && self.0.abs() <= WHOLE_MAX {
            return serializer.serialize_u64(self.0 as u64);
        }
        serializer.serialize_f64(self.0)
    }
}

impl<'a> Trace<'a> {
    /// The JSON of `outcome`, with at most `points` of its curve.
    pub(crate) fn new(outcome: &'a Outcome, points: usize) -> Self {
        let units = outcome.units;
        let point = |step: Step| Point {
            pages: step.pages,
            miss_ratio_warm: step.miss_ratio_warm,
            miss_ratio_total: step.miss_ratio_total,
        };
        let sets = outcome.working_sets.iter().map(|set| WorkingSet {
            epsilon: set.epsilon,
            pages: set.pages,
            bytes: units.page_bytes.map(|bytes| set.pages.saturating_mul(bytes)),
        });
        Self {
            trace: &outcome.trace,
            format: outcome.format.as_str(),
            skipped: outcome.skipped,
            accesses: outcome.accesses,
            distinct: outcome.distinct,
            cold: outcome.cold().map(Count),
            engine: outcome.used.engine.as_str(),
            engine_why: outcome.used.why.as_deref(),
            engine_memory_bytes: outcome.used.memory_bytes,
            granularity: units.granularity.pages(),
            reading: units.reading.as_str(),
            pages_touched: outcome.pages_touched,
            page_bytes: units.page_bytes,
            interval: outcome.intervals.map(|intervals| intervals.references),
            aging: outcome.intervals.map(|intervals| intervals.factor),
            elapsed_s: outcome.elapsed.as_secs_f64(),
            accesses_per_second: outcome.speed(),
            working_sets: sets.collect(),
            active_pages: outcome.active_pages,
            verified_with: outcome.verified.map(|verified| verified.oracle.as_str()),
            mean_absolute_error: outcome.verified.and_then(|verified| verified.error),
            distance_unit: units.reading.distance_unit(),
            histogram: outcome.histogram.as_ref().map(ByDistance),
            curve: outcome.points(points).into_iter().map(point).collect(),
        }
    }
}

/// The weight at each distance; distances that are counted together are listed under the greatest
/// of them.
struct ByDistance<'a>(&'a Histogram);

impl Serialize for ByDistance<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.buckets().map(|bucket| (bucket.last, Count(bucket.weight))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mrc::fixture::{self, PAGES};
    use serde_json::json;

    #[test]
    fn counts_are_whole_where_they_are() {
        let text = |n| serde_json::to_string(&Count(n)).unwrap();
        let all = [0.0, 3.0, 2.5, 9007199254740992.0].map(text);
        assert_eq!(all, ["0", "3", "2.5", "9007199254740992"]);
    }

    #[test]
    fn a_trace_is_told_in_the_documented_shape() {
        let outcome = fixture::outcome("x", &[3, 4, 0, 1], PAGES);
        let trace = serde_json::to_value(Trace::new(&outcome, 10)).unwrap();
        assert_eq!(trace["accesses"], json!(8));
        assert_eq!((&trace["cold"], &trace["distinct"]), (&json!(3), &json!(3)));
        assert_eq!(trace["histogram"], json!({"1": 4, "3": 1}));
        let curve = json!([
            {"pages": 0, "miss_ratio_warm": 1.0, "miss_ratio_total": 1.0},
            {"pages": 1, "miss_ratio_warm": 0.2, "miss_ratio_total": 0.5},
            {"pages": 3, "miss_ratio_warm": 0.0, "miss_ratio_total": 0.375},
        ]);
        assert_eq!(trace["curve"], curve);
        assert_eq!(trace["working_sets"][0], json!({"epsilon": 0.05, "pages": 3, "bytes": 12288}));
    }
}
