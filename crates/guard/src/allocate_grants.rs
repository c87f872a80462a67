//! From goals to orders: releases at once, grants only from memory that is really free.
//!
//! Idea: a reduction needs no memory and is requested in full. Growth up to what a guest already
//! holds or was promised is free. Growth beyond that comes only from the *grantable* memory, which
//! grows from tick to tick as releases are seen. So no promise rests on memory that another guest
//! still holds. Where grantable memory is short, guests below their floor come first, then all
//! guests in proportion to what they lack. What the kernel's limits on guests' processes leave is
//! divided in the same way before (`rooms.rs`).
//!
//! Cost: O(n) a tick, O(n log n) while grants have to wait. Limits: a part of a grant that is not
//! worth an action (see [`GRANT_MIN`]) waits.

use ballast_model::{
    Bounds, Budget, Bytes, Change, Clamped, HoldReason, MemoryRoom, in_proportion,
};

use crate::assessment::calls_off_shrinking;
use crate::{Assessment, Capped, ComplianceLog, Goal, GuardSettings};

/// Smaller parts of a grant wait until more is released.
const GRANT_MIN: Bytes = Bytes::mib(8);

/// The new memory that one guest lacks to reach its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// In total, in pages.
    pub(crate) pages: u64,
    /// The part of it that is lacking to the floor.
    pub(crate) to_floor: u64,
}

impl Lack {
    /// What a guest lacks; zero where no decision covers it.
    pub fn of(guest: &Assessment, goal: Option<&Goal>) -> Lack {
        let goal = goal.filter(|_| guest.has_part);
        let pages = goal.map_or(0, |goal| guest.lacking(goal.target).to_pages());
        let floor = guest.bounds.map_or(Bytes::ZERO, |bounds| bounds.floor);
        Lack { pages, to_floor: floor.saturating_sub(guest.committed).to_pages().min(pages) }
    }
}

/// New memory for each guest, in the order of `lacks`. The sum is at most what is grantable.
pub fn allocate_grants(lacks: &[Lack], budget: Budget) -> Vec<Bytes> {
    share_out(lacks, budget.grantable.to_pages()).into_iter().map(Bytes::pages).collect()
}

/// Divides at most `pages` among guests, first up to their floors. No guest gets more than it
/// lacks.
pub(crate) fn share_out(lacks: &[Lack], pages: u64) -> Vec<u64> {
    if lacks.iter().map(|lack| lack.pages).sum::<u64>() <= pages {
        return lacks.iter().map(|lack| lack.pages).collect();
    }
    let first = divide_by_wants(lacks.iter().map(|lack| lack.to_floor), pages);
    let left = pages - first.iter().sum::<u64>();
    let rest = lacks.iter().zip(&first).map(|(lack, given)| lack.pages - given);
    let second = divide_by_wants(rest, left);
    first.iter().zip(second).map(|(a, b)| a + b).collect()
}

/// Divides `pages` in proportion to `wants`; no guest gets more than it wants.
fn divide_by_wants(wants: impl Iterator<Item = u64> + Clone, pages: u64) -> Vec<u64> {
    let wanted: u64 = wants.clone().sum();
    in_proportion(wants, pages.min(wanted))
}

/// What one guest is asked for in one tick, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The target to send; `None`: nothing is sent.
    pub send: Option<Bytes>,
    /// The new request to a stuck guest; `None`: the old one stands.
    pub ask: Option<Bytes>,
    /// Why the target is not the goal, if it is not.
    pub clamp: Option<Clamped>,
    /// The change that this makes.
    pub change: Change,
}

impl Grant {
    /// Nothing is done.
    pub fn hold(why: HoldReason) -> Grant {
        Grant { send: None, ask: None, clamp: None, change: Change::Hold(why) }
    }

    /// Gives the guest `new` memory, and takes all steps towards its goal that need none. `new` is
    /// less than it lacks because of the limit `narrow`, if that is known.
    pub fn new(
        guest: &Assessment,
        log: &ComplianceLog,
        goal: Option<&Goal>,
        new: Bytes,
        narrow: Option<&MemoryRoom>,
        budget: Budget,
        settings: &GuardSettings,
    ) -> Grant {
        let mut grant = match (&guest.verdict, goal, guest.reference) {
            (Err(held), ..) => held_back(guest, log, held),
            (Ok(()), Some(goal), Some(reference)) => match guest.bounds {
                Some(bounds) => {
                    GrantStep { guest, bounds, log, goal, reference, new, narrow, budget, settings }
                        .grant()
                }
                None => Grant::hold(HoldReason::OnTarget),
            },
            (Ok(()), ..) => Grant::hold(HoldReason::OnTarget),
        };
        grant.ask = ask_anew(guest, goal, new);
        grant
    }

