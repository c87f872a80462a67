//! The sources that watch one guest: the tracker in its hypervisor, the kernel's DAMON, the
//! kernel's multi-generational LRU, or statistical sampling.
//!
//! Idea: every source yields one [`Row`] per interval. Its users need not know the source; the row
//! says how good its figures are ([`TrackingSource`](ballast_model::TrackingSource)).
//! Limits: what only one source can report, such as cold pages, is optional.

use std::sync::Arc;
use std::time::Duration;

use ballast_damon::DamonError;
use ballast_model::Bytes;
use ballast_reclaim::{Coldness, ReclaimError};
use ballast_tracker::TrackerError;
use ballast_tracker_proto::RegionSpec;
use ballast_working_set::WatchPlanner;

use super::row::Row;

/// Why a source cannot watch a guest, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The tracker failed.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// DAMON failed, for all guests.
    #[error(transparent)]
    Damon(#[from] Arc<DamonError>),
    /// The guest's memory was not found in its hypervisor.
    #[error(transparent)]
    Memory(#[from] ReclaimError),
    /// DAMON already samples as many guests as it can.
    #[error("DAMON samples {0} guests already, which is the most")]
    Full(usize),
    /// The kernel does not see what guests under KVM touch.
    #[error(
        "the guest runs under KVM, and this kernel ({0}) does not ask KVM what guests touched when it \
         ages pages: Linux 6.12 does"
    )]
    Blind(String),
    /// Hardly any touched memory was seen while the guest ran.
    #[error(
        "in {0} intervals in which the guest ran, its cgroup's generations showed no more than {1} \
         touched: this kernel does not see what it touches; another source does"
    )]
    Unseen(u32, Bytes),
    /// Memory of the guest is in no generation of its cgroup.
    #[error(
        "only {listed} are in the generations of the guest's cgroup, of {resident} that the guest has: \
         the rest is locked, in a file, merged, in the host's own huge pages, or was touched before \
         its hypervisor came into this cgroup: start it there"
    )]
    Unlisted {
        /// Memory in the cgroup's generations.
        listed: Bytes,
        /// The guest's memory in its hypervisor.
        resident: Bytes,
    },
    /// Reclaim ages the guest's pages too.
    #[error(
        "the kernel itself ages the guest's pages so often that {0} intervals in a row showed nothing"
    )]
    Crowded(u32),
    /// Aging has to walk over too much memory.
    #[error("an aging of the guest's pages takes {0:?}, expected at most {1:?}: it has too many")]
    Costly(Duration, Duration),
    /// No window of the guest was complete.
    #[error("DAMON reported nothing about the guest for {0:?}")]
    Silent(Duration),
}

impl SourceError {
    /// Whether the error lasts as long as the hypervisor lives, so that retrying is useless.
    pub fn is_lasting(&self) -> bool {
        match self {
            SourceError::Tracker(error) => error.is_lasting(),
            SourceError::Damon(error) => error.is_lasting(),
            SourceError::Memory(error) => error.is_lasting(),
            SourceError::Blind(_) | SourceError::Unseen(..) => true,
            SourceError::Full(_)
            | SourceError::Unlisted { .. }
            | SourceError::Crowded(_)
            | SourceError::Costly(..)
            | SourceError::Silent(_) => false,
        }
    }
}

/// State kept while a guest is not tracked; valid as long as its regions are the same.
pub struct Remembered {
    pub(super) planner: WatchPlanner,
    pub(super) regions: Vec<RegionSpec>,
}

/// A guest that is watched. Dropping it ends that without a trace.
pub trait WorkingSetSource {
    /// Watches for one interval; returns the row and the touched pages. `allocation` is the guest's
    /// size, if known. `go_on` is called ten times per second and ends the interval early by
    /// returning `false`.
    ///
    /// # Errors
    /// Nothing more can be seen.
    fn interval(
        &mut self,
        allocation: Option<Bytes>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), SourceError>;

    /// Sets the length of later intervals.
    fn set_length(&mut self, length: Duration);

    /// Limits the cost of later intervals to a share of one core, above 0 and at most 1, if the
    /// source's cost can be limited.
    fn set_budget(&mut self, _: f64) {}

    /// How long the source goes on while the guest does not run. One that is paused for longer is
    /// ended.
    fn longest_pause(&self) -> Duration {
        Duration::ZERO
    }

    /// The guest runs again after a pause.
    fn resume(&mut self) {}

    /// Memory that cannot be watched because it is not shared.
    fn private_memory(&self) -> Bytes {
        Bytes::ZERO
    }

    /// The guest's cold pages; `None` while unknown.
    fn coldness(&self) -> Option<Coldness> {
        None
    }

    /// Ends the watching. Returns state for the next source of this guest.
    fn end(self: Box<Self>) -> Option<Remembered> {
        None
    }
}

/// The interval in which one reading that costs `cost` takes `share` of the time. The caller bounds
/// it.
pub(super) fn interval_within(cost: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(cost.as_secs_f64() / share).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_keeps_the_cost_within_its_share() {
        assert_eq!(interval_within(Duration::from_millis(20), 0.005), Duration::from_secs(4));
        assert_eq!(interval_within(Duration::from_millis(20), 0.0), Duration::MAX);
    }
}
