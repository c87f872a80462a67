//! An independent checker of finished plans.
//!
//! Idea: the code that makes plans could be wrong, so every plan is checked, in production too, by
//! code that shares nothing with it but the vocabulary: it recomputes from the snapshot what may be
//! done and compares. It imports no policy and none of the guard's other files.
//!
//! Checked: conservation (grants within what is free of budget and host), floors, what guests
//! without swap use, ceilings, step limits, the host's reserve, no reduction on stale or missing
//! figures, no action on guests that are not to be touched, releases before grants, form (whole
//! pages, generation, deadline, each guest once), and of plugging: whole blocks within the device,
//! and never against the balloon.
//!
//! Cost: O(n log n). Limits: that targets are wise is not checked, only that they are safe.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ballast_model::{
    Action, Bytes, GuestId, GuestLimits, GuestSample, LinkState, Measured, Mechanism, Plan,
    RunState, Snapshot, in_step,
};

/// What a plan must keep to.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The operator's budget; `None`: the host's memory less the reserve.
    pub budget: Option<Bytes>,
    /// Memory of the host that no grant may touch.
    pub host_reserve: Bytes,
    /// Greatest age of figures on which a guest may be shrunk or granted memory.
    pub stale_after: Duration,
    /// Most a guest may grow per decision.
    pub step_up_max: Option<Bytes>,
    /// Most a guest may shrink per decision.
    pub step_down_max: Option<Bytes>,
    /// Each guest's limits; a guest not named has the default ones.
    pub limits: &'a BTreeMap<GuestId, GuestLimits>,
    /// Limits of guests not named.
    pub limits_default: &'a GuestLimits,
    /// What was known of each guest before the plan, sorted by name; a guest not named is new.
    pub before: &'a [(&'a GuestId, Before)],
    /// Whether the operator has paused acting.
    pub paused: bool,
}

/// What was known of a guest before a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// The target in force.
    pub target: Option<Bytes>,
    /// What it was promised beyond that, while memory is plugged in or out.
    pub lent: Bytes,
    /// What the host holds its process to; `None`: nothing.
    pub bound: Option<Bytes>,
    /// What it is held to from then on, where that is more.
    pub bound_next: Option<Bytes>,
    /// What it was last seen to hold, should it not be seen now.
    pub last_seen: Option<Bytes>,
    /// How long it has been known.
    pub known_for: Duration,
}

/// While a guest has been known for less than this, nothing is granted to anybody.
const SETTLES_IN: Duration = Duration::from_secs(2);

/// What is wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An action while the operator has paused acting.
    WhilePaused,
    /// An action for a guest that is not in the snapshot.
    UnknownGuest(GuestId),
    /// Two actions for one guest.
    Twice(GuestId),
    /// A target that is no whole number of pages.
    NotWholePages(GuestId, Bytes),
    /// An action whose generation is not the plan's, or whose deadline has passed.
    Malformed(GuestId),
    /// An action for a guest that must not be touched; the text says why.
    Untouchable(GuestId, &'static str),
    /// A reduction below the floor.
    BelowFloor {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        target: Bytes,
        /// Its floor.
        floor: Bytes,
    },
    /// A reduction below what a guest uses that has no swap for the rest.
    BelowUse {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        target: Bytes,
        /// What it uses, less the swap it has left.
        used: Bytes,
    },
    /// Growth beyond the ceiling.
    AboveCeiling {
        /// The guest.
        guest: GuestId,
        /// Target planned.
        target: Bytes,
        /// Its ceiling.
        ceiling: Bytes,
    },
    /// A change on figures that are missing or too old.
    OnStaleFigures(GuestId),
    /// A change beyond the operator's step limit.
    StepTooLarge(GuestId),
    /// Memory to be plugged in that cannot be: there is no device, it has less, or these are no whole blocks.
    PlugImpossible {
        /// The guest.
        guest: GuestId,
        /// What is to be plugged in.
        plug: Bytes,
        /// The most that can be, zero without a device.
        max: Bytes,
        /// In multiples of this.
        block: Bytes,
    },
    /// The balloon is to take while memory is plugged in, or to give while some is pulled out. A guest does either at
    /// its own pace, so that in between it could hold less or more than before and after.
    PlugAgainstBalloon(GuestId),
    /// A release after a grant.
    ReleaseAfterGrant(GuestId),
    /// More granted than is free.
    Overcommitted {
        /// Memory granted anew.
        granted: Bytes,
        /// Memory free to be granted.
        free: Bytes,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::WhilePaused => f.write_str("action while paused"),
            Violation::UnknownGuest(id) => write!(f, "{id}: not in the snapshot"),
            Violation::Twice(id) => write!(f, "{id}: two actions"),
            Violation::NotWholePages(id, target) => {
                write!(f, "{id}: target {target:#} is not whole pages")
            }
            Violation::Malformed(id) => write!(f, "{id}: wrong generation or deadline passed"),
            Violation::Untouchable(id, why) => write!(f, "{id}: must not be touched: {why}"),
            Violation::BelowFloor { guest, target, floor } => {
                write!(f, "{guest}: target {target} below floor {floor}")
            }
            Violation::BelowUse { guest, target, used } => {
                write!(f, "{guest}: target {target} below the {used} it uses, without swap")
            }
            Violation::AboveCeiling { guest, target, ceiling } => {
                write!(f, "{guest}: target {target} above ceiling {ceiling}")
            }
            Violation::OnStaleFigures(id) => write!(f, "{id}: changed on missing or stale figures"),
            Violation::StepTooLarge(id) => write!(f, "{id}: change beyond the step limit"),
            Violation::PlugImpossible { guest, plug, max, block } => {
                write!(
                    f,
                    "{guest}: {plug} cannot be plugged in: at most {max} in blocks of {block}"
                )
            }
            Violation::PlugAgainstBalloon(id) => {
                write!(f, "{id}: balloon and plugged memory move against each other")
            }
            Violation::ReleaseAfterGrant(id) => write!(f, "{id}: release ordered after a grant"),
            Violation::Overcommitted { granted, free } => {
                write!(f, "{granted} granted where {free} is free")
            }
        }
    }
}