    /// What it takes beyond what the guest holds or was promised.
    pub fn new_memory(&self, guest: &Assessment) -> Bytes {
        let target = self.ask.or(self.send).unwrap_or_default();
        match guest.capped {
            Some(_) => guest.lacking(target),
            None => target.saturating_sub(guest.owned),
        }
    }
}

/// The new request to a guest that is stuck and capped. It may ask for less at once, for more as
/// far as memory is free, and for no more than the guest holds or was promised. Where the room in
/// its cap covers all of that, no new memory is needed.
fn ask_anew(guest: &Assessment, goal: Option<&Goal>, new: Bytes) -> Option<Bytes> {
    let Capped { asked, cap } = guest.capped.filter(|_| guest.is_paged_for())?;
    let target = goal?.target.min(guest.uncapped.max(asked));
    let ask = if guest.uncapped <= cap { target } else { target.min(asked + new) };
    (ask.abs_diff(asked) >= GRANT_MIN).then_some(ask)
}

/// A page less than the target in force, for a balloon that has to move; unchanged where the guest
/// may not have less.
fn nudged(guest: &Assessment, target: Bytes, reference: Bytes) -> Bytes {
    let less = target.saturating_sub(Bytes::pages(1));
    if target == reference && less >= least(guest) { less } else { target }
}

/// The least that may be asked of a guest.
fn least(guest: &Assessment) -> Bytes {
    let floor = guest.bounds.map_or(Bytes::MAX, |Bounds { floor, .. }| floor);
    floor.max(guest.min_without_swap.unwrap_or_default())
}

/// A guest that may not be moved gets nothing, a reminder if it is stuck, or its reduction called
/// off.
fn held_back(guest: &Assessment, log: &ComplianceLog, held: &HoldReason) -> Grant {
    let (Some(allocation), Some(in_force)) = (guest.allocation, log.target()) else {
        return Grant::hold(held.clone());
    };
    let sent = |to, change| Grant { send: Some(to), ask: None, clamp: None, change };
    if let (HoldReason::Stuck { .. }, Some(asked)) = (held, log.retrying()) {
        // The request may be below the floor by now. More than the target in force would be a
        // grant.
        let to = asked.max(least(guest)).page_ceil();
        let is_allowed = to == asked || to <= in_force;
        if is_allowed && in_force == to && !log.must_send_again() {
            return Grant::hold(held.clone());
        }
        if is_allowed && to < allocation {
            return sent(to, Change::Shrink { by: allocation - to });
        }
    }
    // After a reboot QEMU may still report the size from before, which now looks implausible.
    if matches!(held, HoldReason::Implausible(_)) && log.must_nudge() {
        let to = nudged(guest, in_force, in_force);
        return sent(to, Change::Shrink { by: in_force - to });
    }
    // Offer neither memory that the host does not see it hold, nor memory that it does not claim.
    let keeps = guest.claimed.unwrap_or_default().min(guest.owned).page_ceil();
    let is_called_off = match held {
        // The host gains nothing of what the balloon would still take.
        HoldReason::DiscardInhibited | HoldReason::Pinned { .. } => {
            guest.by_balloon_alone && guest.bounds.is_some()
        }
        _ => calls_off_shrinking(held),
    };
    if is_called_off && in_force < keeps {
        return sent(keeps, Change::CancelShrink { why: held.clone() });
    }
    Grant::hold(held.clone())
}

/// A guest that is moved towards its goal, as far as memory is free.
struct GrantStep<'a> {
    guest: &'a Assessment,
    /// Its floor and ceiling now; both may have changed since the decision.
    bounds: Bounds,
    log: &'a ComplianceLog,
    goal: &'a Goal,
    /// The size that changes are measured from.
    reference: Bytes,
    /// Its new memory.
    new: Bytes,
    /// The limit on its process that leaves it less than it lacks.
    narrow: Option<&'a MemoryRoom>,
    budget: Budget,
    settings: &'a GuardSettings,
}

