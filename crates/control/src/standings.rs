//! From what was seen of a guest to where it stands, and to what a policy is told of it.

use std::time::Duration;

use ballast_estimate::NoEstimate;
use ballast_guard::{Record, Standing};
use ballast_model::{
    Bytes, Estimate, GuestLimits, GuestSample, Held, MemoryRequest, Snapshot, Timestamp, in_step,
};
use ballast_policy::Contender;

use crate::Settings;

/// The limits of every guest of a snapshot.
pub(crate) fn limits_in_step<'a>(
    settings: &'a Settings,
    snapshot: &Snapshot,
) -> Vec<&'a GuestLimits> {
    let own = in_step(snapshot, &settings.limits);
    own.into_iter().map(|own| own.unwrap_or(&settings.limits_default)).collect()
}

/// Whether memory can be plugged into any guest.
pub(crate) fn has_hotplug(snapshot: &Snapshot) -> bool {
    snapshot.guests().iter().any(|guest| guest.hotplug.is_some())
}

/// What a policy is told of a guest that can be moved, and of what it is `given_back`.
pub(crate) fn contender(standing: &Standing, given_back: Option<Bytes>) -> Option<Contender> {
    let estimate = standing.verdict.as_ref().ok()?;
    let (floor, ceiling) = standing.bounds.unwrap_or_default();
    let floor = floor.max(given_back.unwrap_or_default()).max(standing.least.unwrap_or_default());
    Some(Contender {
        floor,
        ceiling: ceiling.max(floor),
        shares: standing.shares,
        priority: standing.priority,
        miss_rate_max: standing.miss_rate_max,
        allocation: standing.reference.unwrap_or(standing.committed),
        held: Some(estimate.used.saturating_add(estimate.available)),
        demand: Some(estimate.demand),
        curve: estimate.curve.clone(),
        signals: estimate.signals,
        ..Contender::new(standing.id.clone(), estimate.used)
    })
}

pub(crate) fn request_of(standing: &Standing) -> Option<MemoryRequest> {
    standing.verdict.as_ref().ok()?.signals.request
}

pub(crate) fn standing(
    guest: &GuestSample,
    limits: &GuestLimits,
    record: Option<&Record>,
    bound: Option<Bytes>,
    stale_after: Duration,
    now: Timestamp,
    verdict: Result<Estimate, Held>,
) -> Standing {
    let allocation = guest.allocation.map(|measured| measured.value);
    let in_force = record.and_then(Record::target);
    let held = allocation.or_else(|| record?.last_seen());
    let promised = record.and_then(Record::promised);
    let committed = held.max(promised).or(guest.present_memory()).unwrap_or(Bytes::ZERO);
    let committed = match (bound, guest.resident) {
        // The host takes what is beyond that. A bound leaves room for the hypervisor, which is nothing promised.
        (Some(bound), Some(resident)) if resident.age <= stale_after => {
            committed.min(resident.value.max(bound))
        }
        _ => committed,
    };
    Standing {
        id: guest.id.clone(),
        allocation,
        bounds: limits.bounds_for(guest),
        least: record.and_then(|record| record.least(guest, limits, stale_after)),
        shares: limits.shares,
        priority: limits.priority,
        miss_rate_max: limits.miss_rate_max,
        committed,
        reference: in_force.or(allocation),
        occupied: guest.resident.map_or(Bytes::ZERO, |resident| resident.value.min(committed)),
        known_for: record.map_or(Duration::ZERO, |record| record.known_for(now)),
        verdict,
    }
}

/// The operator's bounds, as far as the guest can be got there.
pub(crate) fn within(
    bounds: Option<(Bytes, Bytes)>,
    range: Option<(Bytes, Bytes)>,
) -> Option<(Bytes, Bytes)> {
    let ((floor, ceiling), (least, most)) = (bounds?, range?);
    let floor = floor.clamp(least.min(most), most);
    Some((floor, ceiling.clamp(floor, most)))
}

/// Why a guest without an estimate is left alone.
pub(crate) fn held_without(missing: NoEstimate) -> Held {
    match missing {
        NoEstimate::NoAllocation => Held::NoAllocation,
        NoEstimate::NoStatistics => Held::NoStatistics,
        NoEstimate::Implausible(what) => Held::Implausible(what),
    }
}
