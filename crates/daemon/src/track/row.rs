//! The figures of one tracking interval of one guest.

use std::sync::Arc;
use std::time::Duration;

use ballast_estimate::phase::PhaseStep;
use ballast_model::{Bytes, MissCurve, TrackingSource};

use super::tiny::WorkingSetShift;

/// An interval; a resting one has no figures of watching.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its end, counted from the start of tracking.
    pub at: Duration,
    /// Its length.
    pub length: Duration,
    /// Size of the guest's tracked memory.
    pub tracked: Bytes,
    /// The last known working set, shifted by `moved` during rest.
    pub known: Option<Bytes>,
    /// How the working set shifted, if the tiny sample's touches jumped in a resting interval.
    pub moved: Option<WorkingSetShift>,
    /// Count of the events that detect phases, scaled to all memory; `None` if not counted.
    pub events: Option<u64>,
    /// The phase detector's decision for the next interval, if tracking may rest.
    pub step: Option<PhaseStep>,
    /// Share of intervals so far that were watched, from 0 to 1.
    pub up_ratio: f64,
    /// CPU time of the tracker plus time lost by the guest, in rest too.
    pub cost: Duration,
    /// The figures of watching; `None` if tracking rested.
    pub seen: Option<WatchedInterval>,
}

impl Row {
    /// An interval of a source that never rests; the parameters are the fields.
    pub(super) fn without_rest(
        at: Duration,
        length: Duration,
        tracked: Bytes,
        known: Option<Bytes>,
        cost: Duration,
        seen: Option<WatchedInterval>,
    ) -> Row {
        Row {
            at,
            length,
            tracked,
            known,
            moved: None,
            events: None,
            step: None,
            up_ratio: 1.0,
            cost,
            seen,
        }
    }

    /// Cost as a share of one core.
    pub fn cost_share(&self) -> f64 {
        self.cost.as_secs_f64() / self.length.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The figures of a watched interval.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedInterval {
    /// The source.
    pub source: TrackingSource,
    /// The working set.
    pub working_set: Bytes,
    /// Memory touched in the interval.
    pub touched: Bytes,
    /// Memory size at which half of the warm touches miss; `None` if no LRU order is kept.
    pub half_miss: Option<Bytes>,
    /// Misses at every memory size.
    pub curve: Option<Arc<MissCurve>>,
    /// Pages per granule.
    pub granule_pages: u64,
    /// Share of granules watched, above 0 and at most 1.
    pub share: f64,
    /// Hot granules, which stayed accessible.
    pub hot_granules: Option<u64>,
    /// Number of touches.
    pub touches: u64,
    /// Number of lost touches.
    pub lost: u64,
    /// Time for which one trap stops the guest.
    pub trap: Duration,
    /// Time it took to revoke access.
    pub revoked_in: Duration,
}

#[cfg(test)]
mod tests {
    use super::super::fixture::row;
    use super::*;

    #[test]
    fn cost_share_divides_by_length_and_is_finite() {
        assert_eq!(row(1, false).cost_share(), 0.004);
        assert!(Row { length: Duration::ZERO, ..row(1, true) }.cost_share().is_finite());
    }
}
