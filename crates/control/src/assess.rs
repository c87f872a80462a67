//! Observe and assess: from the samples of a guest to what is known of it.
//!
//! Cost: O(1) per guest. Each guest is assessed right after it is observed, while its state is
//! still in the processor's cache.

use std::time::Duration;

use ballast_actuation::hotplug::{HotplugSettings, Range, range};
use ballast_estimate::NoEstimate;
use ballast_guard::{Assessment, AssessmentInput, OwnerWatch, verdict};
use ballast_model::{Bounds, Bytes, HoldReason, PerGuest, Snapshot, Timestamp};

use crate::Settings;
use crate::page::keeps_caps;
use crate::state::GuestState;
use crate::tick::{GuestTick, ObservedGuest};

/// Takes in a sample of every guest: what happened to each since the last one. `guests` is aligned
/// with the snapshot. `is_held`: nothing is moved at all.
pub(crate) fn observe<'a>(
    guests: &'a mut PerGuest<GuestState>,
    snapshot: &'a Snapshot,
    settings: &'a Settings,
    is_held: bool,
) -> impl Iterator<Item = ObservedGuest<'a>> {
    let (now, stale_after) = (snapshot.taken_at, settings.guard.stale_after);
    let mut limits = settings.limits.in_order();
    let owner = snapshot.host.balloon_owner;
    snapshot.guests().iter().zip(guests.values_mut()).map(move |(sample, state)| {
        let limits = limits.of(&sample.id);
        let verdict = verdict(sample, limits, stale_after, settings.hotplug.is_some());
        let thrashes = state.observe(sample, verdict.is_ok(), is_held, now, settings);
        if limits.take_over {
            // Moves made before the take-over must not make Ballast stand back later.
            state.owner = OwnerWatch::default();
        }
        let verdict = match verdict {
            Ok(()) if state.owner.is_owned() => Err(HoldReason::AnotherOwner { owner }),
            other => other,
        };
        ObservedGuest { sample, limits, state, verdict, thrashes }
    })
}

/// A smaller debt (memory beyond the entitlement) is not collected from a guest.
const COLLECTED_DEBT_MIN: Bytes = Bytes::mib(16);

/// Input of an assessment besides the guest itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AssessmentContext<'a> {
    pub(crate) now: Timestamp,
    pub(crate) stale_after: Duration,
    pub(crate) believed_percent: u64,
    /// The memory for all guests and the sum of their shares; `None`: unknown.
    pub(crate) shared: Option<(Bytes, u64)>,
    /// Memory of all processes that the host has paged out.
    pub(crate) paged_out: Bytes,
    /// The host's memory.
    pub(crate) host_memory: Bytes,
    /// Whether the host can page out more.
    pub(crate) may_page: bool,
    /// `None`: nothing may be plugged in or out.
    pub(crate) hotplug: Option<&'a HotplugSettings>,
}

/// Assesses one guest. `count` adds the assessment to the totals.
pub(crate) fn assess<'a>(
    seen: ObservedGuest<'a>,
    context: AssessmentContext<'_>,
    count: impl FnOnce(&Assessment),
) -> GuestTick<'a> {
    let AssessmentContext {
        now,
        stale_after,
        believed_percent,
        shared,
        paged_out,
        may_page,
        hotplug,
        ..
    } = context;
    let ObservedGuest { sample, limits, state, verdict, .. } = seen;
    // A guest without statistics is not asked for anything, so it cannot be late.
    let is_asked = verdict.is_ok() && sample.stats.is_some();
    let stuck = if is_asked { state.log.stuck(now) } else { None };
    let demand = verdict.and_then(|()| {
        let estimate = state.estimator.estimate(sample, context.host_memory, now);
        estimate.map(|it| it.demand.size).map_err(held_without)
    });
    // Memory taken by a resident cap counts as free only while the cap is certain to be kept.
    let is_cap_kept = || {
        let verdict = match &stuck {
            Some(stuck) => Err(stuck),
            None => demand.as_ref().map(|_| ()),
        };
        let is_entitled = shared.is_some() || state.log.entitlement().is_some();
        let has_floor = state.bounds.or(limits.bounds_for(sample)).is_some();
        let is_ending = state.resident_cap.is_ending();
        !is_ending && has_floor && keeps_caps(verdict, is_entitled, may_page)
    };
    let input = AssessmentInput {
        now,
        sample,
        limits,
        log: &state.log,
        cap: state.cap().filter(|_| is_cap_kept()),
        holding: &state.holding,
        shared,
        paged_out,
        believed_percent,
        stale_after,
    };
    let mut assessment = Assessment::new(&input, demand, stuck);
    state.bounds = assessment.bounds.or(state.bounds);
    if let Some(settings) = hotplug {
        let range = match state.actuator.as_deref() {
            Some(actuator) => actuator.range(now, sample, settings),
            None => range(sample, true, settings),
        };
        assessment.bounds = within(assessment.bounds, range);
    }
    let is_beyond = assessment.debt() > Bytes::ZERO && assessment.beyond >= COLLECTED_DEBT_MIN;
    state.beyond_since = is_beyond.then(|| state.beyond_since.unwrap_or(now));
    count(&assessment);
    GuestTick { sample, limits, state, assessment }
}

/// The operator's bounds, clamped to the range that the guest can be brought to.
fn within(bounds: Option<Bounds>, range: Option<Range>) -> Option<Bounds> {
    let (Bounds { floor, ceiling }, Range { least, most }) = (bounds?, range?);
    let floor = floor.clamp(least.min(most), most);
    Some(Bounds { floor, ceiling: ceiling.clamp(floor, most) })
}

/// Why a guest without an estimate is left alone.
fn held_without(missing: NoEstimate) -> HoldReason {
    match missing {
        NoEstimate::NoAllocation => HoldReason::NoAllocation,
        NoEstimate::NoStatistics => HoldReason::NoStatistics,
        NoEstimate::SampledAlone { working_set } => HoldReason::SampledAlone { working_set },
        NoEstimate::Implausible(what) => HoldReason::Implausible(what),
    }
}