/// Everything wrong with `plan`, which was made from `snapshot` under `rules`.
pub fn violations(plan: &Plan, snapshot: &Snapshot, rules: &Rules<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    if rules.paused && !plan.actions.is_empty() {
        found.push(Violation::WhilePaused);
    }
    let guests = look_up(snapshot, rules);
    let mut by_name: Vec<(usize, &Action)> = plan.actions.iter().enumerate().collect();
    by_name.sort_by(|(_, a), (_, b)| a.guest.cmp(&b.guest));
    let mut granted_by = vec![Bytes::ZERO; plan.actions.len()];
    let mut rest = guests.iter().peekable();
    let mut previous: Option<&GuestId> = None;
    for (order, action) in by_name {
        check_form(action, plan, &mut found);
        if previous == Some(&action.guest) {
            found.push(Violation::Twice(action.guest.clone()));
        }
        previous = Some(&action.guest);
        while rest.next_if(|guest| guest.sample.id < action.guest).is_some() {}
        match rest.peek() {
            Some(guest) if guest.sample.id == action.guest => {
                let holds = guest.sample.allocation.map_or(Bytes::ZERO, |it| it.value.page_ceil());
                granted_by[order] = action.target.saturating_sub(guest.committed.max(holds));
                check_guest(action, guest, rules, &mut found);
            }
            _ => found.push(Violation::UnknownGuest(action.guest.clone())),
        }
    }
    check_paging(plan, &guests, rules, &mut found);
    let first_grant = granted_by.iter().position(|&new| new > Bytes::ZERO);
    for (action, &new) in plan.actions.iter().zip(&granted_by).skip(first_grant.unwrap_or(0)) {
        if new == Bytes::ZERO && first_grant.is_some() {
            found.push(Violation::ReleaseAfterGrant(action.guest.clone()));
        }
    }
    let let_go: Bytes = guests.iter().map(|guest| guest.let_go).sum();
    let granted = granted_by.into_iter().sum::<Bytes>() + let_go;
    let free = free_to_grant(snapshot, &guests, rules);
    if granted > free {
        found.push(Violation::Overcommitted { granted, free });
    }
    found
}

/// A guest of the snapshot and what the rules have for it.
struct Guest<'a> {
    sample: &'a GuestSample,
    limits: &'a GuestLimits,
    before: Before,
    /// What it holds or may still take on the strength of its last target.
    committed: Bytes,
    /// What it may take beyond that as the host holds it to more.
    let_go: Bytes,
}

