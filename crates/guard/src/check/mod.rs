//! An independent checker of finished plans.
//!
//! Idea: the code that makes plans could be wrong, and so could what it remembers. So every plan is
//! checked, in production too, by code that shares nothing with it but the vocabulary: a
//! [`Checker`] keeps its own record of what it saw of guests, and of what the plans that were
//! carried out promised them. It imports no policy and none of the guard's other files.
//!
//! ```text
//! observe(snapshot) ─▶ check(plan) ─▶ commit(plan), if it was found good
//! ```
//!
//! Checked: conservation (grants within what is free of budget and host), floors, what guests
//! without swap use, ceilings, step limits, the host's reserve, no reduction on stale or missing
//! figures but what the host sees itself, no action on guests that are not to be touched, releases
//! before grants, form (whole pages, generation, deadline, each guest once), that caps are
//! enforced, and of plugging: whole blocks within the device, and never against the balloon.
//!
//! A plan says of some guests more than its actions do ([`Promise`]). That is believed as far as it
//! makes a guest's part larger; where it makes it smaller, as a cap does, the plan has to enforce
//! it.
//!
//! Cost: O(n), O(n log n) where actions are few and far between. Limits: that targets are wise is
//! not checked, only that they are safe. The end of a cap is no grant, as the host may be unable to
//! keep the cap; but no grant of the same plan may count on what the cap took.

mod memory;
mod promise;
mod restart;
mod violation;

use std::time::Duration;

use ballast_model::{
    Action, Bounds, Bytes, Change, GuestId, GuestLimits, GuestSample, GuestStats, LeftGuest,
    LimitTable, LinkState, Measured, Mechanism, PerGuest, Plan, RunState, Snapshot, Timestamp,
};

use memory::{Memory, Planned};
pub use promise::Promise;
use restart::Left;
pub use violation::Violation;

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
    /// Each guest's limits.
    pub limits: &'a LimitTable,
    /// Whether the operator has paused acting.
    pub paused: bool,
}

/// While a guest has been known for less than this, nothing is granted to any guest.
const SETTLES_IN: Duration = Duration::from_secs(2);

/// A process this little above its cap need not be paged out.
const CAP_SLACK: Bytes = Bytes::mib(8);

/// What is remembered of guests from plan to plan.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    guests: PerGuest<Memory>,
    now: Timestamp,
    /// What the last daemon promised.
    left: Left,
}

impl Checker {
    /// What the last daemon promised these guests holds. To be called before the first snapshot.
    pub fn restore(&mut self, guests: &[LeftGuest]) {
        self.left = Left::new(guests);
    }

    /// Takes in a snapshot, before the plan that is made from it is checked.
    pub fn observe(&mut self, snapshot: &Snapshot, limits: &LimitTable) {
        self.now = snapshot.taken_at;
        self.guests.align(snapshot);
        self.left.join(&mut self.guests, snapshot);
        for (memory, sample) in self.guests.values_mut().zip(snapshot.guests()) {
            memory.observe(sample, limits.of(&sample.id), snapshot.taken_at);
        }
    }

    /// Everything wrong with `plan`, which was made from the snapshot last observed; `promises` are
    /// sorted by name.
    pub fn check(
        &self,
        plan: &Plan,
        promises: &[Promise],
        snapshot: &Snapshot,
        rules: &Rules<'_>,
    ) -> Vec<Violation> {
        let check = Check {
            plan,
            promises,
            snapshot,
            guests: &self.guests,
            rules,
            now: self.now,
            for_guests: rules
                .budget
                .or_else(|| Some(snapshot.host.memory_total?.saturating_sub(rules.host_reserve))),
            shares: rules.limits.shares_of_all(snapshot),
        };
        let mut found = Vec::new();
        if rules.paused && !plan.actions.is_empty() {
            found.push(Violation::WhilePaused);
        }
        let granted = check.actions(&mut found);
        check.paging(&mut found);
        let grants = |given: &Given| given.new > Bytes::ZERO && !given.releases;
        if let Some(first) = granted.iter().position(grants) {
            let late = plan.actions.iter().zip(&granted).skip(first);
            let late = late.filter(|(_, given)| given.releases);
            found.extend(late.map(|(it, _)| Violation::ReleaseAfterGrant(it.guest.clone())));
        }
        let (free, let_go) = check.free_and_let_go();
        let new: Bytes = granted.iter().map(|given| given.new).sum();
        let granted = new.saturating_add(let_go);
        if granted > free {
            found.push(Violation::Overcommitted { granted, free });
        }
        found
    }

