//! From goals to a plan: releases at once, grants only from what is really free.
//!
//! Idea: a reduction costs nobody anything and is asked for in full. Growth up to what a guest
//! already holds or was promised is free. Growth beyond that comes out of the *grantable* memory
//! alone, which grows from tick to tick as releases are seen to happen; so no promise ever rests on
//! memory that somebody else still holds. Where it does not reach, guests below their floor come
//! first, then everybody in proportion to what they lack.
//!
//! Cost: O(n) a tick, O(n log n) while grants have to wait. Limits: a part of a grant that is not worth an action (see
//! [`GRANT_MIN`]) waits.

use ballast_model::{
    Budget, Bytes, Change, Clamped, GuestPlan, Held, PerGuest, Timestamp, largest_remainder,
};

use crate::standing::calls_off_shrinking;
use crate::{Goal, Ledger, Record, Standing};

/// Parts of a grant smaller than this wait for more to be released.
const GRANT_MIN: Bytes = Bytes::mib(8);

/// What goes into a plan, as far as guests are concerned.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Every guest's part, in the order of the standings.
    pub guests: Vec<GuestPlan>,
    /// What each is to be sent, in the same order; `None`: nothing.
    pub sends: Vec<Option<Bytes>>,
    /// What stuck guests are asked for from now on, in the same order; `None`: what they were.
    pub asks: Vec<Option<Bytes>>,
}

/// Everything that [`ration`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct Rationing<'a> {
    /// Every guest, sorted by name.
    pub standings: &'a [Standing],
    /// Their goals, in the same order; `None` for guests that no decision covers.
    pub goals: &'a PerGuest<Option<Goal>>,
    /// What may be granted.
    pub budget: Budget,
    /// What was asked before.
    pub ledger: &'a Ledger,
    /// Whether the operator has paused acting.
    pub paused: bool,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Drafts the plan of one tick.
pub fn ration(input: Rationing<'_>) -> Draft {
    let grants = grants(&input);
    let mut sends = Vec::with_capacity(input.standings.len());
    let mut guests = Vec::with_capacity(input.standings.len());
    let mut asks = Vec::with_capacity(input.standings.len());
    let each =
        input.standings.iter().zip(input.goals.values()).zip(input.ledger.records()).zip(grants);
    for (((standing, goal), record), grant) in each {
        let goal = goal.as_ref();
        let step = step_for(&input, standing, record, goal, grant);
        asks.push(ask_anew(standing, goal, grant).filter(|_| !input.paused));
        sends.push(step.send);
        let mut clamps = goal.map_or_else(Vec::new, |goal| goal.clamps.clone());
        clamps.extend(step.clamp);
        guests.push(GuestPlan {
            id: standing.id.clone(),
            allocation: standing.allocation,
            bounds: standing.bounds,
            estimate: standing.estimate().cloned(),
            desired: goal.map(|goal| goal.desired.clone()),
            clamps,
            credits: None,
            compliance: record.compliance(input.now),
            target: step.send.or(record.target()),
            change: step.change,
            moves: Vec::new(),
            balloon_rate: None,
            regret: None,
        });
    }
    Draft { guests, sends, asks }
}

/// What one guest lacks beyond what it holds or was promised.
fn lacking(standing: &Standing, goal: Option<&Goal>) -> Bytes {
    match goal.filter(|_| standing.estimate().is_some()) {
        Some(goal) => standing.committed_at(goal.target).saturating_sub(standing.lasting()),
        None => Bytes::ZERO,
    }
}

/// What a stuck guest that is paged is asked for from now on: less at once, more as far as memory is there.
fn ask_anew(standing: &Standing, goal: Option<&Goal>, grant: Bytes) -> Option<Bytes> {
    let asked = standing.paged.filter(|_| standing.demand_stuck.is_some())?.asked;
    let ask = goal?.target.min(asked + grant);
    (ask.abs_diff(asked) >= GRANT_MIN).then_some(ask)
}

/// Where a guest is to be now, and why that is more than its goal, if it is: without swap it may have come to use more
/// since the decision. A `reference` near that is left alone, unless the guest is still on its way down to it.
fn target_now(standing: &Standing, goal: &Goal, reference: Bytes) -> (Bytes, Option<Clamped>) {
    match standing.least {
        Some(least) if goal.target < least => {
            let falls_short = reference < least && standing.allocation > Some(reference);
            let is_near = reference.abs_diff(least) < GRANT_MIN && !falls_short;
            (if is_near { reference } else { least }, Some(Clamped::NoSwap { least }))
        }
        _ => (goal.target, None),
    }
}

/// A page less than is in force, for a balloon that is to move; where the guest may not have less, what it may have.
fn nudged(standing: &Standing, target: Bytes, reference: Bytes) -> Bytes {
    let floor = standing.bounds.map_or(Bytes::MAX, |(floor, _)| floor);
    let less = target.saturating_sub(Bytes::pages(1));
    let may_have_less = less >= floor.max(standing.least.unwrap_or_default());
    if target == reference && may_have_less { less } else { target }
}

/// New memory for each guest, adding up to at most what is grantable.
fn grants(input: &Rationing<'_>) -> Vec<Bytes> {
    let wants: Vec<u64> = input
        .standings
        .iter()
        .zip(input.goals.values())
        .map(|(standing, goal)| lacking(standing, goal.as_ref()).to_pages())
        .collect();
    let grantable = input.budget.grantable.to_pages();
    if wants.iter().sum::<u64>() <= grantable {
        return wants.into_iter().map(Bytes::pages).collect();
    }
    let under_floor: Vec<u64> = input
        .standings
        .iter()
        .zip(&wants)
        .map(|(standing, &want)| match standing.bounds {
            Some((floor, _)) => floor.saturating_sub(standing.committed).to_pages().min(want),
            None => 0,
        })
        .collect();
    let first = in_proportion(&under_floor, grantable);
    let left = grantable - first.iter().sum::<u64>();
    let rest: Vec<u64> = wants.iter().zip(&first).map(|(want, given)| want - given).collect();
    let second = in_proportion(&rest, left);
    first.iter().zip(second).map(|(a, b)| Bytes::pages(a + b)).collect()
}