fn look_up<'a>(snapshot: &'a Snapshot, rules: &Rules<'a>) -> Vec<Guest<'a>> {
    let limits = in_step(snapshot, rules.limits);
    let before = in_step(snapshot, rules.before.iter().copied());
    let rules_for = limits.into_iter().zip(before);
    let guest = |(sample, (limits, before)): (&'a GuestSample, (Option<_>, Option<Before>))| {
        let before = before.unwrap_or_default();
        let holds = sample.allocation.map(|allocation| allocation.value);
        let promised = before.target.map(|target| target.saturating_add(before.lent));
        let occupies = sample.resident.filter(|it| it.age <= rules.stale_after);
        let holds = holds.or(before.last_seen).max(promised).or(sample.present_memory());
        let holds = holds.unwrap_or(Bytes::ZERO);
        let committed = match (before.bound, occupies) {
            // The host takes what is beyond that. A bound leaves room for the hypervisor, which is nothing promised.
            (Some(bound), Some(occupies)) => holds.min(occupies.value.max(bound)),
            _ => holds,
        };
        let within = |bound: Option<Bytes>| holds.min(bound.unwrap_or(Bytes::MAX));
        let let_go = within(before.bound.max(before.bound_next)) - within(before.bound);
        Guest { sample, limits: limits.unwrap_or(rules.limits_default), before, committed, let_go }
    };
    snapshot.guests().iter().zip(rules_for).map(guest).collect()
}

/// What can be seen of an action without its guest.
fn check_form(action: &Action, plan: &Plan, found: &mut Vec<Violation>) {
    if action.target.page_floor() != action.target {
        found.push(Violation::NotWholePages(action.guest.clone(), action.target));
    }
    if action.generation != plan.generation || action.deadline <= plan.decided_at {
        found.push(Violation::Malformed(action.guest.clone()));
    }
}

/// What concerns one guest alone.
fn check_guest(action: &Action, guest: &Guest<'_>, rules: &Rules<'_>, found: &mut Vec<Violation>) {
    let Guest { sample, limits, before, committed, .. } = *guest;
    let id = || sample.id.clone();
    // Where the balloon cannot be used, plugged memory still can.
    let by_plugging_alone = action.plug.is_some() && leaves_balloon_alone(action, sample);
    let untouchable = if !limits.managed {
        Some("excluded by the operator")
    } else if matches!(sample.link, LinkState::Down(_)) {
        Some("unreachable")
    } else if !matches!(sample.run_state, None | Some(RunState::Running)) {
        Some("not running")
    } else if by_plugging_alone {
        None
    } else if sample.capabilities.balloon == Some(false) {
        Some("no balloon")
    } else if sample.capabilities.discard_inhibited == Some(true) {
        Some("discard inhibited")
    } else {
        None
    };
    if let Some(why) = untouchable {
        found.push(Violation::Untouchable(id(), why));
    }
    if let Some(plug) = action.plug {
        check_plug(action, plug, guest, found);
    }
    let (Some(allocation), Some((floor, ceiling))) = (sample.allocation, limits.bounds_for(sample))
    else {
        found.push(Violation::OnStaleFigures(id()));
        return;
    };
    let holds = allocation.value;
    let reference = before.target.unwrap_or(holds);
    // Where the host holds its process to less than it holds, an action up to that gives it nothing all the same.
    let covered = committed.max(holds).page_ceil();
    let too_old = match sample.stats {
        None => true,
        Some(stats) => stats.age.max(allocation.age) > rules.stale_after,
    };
    if too_old && (action.target < holds || action.target > covered) {
        found.push(Violation::OnStaleFigures(id()));
    }
    let reduces = action.target < holds && action.target < reference;
    if reduces && action.target < floor {
        found.push(Violation::BelowFloor { guest: id(), target: action.target, floor });
    }
    let used = used_without_swap(sample, limits, rules.stale_after);
    if let Some(used) = used.filter(|used| reduces && action.target < *used) {
        found.push(Violation::BelowUse { guest: id(), target: action.target, used });
    }
    if action.target > ceiling && action.target > covered {
        found.push(Violation::AboveCeiling { guest: id(), target: action.target, ceiling });
    }
    let low = holds.min(reference);
    let high = holds.max(reference);
    let up = action.target.saturating_sub(high);
    let down = low.saturating_sub(action.target);
    if rules.step_up_max.is_some_and(|limit| up > limit)
        || rules.step_down_max.is_some_and(|limit| down > limit)
    {
        found.push(Violation::StepTooLarge(id()));
    }
}

/// What a guest cannot give because it has no swap for it, as far as one sample tells. `None`: it has swap.
fn used_without_swap(
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
) -> Option<Bytes> {
    let stats = sample.stats?.value;
    let agent = sample.agent.filter(|agent| agent.age <= stale_after);
    let swap_free = match (limits.swap, agent.and_then(|agent| agent.value.swap_free)) {
        (Some(true), _) => return None,
        (Some(false), _) => Bytes::ZERO,
        (None, Some(free)) => free,
        (None, None) if stats.swap_out.unwrap_or_default() > Bytes::ZERO => return None,
        (None, None) => Bytes::ZERO,
    };
    let spared = stats.available.or(stats.free)?.saturating_add(swap_free);
    Some(sample.allocation?.value.saturating_sub(spared))
}

