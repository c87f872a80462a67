//! Tracking of a guest's page touches: its result, its cost, and why it does not work.

use ballast_model::{GuestSample, Share, Tracking, TrackingState};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// How a guest's page touches are tracked. The age is as of the tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrackingView {
    /// `waiting`, `watching`, `resting`, `sampling`, `aging`, `referenced`, `absent` or `failing`.
    pub state: Coded,
    /// What found the working set: `library`, `damon`, `mglru`, `referenced`; in huge pages
    /// `damon-huge` and `mglru-huge`, which are upper bounds.
    #[serde(default)]
    pub source: Option<Coded>,
    /// The last working set found.
    pub working_set_bytes: Option<u64>,
    /// Time since it was last confirmed.
    pub age_ms: Option<u64>,
    /// Share of its memory that is watched, in millionths.
    pub watched_millionths: Option<u32>,
    /// Processor time of tracker and guest, in millionths of one core.
    pub cost_millionths: Option<u32>,
    /// Why tracking does not work, and what to do.
    pub trouble: Option<String>,
}

impl TrackingView {
    /// The view for `sample`; `None`: it was neither tracked nor meant to be.
    pub(crate) fn of(sample: &GuestSample) -> Option<TrackingView> {
        let report = sample.tracker.as_ref();
        // Old journals and simulated guests have a report without a tracking state.
        let watching = || report.map(|_| Tracking::new(TrackingState::Watching));
        let tracking = sample.tracking.as_deref().cloned().or_else(watching)?;
        Some(TrackingView {
            state: Coded::new(tracking.state.code(), tracking.state),
            source: report.map(|report| {
                let source = report.value.source;
                Coded::new(source.code(), source)
            }),
            working_set_bytes: report.map(|report| report.value.working_set.get()),
            age_ms: report.map(|report| millis(report.age)),
            watched_millionths: tracking.watched.map(Share::millionths),
            cost_millionths: tracking.cost.map(Share::millionths),
            trouble: tracking.trouble,
        })
    }
}