impl GrantStep<'_> {
    fn grant(&self) -> Grant {
        let GrantStep { guest, log, goal, reference, .. } = *self;
        // The target of the first decision is a grant even if it moves nothing, so that memory
        // taken later is known to be without a grant. A claim that the host cannot see earns no
        // grant. A claim to hold less than the floor may be false, so the guest is not ordered to
        // that.
        let is_first = !guest.was_granted && guest.is_seen && reference >= self.bounds.floor;
        let send_again = log.must_send_again() || is_first;
        let affordable = guest.target_for(guest.owned_lasting() + self.new);
        let reach = affordable.max(guest.needed_without_swap());
        let (target, raised) = self.target_now();
        // A target that only let it keep its claim is no reason to grant that, except for the
        // minimum below which it may not be shrunk.
        let kept = least(guest).min(reference);
        let most = reach.max(guest.entitlement).max(kept).page_floor();
        let target = if reference > most { target.min(most) } else { target };
        let target = self.within_step(target);
        let target = if log.must_nudge() { nudged(guest, target, reference) } else { target };
        // What it keeps since its reduction was called off becomes its target, in whole or in part.
        let is_kept = guest.was_granted && guest.entitlement < target && target <= reach;
        if is_kept && target <= reference {
            let change = Change::Grow { by: Bytes::ZERO };
            return Grant { send: Some(target), ask: None, clamp: raised, change };
        }
        if target <= reference {
            let by = reference - target;
            if by == Bytes::ZERO && !send_again {
                let held = goal.held.clone().unwrap_or(HoldReason::OnTarget);
                return Grant { clamp: raised, ..Grant::hold(held) };
            }
            let change = Change::Shrink { by };
            return Grant { send: Some(target), ask: None, clamp: raised, change };
        }
        let reachable = target.min(reach).max(reference);
        let short = target - reachable;
        let clamp = self.waiting(short).or(raised);
        let by = reachable - reference;
        let is_urgent = reference < guest.needed_without_swap();
        let worth_it = short == Bytes::ZERO || by >= GRANT_MIN || is_urgent;
        if !send_again && (by == Bytes::ZERO || !worth_it) {
            let held = match self.narrow {
                Some(MemoryRoom { by, limit, .. }) => {
                    HoldReason::NoRoom { by: by.clone(), limit: *limit }
                }
                None => HoldReason::OnTarget,
            };
            return Grant { clamp, ..Grant::hold(held) };
        }
        // What it was only let keep is no grant when it is sent again.
        let change = if reference > reach { Change::Shrink { by } } else { Change::Grow { by } };
        Grant { send: Some(reachable), ask: None, clamp, change }
    }

    /// Where the guest is to be now, and why that exceeds its goal, if it does: without swap, the
    /// guest may have come to use more since the decision. A `reference` near that is left alone,
    /// unless the guest is still releasing down to it.
    fn target_now(&self) -> (Bytes, Option<Clamped>) {
        let GrantStep { guest, goal, reference, bounds, .. } = *self;
        let aim = goal.target.clamp(bounds.floor, bounds.ceiling);
        match guest.min_without_swap {
            Some(least) if aim < least => {
                let falls_short = reference < least && guest.allocation > Some(reference);
                let is_near = reference.abs_diff(least) < GRANT_MIN && !falls_short;
                (if is_near { reference } else { least }, Some(Clamped::NoSwap { least }))
            }
            _ => (aim, None),
        }
    }

    /// `target` clamped to one step from where the guest is. That may have changed since the
    /// decision, if nothing was asked of it yet.
    fn within_step(&self, target: Bytes) -> Bytes {
        let GrantStep { guest, reference, settings, .. } = *self;
        let (low, high) = match guest.claimed.zip(guest.allocation) {
            Some((claimed, holds)) => (reference.min(claimed), reference.max(holds)),
            None => (reference, reference),
        };
        let least = settings.step_down_max.map_or(Bytes::ZERO, |limit| low.saturating_sub(limit));
        let most = settings.step_up_max.map_or(Bytes::MAX, |limit| high.saturating_add(limit));
        target.max(least.page_ceil()).min(most.page_floor())
    }

    /// What a guest that is `short` of its goal is waiting for.
    fn waiting(&self, short: Bytes) -> Option<Clamped> {
        let Budget { distributable, committed, grantable } = self.budget;
        if short == Bytes::ZERO {
            return None;
        }
        if let Some(MemoryRoom { by, limit, .. }) = self.narrow {
            return Some(Clamped::NoRoom { short, by: by.clone(), limit: *limit });
        }
        let by_budget = distributable.saturating_sub(committed);
        Some(if grantable < by_budget.page_floor() {
            Clamped::HostReserve { short }
        } else {
            Clamped::AwaitingRelease { short }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_reach_is_shared_in_proportion() {
        assert_eq!(divide_by_wants([30, 10, 0].into_iter(), 100), [30, 10, 0]);
        assert_eq!(divide_by_wants([30, 10, 0].into_iter(), 20), [15, 5, 0]);
        assert_eq!(divide_by_wants([10, 10, 10].into_iter(), 10), [4, 3, 3]);
        assert_eq!(divide_by_wants([].into_iter(), 10), [0; 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nobody_gets_more_than_it_wants(
            wants in prop::collection::vec(0..1u64 << 40, 0..40),
            pages in 0..1u64 << 42,
        ) {
            let parts = divide_by_wants(wants.iter().copied(), pages);
            let total: u64 = wants.iter().sum();
            prop_assert_eq!(parts.iter().sum::<u64>(), total.min(pages));
            for (part, want) in parts.iter().zip(&wants) {
                prop_assert!(part <= want);
            }
        }
    }
}