/// Divides `pages` in proportion to `wants`, nobody getting more than it wants.
fn in_proportion(wants: &[u64], pages: u64) -> Vec<u64> {
    let total: u64 = wants.iter().sum();
    if total <= pages {
        return wants.to_vec();
    }
    let due = wants.iter().map(|&want| i128::from(want) * i128::from(pages));
    largest_remainder(due, i128::from(total), pages)
}

/// What happens to one guest in this tick.
struct Step {
    send: Option<Bytes>,
    clamp: Option<Clamped>,
    change: Change,
}

impl Step {
    fn hold(why: Held) -> Step {
        Step { send: None, clamp: None, change: Change::Hold(why) }
    }
}

fn step_for(
    input: &Rationing<'_>,
    standing: &Standing,
    record: &Record,
    goal: Option<&Goal>,
    grant: Bytes,
) -> Step {
    if input.paused {
        return Step::hold(Held::Paused);
    }
    match &standing.verdict {
        Err(held) => held_step(standing, record, held),
        Ok(_) => match (goal, standing.reference) {
            (Some(goal), Some(reference)) => {
                moved_step(input, standing, record, goal, reference, grant)
            }
            _ => Step::hold(Held::OnTarget),
        },
    }
}

/// A guest that takes no part: nothing, or a reminder if it is stuck, or its reduction called off.
fn held_step(standing: &Standing, record: &Record, held: &Held) -> Step {
    let (Some(allocation), Some(in_force)) = (standing.allocation, record.target()) else {
        return Step::hold(held.clone());
    };
    if let (Held::Stuck { .. }, Some(asked)) = (held, record.retrying()) {
        let floor = standing.bounds.map_or(Bytes::MAX, |(floor, _)| floor);
        let is_allowed = asked >= floor.max(standing.least.unwrap_or_default());
        if is_allowed && in_force == asked {
            return Step::hold(held.clone());
        }
        if is_allowed && asked < allocation {
            let change = Change::Shrink { by: allocation - asked };
            return Step { send: Some(asked), clamp: None, change };
        }
    }
    // What its hypervisor still says of the time before a reboot may be what cannot be true.
    if matches!(held, Held::Implausible(_)) && record.must_nudge() {
        let to = nudged(standing, in_force, in_force);
        let by = in_force - to;
        return Step { send: Some(to), clamp: None, change: Change::Shrink { by } };
    }
    if calls_off_shrinking(held) && in_force < allocation {
        let send = Some(allocation.page_ceil());
        return Step { send, clamp: None, change: Change::CancelShrink { why: held.clone() } };
    }
    Step::hold(held.clone())
}

/// A guest that is moved towards its goal, as far as memory is there.
fn moved_step(
    input: &Rationing<'_>,
    standing: &Standing,
    record: &Record,
    goal: &Goal,
    reference: Bytes,
    grant: Bytes,
) -> Step {
    let send_again = record.must_send_again();
    let (target, raised) = target_now(standing, goal, reference);
    let target = if record.must_nudge() { nudged(standing, target, reference) } else { target };
    if target <= reference {
        let by = reference - target;
        if by == Bytes::ZERO && !send_again {
            let held = goal.held.clone().unwrap_or(Held::OnTarget);
            return Step { clamp: raised, ..Step::hold(held) };
        }
        return Step { send: Some(target), clamp: raised, change: Change::Shrink { by } };
    }
    let affordable = standing.target_for(standing.lasting() + grant);
    let reachable = target.min(affordable.max(standing.unsparable())).max(reference);
    let short = target - reachable;
    let clamp = (short > Bytes::ZERO).then(|| {
        let by_budget = input.budget.distributable.saturating_sub(input.budget.committed);
        if input.budget.grantable < by_budget.page_floor() {
            Clamped::HostReserve { short }
        } else {
            Clamped::AwaitingRelease { short }
        }
    });
    let clamp = clamp.or(raised);
    let by = reachable - reference;
    let is_urgent = reference < standing.unsparable();
    let worth_it = short == Bytes::ZERO || by >= GRANT_MIN || is_urgent;
    if !send_again && (by == Bytes::ZERO || !worth_it) {
        return Step { send: None, clamp, change: Change::Hold(Held::OnTarget) };
    }
    Step { send: Some(reachable), clamp, change: Change::Grow { by } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_reach_is_shared_in_proportion() {
        assert_eq!(in_proportion(&[30, 10, 0], 100), [30, 10, 0]);
        assert_eq!(in_proportion(&[30, 10, 0], 20), [15, 5, 0]);
        assert_eq!(in_proportion(&[10, 10, 10], 10), [4, 3, 3]);
        assert_eq!(in_proportion(&[], 10), [0; 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nobody_gets_more_than_it_wants(
            wants in prop::collection::vec(0..1u64 << 40, 0..40),
            pages in 0..1u64 << 42,
        ) {
            let parts = in_proportion(&wants, pages);
            let total: u64 = wants.iter().sum();
            prop_assert_eq!(parts.iter().sum::<u64>(), total.min(pages));
            for (part, want) in parts.iter().zip(&wants) {
                prop_assert!(part <= want);
            }
        }
    }
}
