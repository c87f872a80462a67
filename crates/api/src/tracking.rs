//! What watching a guest's page touches shows and costs, and why it shows nothing.

use ballast_model::{GuestSample, Share, Tracking, TrackingState};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// How a guest's page touches are watched. The age is as of the tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackingView {
    /// `waiting`, `watching`, `resting`, `referenced`, `absent` or `failing`.
    pub state: Coded,
    /// The working set that was found last.
    pub working_set_bytes: Option<u64>,
    /// Time since it was last confirmed.
    pub age_ms: Option<u64>,
    /// Which share of its memory is watched, in millionths.
    pub watched_millionths: Option<u32>,
    /// Processor time of tracker and guest that it took, in millionths of one core.
    pub cost_millionths: Option<u32>,
    /// Why nothing is seen, and what to do about it.
    pub trouble: Option<String>,
}

impl TrackingView {
    /// Of `sample`; `None`: nobody was to watch it, and nobody did.
    pub(crate) fn of(sample: &GuestSample) -> Option<TrackingView> {
        let report = sample.tracker.as_ref();
        // Journals of earlier versions, and simulated guests, have the report alone.
        let watching = || report.map(|_| Tracking::new(TrackingState::Watching));
        let tracking = sample.tracking.clone().or_else(watching)?;
        Some(TrackingView {
            state: Coded::new(tracking.state.code(), tracking.state),
            working_set_bytes: report.map(|report| report.value.working_set.get()),
            age_ms: report.map(|report| millis(report.age)),
            watched_millionths: tracking.watched.map(Share::millionths),
            cost_millionths: tracking.cost.map(Share::millionths),
            trouble: tracking.trouble,
        })
    }
}
