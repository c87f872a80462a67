//! Page: the caps on guests' processes, and which of them the host pages out or in.
//!
//! Cost: O(1) per guest, O(n log n) where the host takes from the richest. Limits: which pages go
//! is decided elsewhere.

use ballast_actuation::paging::{PagingInput, ResidentCap, Wealth, richest};
use ballast_actuation::rates::{Reduction, choose};
use ballast_model::{
    Bounds, Bytes, Compliance, HoldReason, Mechanism, MechanismReason, PressureLevel, RunState,
    Timestamp,
};

use crate::Settings;
use crate::state::GuestState;
use crate::tick::{GuestTick, Paged, Tick};

/// A smaller debt keeps no cap in force.
const CAPPED_DEBT_MIN: Bytes = Bytes::mib(4);

/// The host as paging sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host<'a> {
    pub(crate) now: Timestamp,
    pub(crate) level: PressureLevel,
    /// Whether more is committed to guests than there is, or the host itself runs short.
    pub(crate) lacks: bool,
    /// Whether the host has somewhere to page out to.
    pub(crate) may_page: bool,
    /// Whether nothing at all is moved.
    pub(crate) is_held: bool,
    pub(crate) settings: &'a Settings,
}

/// The cap on the process of one guest. `is_rich`: the host takes from the guest although it owes
/// nothing.
pub(crate) fn page(guest: &GuestTick<'_>, is_rich: bool, host: Host<'_>) -> Paged {
    let state = &*guest.state;
    let verdict = guest.assessment.verdict.as_ref().copied();
    if !keeps_caps(verdict, guest.assessment.is_entitled, host.may_page) {
        return Paged { cap: ResidentCap::default(), page: None };
    }
    let mut cap = state.resident_cap;
    let take_to = if is_known(guest) {
        let owed = owed(guest, host).or_else(|| still_owed(guest));
        match (owed, wanted_target(state)) {
            (None, Some(wanted)) if is_rich => {
                Some((wanted, MechanismReason::HostShort { level: host.level }))
            }
            (owed, _) => owed,
        }
    } else {
        // A guest that does not answer, or does not answer truly, is held to its entitlement: its
        // figures justify taking no more, and giving no more.
        let Some(take_to) = entitlement_cap(guest, host) else { return Paged { cap, page: None } };
        Some(take_to)
    };
    let page = cap.decide(&PagingInput {
        now: host.now,
        resident: guest.sample.resident,
        holds: guest.assessment.allocation,
        take_to,
        floor: state.bounds.map(|bounds| bounds.floor),
        may_read_back: host.level == PressureLevel::Normal,
        stale_after: host.settings.guard.stale_after,
    });
    Paged { cap, page: page.filter(|_| !host.is_held) }
}

/// Whether the host can keep a guest with this verdict to a cap. If not, everything that the guest
/// holds counts.
///
/// The host takes nothing from a guest that the operator excludes. It takes nothing while a
/// hypervisor moves or saves its guest, because that needs all of the memory. And it takes nothing
/// where neither the guest's demand nor its entitlement is known.
pub(crate) fn keeps_caps(
    verdict: Result<(), &HoldReason>,
    is_entitled: bool,
    may_page: bool,
) -> bool {
    may_page
        && match verdict {
            Err(
                HoldReason::OptedOut
                | HoldReason::NotRunning { state: RunState::Incoming | RunState::Other(_) },
            ) => false,
            Ok(()) | Err(HoldReason::Stuck { .. }) => true,
            Err(_) => is_entitled,
        }
}

fn is_known(guest: &GuestTick<'_>) -> bool {
    matches!(guest.assessment.verdict, Ok(()) | Err(HoldReason::Stuck { .. }))
}

/// The entitlement of a guest that is left alone, if the guest is to be paged out or held to it:
/// because it is held already, or because it has been beyond it for longer than the release grace.
/// A guest that was never granted anything gives only while others lack memory.
fn entitlement_cap(guest: &GuestTick<'_>, host: Host<'_>) -> Option<(Bytes, MechanismReason)> {
    let (assessment, state) = (&guest.assessment, &*guest.state);
    let is_held = state.resident_cap.in_force().is_some();
    let is_late =
        |since: Timestamp| host.now.saturating_since(since) >= host.settings.guard.release_grace;
    let is_due = state.beyond_since.is_some_and(is_late) && (assessment.was_granted || host.lacks);
    let entitlement = assessment.entitlement;
    (is_held || is_due).then_some((entitlement, MechanismReason::BeyondEntitlement { entitlement }))
}

/// The entitlement of a guest that is capped and still holds more. The guest answers again, but
/// others have been given what the host took from it.
fn still_owed(guest: &GuestTick<'_>) -> Option<(Bytes, MechanismReason)> {
    let entitlement = guest.state.log.entitlement()?;
    let holds = guest.assessment.allocation?;
    let owes = guest.state.resident_cap.in_force().is_some()
        && holds.saturating_sub(entitlement) >= CAPPED_DEBT_MIN;
    owes.then_some((entitlement, MechanismReason::BeyondEntitlement { entitlement }))
}

/// What a guest was asked to hold and is to be paged out for, and why.
fn owed(guest: &GuestTick<'_>, host: Host<'_>) -> Option<(Bytes, MechanismReason)> {
    let state = &*guest.state;
    let asked = state.log.asked()?;
    let amount = guest.sample.allocation?.value.saturating_sub(asked);
    let compliance = state.log.compliance(host.now);
    let level = host.level;
    let reduction = Reduction { sample: guest.sample, compliance, amount, level };
    match choose(&reduction, &state.rates)? {
        (Mechanism::PageOut, why) => Some((asked, why)),
        // Others may have the memory that the host took, so the cap stays at what was asked for
        // until the guest has given all of it.
        _ if state.resident_cap.in_force().is_some() => {
            let Compliance::Releasing { left, idle } = compliance else { return None };
            Some((asked, MechanismReason::NotGiven { left, asked: idle }))
        }
        _ => None,
    }
}

/// What the policy wants for a guest.
fn wanted_target(state: &GuestState) -> Option<Bytes> {
    state.goal.as_ref().map(|goal| goal.desired.target)
}

/// For each guest, whether the host takes from it because it is among the richest. Empty: the host
/// takes from no guest.
pub(crate) fn rich(tick: &Tick<'_>, host: Host<'_>) -> Vec<bool> {
    let available = tick.snapshot.host.memory_available;
    let (Some(available), true) = (available, host.level >= PressureLevel::ReclaimRichest) else {
        return Vec::new();
    };
    let wealth = |guest: &GuestTick<'_>| {
        let (assessment, state) = (&guest.assessment, &*guest.state);
        let floor = assessment.bounds.map(|Bounds { floor, .. }| floor);
        let least = wanted_target(state).max(floor).unwrap_or(Bytes::MAX);
        let holds = assessment.allocation.filter(|_| assessment.verdict.is_ok());
        let beyond = holds.unwrap_or_default().saturating_sub(least);
        Wealth { beyond, was_rich: state.resident_cap.in_force().is_some() }
    };
    let wealth: Vec<Wealth> = tick.guests.iter().map(wealth).collect();
    richest(&wealth, host.settings.guard.host_reserve.saturating_sub(available))
}
