//! What one interval of one guest came to.

use std::sync::Arc;
use std::time::Duration;

use ballast_estimate::phase::Step;
use ballast_model::{Bytes, MissCurve};

use super::tiny::Moved;

/// An interval; one of rest has no figures of what was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// When it ended, since tracking began.
    pub(crate) at: Duration,
    /// How long it was.
    pub(crate) length: Duration,
    /// What the guest's memory came to that is tracked.
    pub(crate) tracked: Bytes,
    /// The working set as last seen, and moved since: what it is held to be in rest.
    pub(crate) known: Option<Bytes>,
    /// How it moved, in an interval of rest in which the touches of the tiny sample jumped.
    pub(crate) moved: Option<Moved>,
    /// How often the event happened by which phases are told, of all memory; `None` where that was not seen.
    pub(crate) events: Option<u64>,
    /// What followed for the next interval, where tracking may rest.
    pub(crate) step: Option<Step>,
    /// Share of the intervals so far that were watched, from 0 to 1.
    pub(crate) up_ratio: f64,
    /// Processor time of the tracker and lost time of the guest, in rest too.
    pub(crate) cost: Duration,
    /// Whether it was watched, and what was seen.
    pub(crate) seen: Option<Seen>,
}

impl Row {
    /// Cost as a share of one core.
    pub(crate) fn cost_share(&self) -> f64 {
        self.cost.as_secs_f64() / self.length.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The working set.
    pub(crate) working_set: Bytes,
    /// Memory touched in the interval.
    pub(crate) touched: Bytes,
    /// Memory in which half of the warm touches miss; `None` where no order is kept.
    pub(crate) half_miss: Option<Bytes>,
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
    /// How long a trap stops the guest.
    pub(crate) trap: Duration,
    /// How long revoking took.
    pub(crate) revoked_in: Duration,
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

    #[test]
    fn four_milliseconds_of_a_second() {
        assert_eq!(row(1, false).cost_share(), 0.004);
        assert!(Row { length: Duration::ZERO, ..row(1, true) }.cost_share().is_finite());
    }
}
