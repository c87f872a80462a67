//! From what was seen of a guest to where it stands, and to what a policy is told of it.

use std::time::Duration;

use ballast_estimate::NoEstimate;
use ballast_guard::check::Before;
use ballast_guard::{Paged, Record, Standing};
use ballast_mechanism::paging::{Bound, OVERHEAD};
use ballast_model::{
    Bytes, Change, Estimate, GuestLimits, GuestPlan, GuestSample, Held, MemoryRequest, Snapshot,
    Timestamp, in_step,
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
    let estimate = standing.estimate()?;
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

/// What the process of a guest that owes is held to, or is to be once the plan of before is carried out: a bound follows
/// what is asked. What the host takes of the richest it takes for itself, and rents it out to nobody.
pub(crate) fn bound_of(bound: Option<&Bound>, record: &Record) -> Option<Bytes> {
    let asked = record.asked()?;
    Some(bound?.in_force()?.max(asked.saturating_add(OVERHEAD).page_ceil()))
}

/// What the checker has to know of a guest that is asked for `ask` anew, or has another target from now on.
pub(crate) fn before(
    standing: &Standing,
    record: &Record,
    bound: &Bound,
    planned: &GuestPlan,
    ask: Option<Bytes>,
    now: Timestamp,
) -> Before {
    let bound = bound_of(Some(bound), record);
    let target = planned.target.map(|target| target.saturating_add(record.lent()));
    let next = match planned.change {
        // Nothing is granted by leaving a guest alone of which too little is known to hold it to anything.
        Change::CancelShrink { .. } => None,
        _ if record.stuck(now).is_some() => ask,
        _ => target,
    };
    let had = record.asked().unwrap_or_default().max(standing.unsparable());
    let more = next.unwrap_or_default().saturating_sub(had);
    Before {
        target: record.target(),
        lent: record.lent(),
        bound,
        bound_next: bound.map(|bound| bound.saturating_add(more)),
        last_seen: record.last_seen(),
        known_for: record.known_for(now),
    }
}

/// Where a guest stands, by its demand, and why it is left alone although that is known, if it is.
pub(crate) fn standing(
    guest: &GuestSample,
    limits: &GuestLimits,
    record: Option<&Record>,
    bound: Option<Bytes>,
    stale_after: Duration,
    now: Timestamp,
    (estimate, stuck): (Result<Estimate, Held>, Option<Held>),
) -> Standing {
    let allocation = guest.allocation.map(|measured| measured.value);
    let in_force = record.and_then(Record::target);
    let held = allocation.or_else(|| record?.last_seen());
    let promised = record.and_then(Record::promised);
    let committed = held.max(promised).or(guest.present_memory()).unwrap_or(Bytes::ZERO);
    let occupies = guest.resident.filter(|resident| resident.age <= stale_after);
    let paged = bound.zip(record.and_then(Record::asked)).filter(|_| occupies.is_some());
    let paged = paged.map(|(bound, asked)| Paged { asked, bound });
    // The host takes what is beyond a bound, which leaves room for the hypervisor: that is nothing promised.
    let committed = match paged.zip(occupies) {
        Some((paged, occupies)) => committed.min(occupies.value.max(paged.bound)),
        None => committed,
    };
    let (verdict, demand_stuck) = match stuck {
        Some(stuck) => (Err(stuck), estimate.ok().filter(|_| paged.is_some()).map(Box::new)),
        None => (estimate, None),
    };
    let asked = paged.filter(|_| demand_stuck.is_some()).map(|paged| paged.asked);
    Standing {
        id: guest.id.clone(),
        allocation,
        bounds: limits.bounds_for(guest),
        least: record.and_then(|record| record.least(guest, limits, stale_after)),
        shares: limits.shares,
        priority: limits.priority,
        miss_rate_max: limits.miss_rate_max,
        committed,
        reference: asked.or(in_force).or(allocation),
        occupied: guest.resident.map_or(Bytes::ZERO, |resident| resident.value.min(committed)),
        known_for: record.map_or(Duration::ZERO, |record| record.known_for(now)),
        verdict,
        paged,
        demand_stuck,
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
