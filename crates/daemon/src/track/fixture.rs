//! Handmade intervals for tests.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve, TrackingSource};

use super::row::{Row, WatchedInterval};

/// An interval of one second; if watched, its working set is 200 MiB.
pub fn row(second: u64, is_watched: bool) -> Row {
    let step = Bytes::mib(100);
    let curve = MissCurve::new(step, Duration::from_secs(1), vec![50, 20, 0]);
    let seen = WatchedInterval {
        source: TrackingSource::Library,
        working_set: Bytes::mib(200),
        touched: Bytes::mib(150),
        half_miss: Some(Bytes::mib(90)),
        curve: curve.ok().map(Arc::new),
        granule_pages: 1,
        share: 0.25,
        hot_granules: None,
        touches: 50,
        lost: 0,
        trap: Duration::from_micros(12),
        revoked_in: Duration::from_millis(1),
    };
    Row {
        at: Duration::from_secs(second),
        length: Duration::from_secs(1),
        tracked: Bytes::mib(512),
        known: Some(Bytes::mib(200)),
        moved: None,
        events: Some(200),
        step: None,
        up_ratio: 0.75,
        cost: Duration::from_millis(4),
        seen: is_watched.then_some(seen),
    }
}
