//! Divide: the problem that the policy solves, and what guests that thrash get back.

use ballast_actuation::thrash::ThrashSettings;
use ballast_guard::Assessment;
use ballast_model::{
    Bounds, Bytes, Clamped, DemandSource, Desired, Estimate, Mechanism, RequestKind,
};
use ballast_policy::{Contender, Problem};

use crate::needs::{Need, add_needs};
use crate::tick::{GuestTick, Tick};

/// Less than this, proven since the last decision, is not worth another decision.
const PROVEN_MIN: Bytes = Bytes::mib(32);

/// How much more than a limit on its process leaves is wanted for a guest, so that the limit shows
/// as what holds it.
const BEYOND_ROOM: Bytes = Bytes::mib(64);

/// A problem for the policy.
#[derive(Debug)]
pub(crate) struct PosedProblem {
    /// The least that each guest that thrashed gets back; empty: no guest gets anything back.
    pub(crate) given_back: Vec<Option<Bytes>>,
    pub(crate) problem: Problem,
}

/// What the policy wants, and what is given back regardless.
#[derive(Debug)]
pub(crate) struct Divided {
    /// The least that each guest that thrashed gets back; empty: no guest gets anything back.
    pub(crate) given_back: Vec<Option<Bytes>>,
    /// What the policy wants for the contenders, in their order.
    pub(crate) wanted: Vec<Desired>,
}

/// The problem of dividing `left` among the guests that can be moved. A guest's claims count up to
/// [`Assessment::believed`].
pub(crate) fn problem(tick: &Tick<'_>, left: Bytes, given_back: &[Option<Bytes>]) -> Problem {
    let mut contenders = Vec::with_capacity(tick.guests.len());
    let mut needs = Vec::new();
    for (place, guest) in tick.guests.iter().enumerate() {
        let Some(estimate) = guest.estimate() else { continue };
        let used = estimate.used.min(believed_use(&guest.assessment));
        // Both count only as far as they are believed.
        let believed = guest.assessment.believed.saturating_sub(used);
        let swap = estimate.swap_need.min(believed);
        let cache = estimate.cache_need.min(believed.saturating_sub(swap));
        if swap.max(cache) > Bytes::ZERO {
            needs.push(Need::new(contenders.len(), swap, cache));
        }
        let given_back = given_back.get(place).copied().flatten();
        contenders.push(contender(
            guest,
            estimate,
            used,
            given_back,
            tick.rooms.left(guest.sample),
        ));
    }
    add_needs(&mut contenders, &mut needs, left);
    Problem::in_order(left, contenders).at(tick.snapshot.taken_at).on(tick.snapshot.host.clone())
}

/// A movable guest as the policy sees it: `used` is the use that is believed, `given_back` the
/// least that it gets back, and `room` what limits on its process leave it. No other guest gives
/// memory for what it cannot get.
fn contender(
    guest: &GuestTick<'_>,
    estimate: &Estimate,
    used: Bytes,
    given_back: Option<Bytes>,
    room: Bytes,
) -> Contender {
    let (assessment, limits) = (&guest.assessment, guest.limits);
    let believed = assessment.believed;
    let mut demand = estimate.demand;
    demand.size = demand.size.min(believed);
    if demand.source == DemandSource::Used {
        demand.size = demand.size.min(used);
    }
    let mut signals = estimate.signals;
    signals.committed = signals.committed.map(|claim| claim.min(believed));
    signals.probed = signals.probed.map(|claim| claim.min(believed));
    if let Some(request) = &mut signals.request
        && request.kind != RequestKind::Less
    {
        request.amount = request.amount.min(believed.saturating_sub(assessment.filled));
    }
    let Bounds { floor, ceiling } = assessment.bounds.unwrap_or_default();
    let given_back = given_back.map(|held| held.min(believed));
    let least = given_back.max(assessment.min_without_swap).unwrap_or_default();
    let unguaranteed = least.saturating_sub(floor);
    let floor = floor.max(least);
    let reachable = assessment.committed.saturating_add(room).saturating_add(BEYOND_ROOM);
    let ceiling = ceiling.min(assessment.sampled_most.unwrap_or(ceiling)).min(reachable).max(floor);
    Contender {
        id: guest.sample.id.clone(),
        used,
        floor,
        unguaranteed,
        ceiling,
        shares: limits.shares,
        priority: limits.priority,
        miss_rate_max: limits.miss_rate_max,
        allocation: assessment.reference.unwrap_or(assessment.committed),
        held: Some(used.saturating_add(estimate.available)),
        balloon_rate: guest.state.rates.measured(Mechanism::Balloon),
        demand: Some(demand),
        curve: estimate.curve.clone(),
        signals,
    }
}

/// How much of the use that a guest claims is believed. It may well use what it took without a
/// grant, but believing that would let it get by taking what an honest guest cannot request.
fn believed_use(assessment: &Assessment) -> Bytes {
    assessment.believed.min(assessment.may_use)
}