    /// The plan last checked is being carried out.
    pub fn commit(&mut self, plan: &Plan, promises: &[Promise]) {
        let mut promises = promises.iter().peekable();
        for (memory, guest) in self.guests.values_mut().zip(&plan.guests) {
            let promise = promises.next_if(|promise| promise.guest == guest.id);
            memory.promised(guest, promise);
        }
        let mut at = 0;
        for action in &plan.actions {
            if let Some(place) = plan.place_near(&action.guest, at) {
                at = place;
                if let Some(memory) = self.guests.at_mut(place) {
                    memory.ordered(action.target);
                }
            }
        }
    }
}

/// One plan under check.
struct Check<'a> {
    plan: &'a Plan,
    promises: &'a [Promise],
    snapshot: &'a Snapshot,
    guests: &'a PerGuest<Memory>,
    rules: &'a Rules<'a>,
    now: Timestamp,
    /// What there is for all guests; `None`: not known.
    for_guests: Option<Bytes>,
    /// The shares of all guests together.
    shares: u64,
}

/// A guest of the snapshot and what is remembered of it.
#[derive(Clone, Copy)]
struct Guest<'a> {
    sample: &'a GuestSample,
    limits: &'a GuestLimits,
    memory: &'a Memory,
    /// What it holds or may still take on the strength of its last target.
    committed: Bytes,
}

/// What an action gives its guest.
#[derive(Clone, Copy)]
struct Given {
    /// Memory that it had not already.
    new: Bytes,
    /// Whether it is to give some of what it claims to hold instead.
    releases: bool,
}

