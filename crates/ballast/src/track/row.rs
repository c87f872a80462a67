//! What one interval of one guest came to.

use std::sync::Arc;
use std::time::Duration;

use ballast_model::{Bytes, MissCurve};

/// An interval; one of rest has no figures of what was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// When it ended, since tracking began.
    pub(crate) at: Duration,
    /// How long it was.
    pub(crate) length: Duration,
    /// What the guest's memory came to that is tracked.
    pub(crate) tracked: Bytes,
    /// Whether it was watched, and what was seen.
    pub(crate) seen: Option<Seen>,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The working set.
    pub(crate) working_set: Bytes,
    /// Memory touched in the interval.
    pub(crate) touched: Bytes,
    /// Memory in which half of the warm touches miss.
    pub(crate) half_miss: Bytes,
    /// Misses at every size.
    pub(crate) curve: Option<Arc<MissCurve>>,
    /// Pages of a granule.
    pub(crate) granule_pages: u64,
    /// Share of granules that were watched, above 0 to 1.
    pub(crate) share: f64,
    /// Granules that stayed accessible.
    pub(crate) hot_granules: Option<u64>,
    /// Touches.
    pub(crate) touches: u64,
    /// Touches that were lost.
    pub(crate) lost: u64,
    /// Processor time of the tracker and lost time of the guest.
    pub(crate) cost: Duration,
    /// How long a trap stops the guest.
    pub(crate) trap: Duration,
    /// How long revoking took.
    pub(crate) revoked_in: Duration,
}

impl Seen {
    /// Cost as a share of one core.
    pub(crate) fn cost_share(&self, length: Duration) -> f64 {
        self.cost.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Touches that all granules would have had: what tells phases.
    pub(crate) fn events(&self) -> u64 {
        // Saturating at both ends.
        (self.touches as f64 / self.share).round() as u64
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An interval of a second; one that was watched has a working set of 200 MiB.
    pub(crate) fn row(second: u64, is_watched: bool) -> Row {
        let step = Bytes::mib(100);
        let curve = MissCurve::new(step, Duration::from_secs(1), vec![50, 20, 0]);
        let seen = Seen {
            working_set: Bytes::mib(200),
            touched: Bytes::mib(150),
            half_miss: Bytes::mib(90),
            curve: curve.ok().map(Arc::new),
            granule_pages: 1,
            share: 0.25,
            hot_granules: None,
            touches: 50,
            lost: 0,
            cost: Duration::from_millis(4),
            trap: Duration::from_micros(12),
            revoked_in: Duration::from_millis(1),
        };
        Row {
            at: Duration::from_secs(second),
            length: Duration::from_secs(1),
            tracked: Bytes::mib(512),
            seen: is_watched.then_some(seen),
        }
    }

    #[test]
    fn events_are_those_of_all_granules() {
        let row = row(1, true);
        let seen = row.seen.unwrap();
        assert_eq!((seen.events(), seen.cost_share(row.length)), (200, 0.004));
    }
}