/// What a guest claims to need.
struct GuestClaim {
    /// Its use or, where its whole use is believed, its demand.
    claimed: Bytes,
    /// How much of that is believed.
    believed: Bytes,
}

fn claim(guest: &GuestTick<'_>) -> Option<GuestClaim> {
    let (assessment, estimate) = (&guest.assessment, guest.estimate()?);
    let use_at_most = believed_use(assessment);
    Some(match estimate.used > use_at_most {
        true => GuestClaim { claimed: estimate.used, believed: use_at_most },
        false => GuestClaim {
            claimed: estimate.demand.size.max(estimate.needed()),
            believed: assessment.believed,
        },
    })
}

/// The part of a guest's claim that was withheld from the policy, if any.
pub(crate) fn unproven(guest: &GuestTick<'_>) -> Option<Clamped> {
    let GuestClaim { claimed, believed } = claim(guest)?;
    let filled = guest.assessment.filled;
    (claimed > believed).then_some(Clamped::Unproven { claimed, believed, filled })
}

/// Whether a guest whose claim was clipped at the last decision has filled more memory since.
/// Another decision would then believe more of the claim.
pub(crate) fn has_proven_more(guest: &GuestTick<'_>) -> bool {
    let clamps = guest.state.goal.as_ref().map_or(&[][..], |goal| &goal.clamps);
    let Some(Clamped::Unproven { believed, .. }) = clamps.first() else { return false };
    let now = claim(guest).map_or(Bytes::ZERO, |claim| claim.believed);
    now.saturating_sub(*believed) >= PROVEN_MIN
}

/// Whether a guest's need leaves less than `reserve` of its target, and grew by more than
/// `dead_band` since the last decision. Without the second condition, a guest that always lacks
/// memory would force a decision in every tick.
pub(crate) fn needs_more(guest: &GuestTick<'_>, reserve: Bytes, dead_band: Bytes) -> bool {
    let (Some(estimate), Some(goal)) = (guest.estimate(), &guest.state.goal) else { return false };
    // Page cache can wait for the next decision.
    let needed = estimate.used_and_swapped();
    let before = guest.state.needed.unwrap_or(Bytes::ZERO);
    needed.saturating_add(reserve) > goal.target && needed.saturating_sub(before) > dead_band
}

/// What each guest that is to get memory back held before it thrashed. No guest gets memory back if
/// the demands of all do not fit into `left`, or if another guest lacks memory: one of them would
/// thrash in any case.
pub(crate) fn given_back(
    tick: &Tick<'_>,
    left: Bytes,
    settings: &ThrashSettings,
) -> Vec<Option<Bytes>> {
    if !tick.has_thrashed {
        return Vec::new();
    }
    let now = tick.snapshot.taken_at;
    let mut given: Vec<Option<Bytes>> =
        tick.guests.iter().map(|guest| guest.state.thrash.least(now)).collect();
    // A guest may still lack memory with what it is given back.
    let lacks = |(guest, held): (&GuestTick<'_>, &Option<Bytes>)| {
        guest.state.thrash.lacks(settings) && guest.assessment.allocation >= *held
    };
    let lacking: Vec<bool> = tick.guests.iter().zip(&given).map(lacks).collect();
    let count = lacking.iter().filter(|lacks| **lacks).count();
    let mut needed = Bytes::ZERO;
    for (place, guest) in tick.guests.iter().enumerate() {
        let held = given[place].filter(|_| count == usize::from(lacking[place]));
        given[place] = held.and_then(|held| gets_back(guest, held));
        needed = needed.saturating_add(needed_by(guest, given[place]));
    }
    if needed > left { Vec::new() } else { given }
}

/// What a guest gets back of `held`: as much as its bounds allow, if it may be moved.
fn gets_back(guest: &GuestTick<'_>, held: Bytes) -> Option<Bytes> {
    let Bounds { floor, ceiling } = movable_bounds(guest)?;
    Some(held.clamp(floor, ceiling))
}

/// The least that a guest needs, with what it gets back.
fn needed_by(guest: &GuestTick<'_>, gets_back: Option<Bytes>) -> Bytes {
    let (Some(bounds), Some(estimate)) = (movable_bounds(guest), guest.estimate()) else {
        return Bytes::ZERO;
    };
    let demand = estimate.demand.size.min(guest.assessment.believed);
    demand.max(bounds.floor).max(gets_back.unwrap_or_default())
}

/// The bounds of a guest that may be moved and has an estimate.
fn movable_bounds(guest: &GuestTick<'_>) -> Option<Bounds> {
    let is_movable = guest.assessment.verdict.is_ok() && guest.estimate().is_some();
    guest.assessment.bounds.filter(|_| is_movable)
}
