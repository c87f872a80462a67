//! The JSON form of an interval, as `ballast track --json` writes and reads it.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve, TrackingSource};
use serde::{Deserialize, Serialize};

use super::row::{Row, WatchedInterval};

/// An interval in JSON; the figures of watching are absent if it was not watched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntervalJson {
    at_s: f64,
    length_s: f64,
    tracked_bytes: u64,
    is_on: bool,
    up_ratio: f64,
    events: Option<u64>,
    known_bytes: Option<u64>,
    next: Option<String>,
    cost_share: f64,
    #[serde(flatten)]
    seen: Option<WatchedIntervalJson>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WatchedIntervalJson {
    /// Absent in recordings from when there was only one source.
    #[serde(default)]
    source: TrackingSource,
    working_set_bytes: u64,
    touched_bytes: u64,
    half_miss_bytes: Option<u64>,
    granule_pages: u64,
    share: f64,
    hot_granules: Option<u64>,
    touches: u64,
    lost: u64,
    trap_ns: u64,
    revoked_ns: u64,
    miss_step_bytes: Option<u64>,
    misses: Option<Vec<u64>>,
}

impl From<&Row> for IntervalJson {
    fn from(row: &Row) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let seen = row.seen.as_ref().map(|seen| WatchedIntervalJson {
            source: seen.source,
            working_set_bytes: seen.working_set.get(),
            touched_bytes: seen.touched.get(),
            half_miss_bytes: seen.half_miss.map(Bytes::get),
            granule_pages: seen.granule_pages,
            share: seen.share,
            hot_granules: seen.hot_granules,
            touches: seen.touches,
            lost: seen.lost,
            trap_ns: ns(seen.trap),
            revoked_ns: ns(seen.revoked_in),
            miss_step_bytes: seen.curve.as_ref().map(|curve| curve.step().get()),
            misses: seen.curve.as_ref().map(|curve| curve.points().to_vec()),
        });
        IntervalJson {
            at_s: row.at.as_secs_f64(),
            length_s: row.length.as_secs_f64(),
            tracked_bytes: row.tracked.get(),
            is_on: row.seen.is_some(),
            up_ratio: row.up_ratio,
            events: row.events,
            known_bytes: row.known.map(Bytes::get),
            next: row.step.map(|step| step.next.to_string()),
            cost_share: row.cost_share(),
            seen,
        }
    }
}

impl IntervalJson {
    /// The interval without `step` and `moved`, which JSON does not contain.
    ///
    /// # Errors
    /// Names the impossible figure.
    pub fn row(&self) -> Result<Row, String> {
        let time = |name: &str, seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("{name}: {error}"))
        };
        let length = time("length_s", self.length_s)?;
        let seen = self.seen.as_ref().map(|seen| seen.to_interval(length)).transpose()?;
        Ok(Row {
            at: time("at_s", self.at_s)?,
            length,
            tracked: Bytes::new(self.tracked_bytes),
            known: self.known_bytes.map(Bytes::new),
            moved: None,
            events: self.events,
            step: None,
            up_ratio: self.up_ratio,
            cost: time("cost_share", self.cost_share * self.length_s)?,
            seen,
        })
    }
}

impl WatchedIntervalJson {
    fn to_interval(&self, length: Duration) -> Result<WatchedInterval, String> {
        let curve = match (self.miss_step_bytes, &self.misses) {
            (Some(step), Some(misses)) => {
                let curve = MissCurve::new(Bytes::new(step), length, misses.clone());
                Some(Arc::new(curve.map_err(|error| format!("misses: {error}"))?))
            }
            _ => None,
        };
        Ok(WatchedInterval {
            source: self.source,
            working_set: Bytes::new(self.working_set_bytes),
            touched: Bytes::new(self.touched_bytes),
            half_miss: self.half_miss_bytes.map(Bytes::new),
            curve,
            granule_pages: self.granule_pages,
            share: self.share,
            hot_granules: self.hot_granules,
            touches: self.touches,
            lost: self.lost,
            trap: Duration::from_nanos(self.trap_ns),
            revoked_in: Duration::from_nanos(self.revoked_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::row;
    use super::*;

    #[test]
    fn an_interval_survives_a_json_round_trip() {
        for before in [row(1, true), row(2, false)] {
            let text = serde_json::to_string(&IntervalJson::from(&before)).unwrap();
            let read: IntervalJson = serde_json::from_str(&text).unwrap();
            assert_eq!(read.row().unwrap(), before, "{text}");
        }
    }

    #[test]
    fn impossible_figures_are_refused() {
        let mut json = IntervalJson::from(&row(1, true));
        json.length_s = -1.0;
        assert!(json.row().unwrap_err().contains("length_s"));
    }
}