impl<'a> Check<'a> {
    fn guest(&self, place: usize) -> Option<Guest<'a>> {
        let (sample, memory) = (self.snapshot.guests().get(place)?, self.guests.at(place)?);
        let limits = self.rules.limits.of(&sample.id);
        let committed = memory.committed(sample, true, self.rules.stale_after);
        Some(Guest { sample, limits, memory, committed })
    }

    /// What is wrong with single actions, in the order of their guests' names; what each action
    /// grants.
    fn actions(&self, found: &mut Vec<Violation>) -> Vec<Given> {
        let plan = self.plan;
        let mut acted = vec![false; self.snapshot.guests().len()];
        let mut wrong: Vec<(&GuestId, Vec<Violation>)> = Vec::new();
        let mut near = 0;
        let mut granted = Vec::with_capacity(plan.actions.len());
        for action in &plan.actions {
            let mut here = Vec::new();
            check_form(action, plan, &mut here);
            let place = self.snapshot.place_near(&action.guest, near);
            let (mut new, mut releases) = (Bytes::ZERO, false);
            match place.and_then(|place| Some((place, self.guest(place)?))) {
                Some((place, guest)) => {
                    if std::mem::replace(&mut acted[place], true) {
                        here.push(Violation::Twice(action.guest.clone()));
                    }
                    let share = self.share_of(&guest);
                    let planned = plan.guests.get(place).map(|planned| &planned.change);
                    // Only the operator's word that it has no swap goes beyond what it was granted.
                    let may_use = guest.memory.may_use(share);
                    let believed = may_use.filter(|_| guest.limits.swap != Some(false));
                    let believed = believed.unwrap_or(Bytes::MAX);
                    // Not grants: to let it keep what it claims, a lower target, and memory that it
                    // cannot release.
                    let Guest { sample, limits, memory, committed } = guest;
                    let is_none = match planned {
                        Some(Change::CancelShrink { .. }) => true,
                        Some(Change::Shrink { .. } | Change::Hold(_)) => {
                            Some(action.target) <= memory.target()
                        }
                        Some(Change::Grow { .. }) | None => false,
                    };
                    if !is_none {
                        let used = memory.unsparable(sample, limits, self.rules.stale_after);
                        let owned = memory.owned(sample, committed).max(used.min(believed));
                        new = action.target.saturating_sub(owned.page_ceil());
                    }
                    let holds = guest.sample.claimed().unwrap_or_default();
                    releases = action.target < guest.memory.target().unwrap_or(holds).min(holds);
                    check_guest(action, guest, believed, self.rules, &mut here);
                    near = place;
                }
                None => here.push(Violation::UnknownGuest(action.guest.clone())),
            }
            granted.push(Given { new, releases });
            if !here.is_empty() {
                wrong.push((&action.guest, here));
            }
        }
        wrong.sort_by_key(|(id, _)| *id);
        found.extend(wrong.into_iter().flat_map(|(_, here)| here));
        granted
    }

    /// What is wrong with what the host pages, and with caps.
    fn paging(&self, found: &mut Vec<Violation>) {
        let (plan, rules) = (self.plan, self.rules);
        if rules.paused && !plan.paging.is_empty() {
            found.push(Violation::WhilePaused);
        }
        for paging in &plan.paging {
            let place = self.guests.place(&paging.guest);
            let Some(guest) = place.and_then(|place| self.guest(place)) else {
                found.push(Violation::UnknownGuest(paging.guest.clone()));
                continue;
            };
            if !guest.limits.managed {
                let why = "excluded by the operator";
                found.push(Violation::Untouchable(paging.guest.clone(), why));
            }
            if paging.mechanism != Mechanism::PageOut {
                continue;
            }
            let is_fresh = |stats: Measured<GuestStats>| stats.age <= rules.stale_after;
            let is_recent = |size: Measured<Bytes>| size.age <= rules.stale_after;
            let may_be_held_to = guest.memory.may_be_held_to().or_else(|| self.share_of(&guest));
            let is_seen = guest.sample.resident.is_some_and(is_recent)
                && may_be_held_to.is_some_and(|least| paging.resident >= least);
            if !guest.sample.stats.is_some_and(is_fresh) && !is_seen {
                found.push(Violation::OnStaleFigures(paging.guest.clone()));
            }
            let floor = guest.memory.bounds().map_or(Bytes::MAX, |bounds| bounds.floor);
            if paging.resident < floor {
                let (guest, target) = (paging.guest.clone(), paging.resident);
                found.push(Violation::BelowFloor { guest, target, floor });
            }
        }
        for Promise { guest: id, cap, .. } in self.promises {
            let place = self.guests.place(id);
            let (Some(cap), Some(guest)) = (*cap, place.and_then(|place| self.guest(place))) else {
                continue;
            };
            let resident = guest.sample.resident.filter(|it| it.age <= rules.stale_after);
            let Some(resident) = resident.map(|it| it.value) else { continue };
            let is_paged_out = || {
                plan.paging.iter().any(|it| {
                    it.guest == *id && it.mechanism == Mechanism::PageOut && it.resident <= cap
                })
            };
            if !rules.paused && resident > cap.saturating_add(CAP_SLACK) && !is_paged_out() {
                let guest = id.clone();
                found.push(Violation::CapNotEnforced { guest, cap, resident });
            }
        }
    }

    /// The part of the budget that a guest's shares alone give it, within its bounds.
    fn share_of(&self, guest: &Guest<'_>) -> Option<Bytes> {
        let Bounds { floor, ceiling } = guest.memory.bounds()?;
        let share = self.for_guests?.fraction(guest.limits.shares.into(), self.shares);
        Some(share.page_floor().clamp(floor, ceiling))
    }

    /// Memory that neither the budget nor the host has given away yet, and what guests may take
    /// beyond what they are committed as the plan raises their caps.
    fn free_and_let_go(&self) -> (Bytes, Bytes) {
        let (plan, rules, snapshot) = (self.plan, self.rules, self.snapshot);
        let mut let_go = Bytes::ZERO;
        for promise in self.promises {
            let Some(place) = self.guests.place(&promise.guest) else { continue };
            let (Some(guest), Some(planned)) = (self.guest(place), plan.guests.get(place)) else {
                continue;
            };
            // A guest that is left alone for want of figures is granted nothing.
            if !matches!(planned.change, Change::CancelShrink { .. }) {
                let planned = Planned { target: planned.target, stale_after: rules.stale_after };
                let_go = let_go.saturating_add(guest.memory.let_go(
                    guest.sample,
                    guest.limits,
                    promise,
                    planned,
                ));
            }
        }
        let (Some(total), Some(available)) =
            (snapshot.host.memory_total, snapshot.host.memory_available)
        else {
            return (Bytes::ZERO, let_go);
        };
        let (mut committed, mut touched) = (Bytes::ZERO, Bytes::ZERO);
        let mut promises = self.promises.iter().peekable();
        for (memory, sample) in self.guests.values().zip(snapshot.guests()) {
            if memory.known_for(self.now) < SETTLES_IN {
                return (Bytes::ZERO, let_go);
            }
            let kept = promises.next_if(|it| it.guest == sample.id).and_then(|it| it.cap);
            let own = memory.committed(sample, kept.is_some(), rules.stale_after);
            committed = committed.saturating_add(own);
            let resident = sample.resident.map_or(Bytes::ZERO, |it| it.value);
            touched = touched.saturating_add(resident.min(own));
        }
        let budget = self.for_guests.unwrap_or(total.saturating_sub(rules.host_reserve));
        let of_budget = budget.saturating_sub(committed);
        let of_host = available
            .saturating_sub(rules.host_reserve)
            .saturating_sub(committed.saturating_sub(touched));
        (of_budget.min(of_host), let_go)
    }
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

