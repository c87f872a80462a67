//! Observe and assess: from what was seen of a guest to what is known of it.
//!
//! Cost: O(1) a guest. A guest is assessed right after it was observed, while what is remembered of
//! it is at hand.

use std::time::Duration;

use ballast_actuation::hotplug::{HotplugSettings, Range, range};
use ballast_estimate::NoEstimate;
use ballast_guard::{Assessment, Known, OwnerWatch, verdict};
use ballast_model::{Bounds, Bytes, Held, PerGuest, Snapshot, Timestamp};

use crate::Settings;
use crate::page::keeps_caps;
use crate::state::GuestState;
use crate::tick::{GuestTick, Seen};

/// Takes a sample of every guest in: what happened to each since the last one. `guests` are in step
/// with the snapshot.
pub(crate) fn observe<'a>(
    guests: &'a mut PerGuest<GuestState>,
    snapshot: &'a Snapshot,
    settings: &'a Settings,
) -> impl Iterator<Item = Seen<'a>> {
    let (now, stale_after) = (snapshot.taken_at, settings.guard.stale_after);
    let mut limits = settings.limits.in_order();
    let owner = snapshot.host.balloon_owner;
    snapshot.guests().iter().zip(guests.values_mut()).map(move |(sample, state)| {
        let limits = limits.of(&sample.id);
        let verdict = verdict(sample, limits, stale_after, settings.hotplug.is_some());
        let thrashes = state.observe(sample, verdict.is_ok(), now, settings);
        if limits.take_over {
            // What it did until now is no reason to stand back later.
            state.owner = OwnerWatch::default();
        }
        let verdict = match verdict {
            Ok(()) if state.owner.is_owned() => Err(Held::AnotherOwner { owner }),
            other => other,
        };
        Seen { sample, limits, state, verdict, thrashes }
    })
}

/// Less than this beyond its entitlement is not collected from a guest.
const DEBT_MIN: Bytes = Bytes::mib(16);

/// What a guest is assessed by beside itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By<'a> {
    pub(crate) now: Timestamp,
    pub(crate) stale_after: Duration,
    pub(crate) believed_percent: u64,
    /// What there is for all guests, and their shares in all; `None`: not known.
    pub(crate) shared: Option<(Bytes, u64)>,
    /// What the host has paged out of all its processes.
    pub(crate) paged_out: Bytes,
    /// The host's memory.
    pub(crate) host_memory: Bytes,
    /// Whether the host can page out more.
    pub(crate) may_page: bool,
    /// `None`: nothing is plugged in or out.
    pub(crate) hotplug: Option<&'a HotplugSettings>,
}

/// What is known of one guest. `count` takes it into the totals.
pub(crate) fn assess<'a>(
    seen: Seen<'a>,
    by: By<'_>,
    count: impl FnOnce(&Assessment),
) -> GuestTick<'a> {
    let By { now, stale_after, believed_percent, shared, paged_out, may_page, hotplug, .. } = by;
    let Seen { sample, limits, state, verdict, .. } = seen;
    // One that says nothing is asked for nothing, so it cannot be late with it.
    let is_asked = verdict.is_ok() && sample.stats.is_some();
    let stuck = if is_asked { state.log.stuck(now) } else { None };
    let demand = verdict.and_then(|()| {
        let estimate = state.estimator.estimate(sample, by.host_memory, now);
        estimate.map(|it| it.demand.size).map_err(held_without)
    });
    // What a cap took counts as free only as long as the cap is sure to be kept.
    let is_kept = |_: &Bytes| {
        let verdict = match &stuck {
            Some(stuck) => Err(stuck),
            None => demand.as_ref().map(|_| ()),
        };
        let is_entitled = shared.is_some() || state.log.entitlement().is_some();
        let has_floor = state.bounds.or(limits.bounds_for(sample)).is_some();
        let is_ending = state.resident_cap.is_ending();
        !is_ending && has_floor && keeps_caps(verdict, is_entitled, may_page)
    };
    let known = Known {
        now,
        sample,
        limits,
        log: &state.log,
        cap: state.cap().filter(is_kept),
        holding: &state.holding,
        shared,
        paged_out,
        believed_percent,
        stale_after,
    };
    let mut assessment = Assessment::new(&known, demand, stuck);
    state.bounds = assessment.bounds.or(state.bounds);
    if let Some(settings) = hotplug {
        let range = match state.actuator.as_deref() {
            Some(actuator) => actuator.range(now, sample, settings),
            None => range(sample, true, settings),
        };
        assessment.bounds = within(assessment.bounds, range);
    }
    let is_beyond = assessment.debt() > Bytes::ZERO && assessment.beyond >= DEBT_MIN;
    state.beyond_since = is_beyond.then(|| state.beyond_since.unwrap_or(now));
    count(&assessment);
    GuestTick { sample, limits, state, assessment }
}

/// The operator's bounds, as far as the guest can be got there.
fn within(bounds: Option<Bounds>, range: Option<Range>) -> Option<Bounds> {
    let (Bounds { floor, ceiling }, Range { least, most }) = (bounds?, range?);
    let floor = floor.clamp(least.min(most), most);
    Some(Bounds { floor, ceiling: ceiling.clamp(floor, most) })
}

/// Why a guest without an estimate is left alone.
fn held_without(missing: NoEstimate) -> Held {
    match missing {
        NoEstimate::NoAllocation => Held::NoAllocation,
        NoEstimate::NoStatistics => Held::NoStatistics,
        NoEstimate::SampledAlone { working_set } => Held::SampledAlone { working_set },
        NoEstimate::Implausible(what) => Held::Implausible(what),
    }
}
