//! Tracking of a guest's page touches: its result, its cost, and why it does not work.

use ballast_model::{GuestSample, Share, Tracking, TrackingState};
use serde::{Deserialize, Serialize};

use crate::Coded;
use crate::tick::millis;

/// How a guest's page touches are tracked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrackingView {
    /// `waiting` (nothing has been watched yet, or the guest does not run), `watching` (by the
    /// tracker in its hypervisor), `resting` (until a new phase begins), `sampling` (by DAMON),
    /// `aging` (by page generations, MGLRU), `referenced` (by the kernel's referenced bits),
    /// `absent` (no source is wanted and available) or `failing` (see `trouble`).
    pub state: Coded,
    /// What found the working set: `library` (the tracker in its hypervisor), `damon`, `mglru` or
    /// `referenced`; in units of a huge page, `damon-huge` or `mglru-huge`, which give upper
    /// bounds; `null`: none was found yet.
    #[serde(default)]
    pub source: Option<Coded>,
    /// The last working set found; `null`: none was found yet.
    pub working_set_bytes: Option<u64>,
    /// Time from its last confirmation to the tick; `null`: none was found yet.
    pub age_ms: Option<u64>,
    /// Share of its memory that was watched, in millionths; `null`: unknown.
    pub watched_millionths: Option<u32>,
    /// Processor time that tracking costs tracker and guest, in millionths of one core; may exceed
    /// 1,000,000; `null`: unknown.
    pub cost_millionths: Option<u32>,
    /// Why tracking does not work, and what to do; `null`: nothing is wrong.
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