/// What concerns whom the host pages.
fn check_paging(plan: &Plan, guests: &[Guest<'_>], rules: &Rules<'_>, found: &mut Vec<Violation>) {
    if rules.paused && !plan.paging.is_empty() {
        found.push(Violation::WhilePaused);
    }
    for paging in &plan.paging {
        let place = guests.binary_search_by(|guest| guest.sample.id.cmp(&paging.guest));
        let Some(guest) = place.ok().and_then(|place| guests.get(place)) else {
            found.push(Violation::UnknownGuest(paging.guest.clone()));
            continue;
        };
        if !guest.limits.managed {
            let why = "excluded by the operator";
            found.push(Violation::Untouchable(paging.guest.clone(), why));
        }
        let is_told = |stats: Measured<_>| stats.age <= rules.stale_after;
        if paging.mechanism == Mechanism::PageOut && !guest.sample.stats.is_some_and(is_told) {
            found.push(Violation::OnStaleFigures(paging.guest.clone()));
        }
        let floor = guest.limits.bounds_for(guest.sample).map_or(Bytes::MAX, |(floor, _)| floor);
        if paging.mechanism == Mechanism::PageOut && paging.resident < floor {
            let (guest, target) = (paging.guest.clone(), paging.resident);
            found.push(Violation::BelowFloor { guest, target, floor });
        }
    }
}

/// Whether only plugged memory is to change.
fn leaves_balloon_alone(action: &Action, sample: &GuestSample) -> bool {
    let (Some(plug), Some(hotplug), Some(holds)) = (action.plug, sample.hotplug, sample.allocation)
    else {
        return false;
    };
    action.target.saturating_sub(plug) == holds.value.saturating_sub(hotplug.plugged)
}

/// What concerns plugged memory.
fn check_plug(action: &Action, plug: Bytes, guest: &Guest<'_>, found: &mut Vec<Violation>) {
    let Guest { sample, before, .. } = *guest;
    let (max, block) = match sample.hotplug {
        Some(hotplug) => (hotplug.max.max(hotplug.plugged), hotplug.block),
        None => (Bytes::ZERO, Bytes::ZERO),
    };
    let is_whole = plug.get().checked_rem(block.get()) == Some(0);
    let (Some(hotplug), true) = (sample.hotplug, is_whole && plug <= max) else {
        let guest = sample.id.clone();
        found.push(Violation::PlugImpossible { guest, plug, max, block });
        return;
    };
    let Some(holds) = sample.allocation.map(|allocation| allocation.value) else { return };
    let left_by_balloon = |total: Bytes, plugged| total.saturating_sub(plugged);
    let now = left_by_balloon(holds, hotplug.plugged);
    let asked = left_by_balloon(before.target.unwrap_or(holds), hotplug.requested);
    let planned = left_by_balloon(action.target, plug);
    let plugs = plug > hotplug.plugged.max(hotplug.requested);
    let pulls = plug < hotplug.plugged.min(hotplug.requested);
    if (plugs && planned < now.min(asked)) || (pulls && planned > now.max(asked)) {
        found.push(Violation::PlugAgainstBalloon(sample.id.clone()));
    }
}

/// Memory that neither the budget nor the host has given away yet.
fn free_to_grant(snapshot: &Snapshot, guests: &[Guest<'_>], rules: &Rules<'_>) -> Bytes {
    let (Some(total), Some(available)) =
        (snapshot.host.memory_total, snapshot.host.memory_available)
    else {
        return Bytes::ZERO;
    };
    if guests.iter().any(|guest| guest.before.known_for < SETTLES_IN) {
        return Bytes::ZERO;
    }
    let committed: Bytes = guests.iter().map(|guest| guest.committed).sum();
    let touched: Bytes = guests
        .iter()
        .filter_map(|guest| Some(guest.sample.resident?.value.min(guest.committed)))
        .sum();
    let budget = rules.budget.unwrap_or(total.saturating_sub(rules.host_reserve));
    let of_budget = budget.saturating_sub(committed);
    let of_host = available
        .saturating_sub(rules.host_reserve)
        .saturating_sub(committed.saturating_sub(touched));
    of_budget.min(of_host)
}