/// What concerns one guest alone, which is believed to use no more than `believed`.
fn check_guest(
    action: &Action,
    guest: Guest<'_>,
    believed: Bytes,
    rules: &Rules<'_>,
    found: &mut Vec<Violation>,
) {
    let Guest { sample, limits, memory, committed } = guest;
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
    let (Some(allocation), Some(Bounds { floor, ceiling })) =
        (sample.allocation, limits.bounds_for(sample))
    else {
        found.push(Violation::OnStaleFigures(id()));
        return;
    };
    let holds = sample.claimed().unwrap_or_default();
    let reference = memory.target().unwrap_or(holds);
    // Where the host holds its process to less than it holds, an action up to that gives it nothing
    // all the same.
    let covered = committed.max(holds).page_ceil();
    let too_old = match sample.stats {
        None => true,
        Some(stats) => stats.age.max(allocation.age) > rules.stale_after,
    };
    let reduces = action.target < holds && action.target < reference;
    if too_old && (reduces || action.target > covered) {
        found.push(Violation::OnStaleFigures(id()));
    }
    if reduces && action.target < floor {
        found.push(Violation::BelowFloor { guest: id(), target: action.target, floor });
    }
    let used = used_without_swap(sample, limits, rules.stale_after);
    let used = used.map(|used| used.min(believed.page_floor()));
    if let Some(used) = used.filter(|used| reduces && action.target < *used) {
        found.push(Violation::BelowUse { guest: id(), target: action.target, used });
    }
    if action.target > ceiling && action.target > covered {
        found.push(Violation::AboveCeiling { guest: id(), target: action.target, ceiling });
    }
    let low = holds.min(reference);
    // Up to what the host sees it hold it grows by nothing, whatever it claims.
    let high = holds.max(reference).max(memory.evident().unwrap_or_default());
    let up = action.target.saturating_sub(high);
    let down = low.saturating_sub(action.target);
    if rules.step_up_max.is_some_and(|limit| up > limit)
        || rules.step_down_max.is_some_and(|limit| down > limit)
    {
        found.push(Violation::StepTooLarge(id()));
    }
}

/// What a guest cannot give because it has no swap for it, as far as one sample tells. `None`: it
/// has swap.
fn used_without_swap(
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
) -> Option<Bytes> {
    let stats = sample.stats?.value;
    let agent = sample.agent.as_ref().filter(|agent| agent.age <= stale_after);
    let swap_free = match (limits.swap, agent.and_then(|agent| agent.value.swap_free)) {
        (Some(true), _) => return None,
        (Some(false), _) => Bytes::ZERO,
        (None, Some(free)) => free,
        (None, None) if stats.swap_out.unwrap_or_default() > Bytes::ZERO => return None,
        (None, None) => Bytes::ZERO,
    };
    let spared = stats.available.or(stats.free)?.saturating_add(swap_free);
    Some(sample.claimed()?.saturating_sub(spared))
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
fn check_plug(action: &Action, plug: Bytes, guest: Guest<'_>, found: &mut Vec<Violation>) {
    let Guest { sample, memory, .. } = guest;
    let (max, block) = match sample.hotplug {
        Some(hotplug) => (hotplug.max.max(hotplug.plugged), hotplug.block),
        None => (Bytes::ZERO, Bytes::ZERO),
    };
    let is_whole_from = |from: Bytes| plug.abs_diff(from).get().checked_rem(block.get()) == Some(0);
    // Devices with blocks of different sizes hold no whole number of the largest, and neither does
    // what a hypervisor may claim: then whole blocks are changed.
    let is_whole = is_whole_from(Bytes::ZERO)
        || sample
            .hotplug
            .is_some_and(|it| is_whole_from(it.plugged) || is_whole_from(it.requested));
    let (Some(hotplug), true) = (sample.hotplug, is_whole && plug <= max) else {
        let guest = sample.id.clone();
        found.push(Violation::PlugImpossible { guest, plug, max, block });
        return;
    };
    let Some(holds) = sample.allocation.map(|allocation| allocation.value) else { return };
    let left_by_balloon = |total: Bytes, plugged| total.saturating_sub(plugged);
    let now = left_by_balloon(holds, hotplug.plugged);
    let asked = left_by_balloon(memory.target().unwrap_or(holds), hotplug.requested);
    let planned = left_by_balloon(action.target, plug);
    let plugs = plug > hotplug.plugged.max(hotplug.requested);
    let pulls = plug < hotplug.plugged.min(hotplug.requested);
    if (plugs && planned < now.min(asked)) || (pulls && planned > now.max(asked)) {
        found.push(Violation::PlugAgainstBalloon(sample.id.clone()));
    }
}
