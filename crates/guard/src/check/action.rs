//! The faults of one action, and the memory that it gives its guest.
//!
//! Idea: an action is judged by its guest alone. Whether there is memory for what it gives is a
//! question about all actions together. Cost: O(1). Limits: those of what is remembered of the
//! guest.

use std::time::Duration;

use ballast_model::{
    Action, Bounds, Bytes, Change, GuestLimits, GuestPlan, GuestSample, LinkState, Plan, RunState,
};

use super::memory::{Memory, swap_free};
use super::rules::Rules;
use super::violation::Violation;

/// A guest of the snapshot and what is remembered of it.
#[derive(Clone, Copy)]
pub(super) struct GuestFacts<'a> {
    pub(super) sample: &'a GuestSample,
    pub(super) limits: &'a GuestLimits,
    pub(super) memory: &'a Memory,
    /// What it holds, or may still take because of its last target.
    pub(super) committed: Bytes,
}

/// Faults that can be seen without the guest.
pub(super) fn check_form(action: &Action, plan: &Plan, found: &mut Vec<Violation>) {
    if action.target.page_floor() != action.target {
        found.push(Violation::NotWholePages(action.guest.clone(), action.target));
    }
    if action.generation != plan.generation || action.deadline <= plan.decided_at {
        found.push(Violation::Malformed(action.guest.clone()));
    }
}

/// Faults that concern one guest alone. The guest is believed to use no more than `believed`.
pub(super) fn check_guest(
    action: &Action,
    guest: GuestFacts<'_>,
    believed: Bytes,
    rules: &Rules<'_>,
    found: &mut Vec<Violation>,
) {
    let GuestFacts { sample, limits, memory, committed } = guest;
    let id = || sample.id.clone();
    // Where the balloon cannot be used, plugging still can.
    let by_plugging_alone = action.plug.is_some() && leaves_balloon_alone(action, sample);
    // What a balloon was asked to take, and the host would not gain, may be called off. That gives
    // the guest nothing.
    let keeps = sample.claimed().unwrap_or_default().page_ceil();
    let calls_off =
        memory.target().is_some_and(|in_force| (in_force..=keeps).contains(&action.target));
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
    } else if sample.capabilities.discard_inhibited == Some(true) && !calls_off {
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
    // Where the host caps its process below what it holds, an action up to what it holds still
    // gives it nothing.
    let covered = committed.max(holds).page_ceil();
    let reduces = action.target < holds && action.target < reference;
    let too_old = match sample.stats {
        // Memory that the host sees it touch shows that it lacks memory, never what it can spare.
        None => {
            let is_seen = sample.working_set_alone().is_some();
            reduces || !is_seen || allocation.age > rules.stale_after
        }
        Some(stats) => stats.age.max(allocation.age) > rules.stale_after,
    };
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
    // Growing up to what the host sees it hold is growing by nothing, whatever it claims.
    let high = holds.max(reference).max(memory.seen_by_host().unwrap_or_default());
    let up = action.target.saturating_sub(high);
    let down = low.saturating_sub(action.target);
    if rules.step_up_max.is_some_and(|limit| up > limit)
        || rules.step_down_max.is_some_and(|limit| down > limit)
    {
        found.push(Violation::StepTooLarge(id()));
    }
}

/// What a guest cannot give because it has no swap for it, by one sample. `None`: it has swap.
fn used_without_swap(
    sample: &GuestSample,
    limits: &GuestLimits,
    stale_after: Duration,
) -> Option<Bytes> {
    let swap_free = swap_free(sample, limits, stale_after)?;
    let spared = sample.stats?.value.available_or_free()?.saturating_add(swap_free);
    Some(sample.claimed()?.saturating_sub(spared))
}

/// Whether the action changes plugged memory only.
fn leaves_balloon_alone(action: &Action, sample: &GuestSample) -> bool {
    let (Some(plug), Some(hotplug), Some(holds)) = (action.plug, sample.hotplug, sample.allocation)
    else {
        return false;
    };
    action.target.saturating_sub(plug) == holds.value.saturating_sub(hotplug.plugged)
}

/// Faults of the plugged memory.
fn check_plug(action: &Action, plug: Bytes, guest: GuestFacts<'_>, found: &mut Vec<Violation>) {
    let GuestFacts { sample, memory, .. } = guest;
    let (max, block) = match sample.hotplug {
        Some(hotplug) => (hotplug.max.max(hotplug.plugged), hotplug.block),
        None => (Bytes::ZERO, Bytes::ZERO),
    };
    let is_whole_from = |from: Bytes| plug.abs_diff(from).get().checked_rem(block.get()) == Some(0);
    // If devices have blocks of different sizes, or a hypervisor reports odd sizes, the total need
    // not be a multiple of the largest block. Then the change has to be whole blocks.
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

/// The memory that an action gives its guest beyond what it has already. The guest is believed to
/// use no more than `believed`.
pub(super) fn new_memory(
    action: &Action,
    guest: GuestFacts<'_>,
    planned: Option<&GuestPlan>,
    believed: Bytes,
    rules: &Rules<'_>,
) -> Bytes {
    let GuestFacts { sample, limits, memory, committed } = guest;
    // It may be left more than its target because no mechanism can take that. Only what it is not
    // committed already is then a grant.
    let target = planned.and_then(|planned| planned.target).unwrap_or(action.target);
    let target = target.min(action.target);
    let rest = action.target.saturating_sub(committed.max(target));
    // Letting it keep what it claims, or lowering its target, is no grant either.
    let is_none = match planned.map(|planned| &planned.change) {
        Some(Change::CancelShrink { .. }) => true,
        Some(Change::Shrink { .. } | Change::Hold(_)) => Some(target) <= memory.target(),
        Some(Change::Grow { .. }) | None => false,
    };
    if is_none {
        return rest;
    }
    let used = memory.needed_without_swap(sample, limits, rules.stale_after);
    let owned = memory.owned(sample, committed).max(used.min(believed));
    rest.saturating_add(target.saturating_sub(owned.page_ceil()))
}
