//! Judges, by the true state, whether a tick's orders keep the promises.
//!
//! Idea: guests and the host are judged as they are, not as they are reported. The daemon's own
//! view is used only where a promise depends on it: which guest it regards as overdue, and which
//! guest it has never heard of.

use std::time::Duration;

use ballast_model::{Bounds, Change, Compliance, GuestPlan, HoldReason};

use crate::due::{SLACK, settles};
use crate::guest::{Driver, OVERHEAD, StormGuest};
use crate::host::paged_out;
use crate::run::Storm;
use crate::violation::Violation;
use crate::world::{CAP_ROOM, Holding};

/// The part of its memory that an offender can hide as possible need of its hypervisor, as a
/// divisor, and the least amount, MiB.
const HIDDEN_PART: u64 = 8;
const HIDDEN_MIN: u64 = 64;

/// Statistics older than this take nothing from a guest. By QMP they have whole seconds.
const STALE_AFTER: Duration = Duration::from_secs(10);
const STAMP: Duration = Duration::from_secs(1);

/// What an offender may keep, MiB: room for its hypervisor, and what it reads back while the host
/// pages.
const KEPT_MIN: u64 = 200;

/// A tick takes at most this long unless the host slept.
const SLEEP_MIN: Duration = Duration::from_secs(2);

/// The host takes back what an offender keeps within this time; it first gives the guest time to
/// comply.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(60);

/// How much an offender may hide, MiB.
pub(crate) fn hidden(guest: &StormGuest) -> u64 {
    HIDDEN_MIN + guest.boot / HIDDEN_PART
}

impl Storm<'_> {
    pub(crate) fn judge_tick(&mut self) -> Result<(), Violation> {
        let view = self.engine.view(&self.world).expect("there was a tick");
        if view.plans_refused > 0 {
            let why =
                view.plan.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(Violation::PlanRefused(why));
        }
        if view.limits.len() > self.world.guests.len() {
            return Err(Violation::Unbounded(view.limits.len()));
        }
        let is_owned = |line: &&GuestPlan| {
            let is_owned = matches!(line.change, Change::Hold(HoldReason::AnotherOwner { .. }));
            // False sizes from a driver look like another owner's orders; they harm no other guest.
            is_owned && self.world.guests.iter().any(|it| it.id == line.id && !it.is_offender)
        };
        if let Some(line) = view.plan.guests.iter().find(is_owned) {
            // There is no other owner in a storm.
            return Err(Violation::TakenForOwned(line.id.clone()));
        }
        if let Some(action) = self.world.ordered.first()
            && !self.paused_until.is_zero()
        {
            return Err(Violation::ActsPaused(action.guest.clone()));
        }
        self.judge_host()?;
        let is_stamped = !self.world.wires.is_empty();
        let stale_after = STALE_AFTER + if is_stamped { STAMP } else { Duration::ZERO };
        let mut grants = false;
        for action in &self.world.ordered {
            let place = self.world.guests.iter().position(|guest| guest.id == action.guest);
            let Some(place) = place else { continue };
            let Bounds { floor, ceiling } = self.bounds(&self.world.guests[place]);
            let guest = &self.world.guests[place];
            let fence = self.world.fence(guest);
            let guest = &mut self.world.guests[place];
            let change = view.plan.guest(&guest.id).map(|line| &line.change);
            // An order to keep what the guest holds is no grant.
            if matches!(change, Some(Change::CancelShrink { .. })) {
                continue;
            }
            let needs = (action.target.get() >> 20) + OVERHEAD;
            // What a non-complying offender is left is no grant.
            let is_honest = !guest.is_offender;
            if let Some(height) = fence.filter(|height| *height < needs && is_honest) {
                let guest = guest.id.clone();
                return Err(Violation::FencedIn { guest, needs, height });
            }
            let granted = std::mem::replace(&mut guest.granted, action.target.get() >> 20);
            guest.is_forgotten = false;
            let target = action.target.get() >> 20;
            let age = guest.stats_age(self.world.now);
            if target < granted.min(guest.holds) && age > stale_after {
                return Err(Violation::OnStaleFigures { guest: guest.id.clone(), age });
            }
            let (floor, ceiling) = (floor.get() >> 20, ceiling.get() >> 20);
            if target > ceiling && target > guest.holds {
                let guest = guest.id.clone();
                return Err(Violation::AboveCeiling { guest, target, ceiling });
            }
            // A floor may be new and is then reached in steps, so an order that takes nothing keeps
            // the promise.
            let is_first = granted == 0 && !guest.was_ordered;
            let before = if is_first { u64::MAX } else { granted };
            if target < floor && target < guest.holds.min(before) {
                let guest = guest.id.clone();
                return Err(Violation::BelowFloor { guest, target, floor });
            }
            // Before its first order, its claim is all that the daemon knows.
            let holds =
                if guest.was_ordered { guest.holds } else { guest.claims().min(guest.boot) };
            grants |= target > guest.holds.max(holds).max(granted);
        }
        // A stuck guest can be granted more without an order; the journal shows that.
        for left in &self.world.recorded.guests {
            let id = &left.handover.guest;
            let ordered = self.world.ordered.iter().find(|action| action.guest == *id);
            // An order to keep what the guest holds is no grant.
            let is_kept = view
                .plan
                .guest(id)
                .is_some_and(|it| matches!(it.change, Change::CancelShrink { .. }));
            let ordered = ordered.filter(|_| !is_kept).map(|action| action.target);
            let granted = left.handover.granted.or(left.target).max(ordered);
            let guest = self.world.guests.iter_mut().find(|guest| guest.id == *id);
            let (Some(guest), Some(granted)) = (guest, granted) else { continue };
            if left.process != guest.process {
                // The daemon died before it recorded that this is another process.
                continue;
            }
            // The room that a cap leaves for the hypervisor was counted as held before, as far as
            // it is held.
            let room = left.handover.resident_cap.map_or(0, |_| CAP_ROOM);
            let had = guest.granted.max(guest.holds.min(guest.granted + room));
            let had = guest.entitled(had);
            grants |= granted.get() >> 20 > had;
            guest.granted = granted.get() >> 20;
        }
        if grants {
            self.judge_grants()?;
        }
        Ok(())
    }

    /// Checks that what the host is asked to do is possible, and that no guest is touched that must
    /// be left alone.
    fn judge_host(&mut self) -> Result<(), Violation> {
        let Some((_, plan)) = self.engine.latest() else { return Ok(()) };
        let guests = &self.world.guests;
        for id in paged_out(&plan.paging) {
            if !self.world.host.has_room(guests) {
                return Err(Violation::PagedWithoutRoom(id.clone()));
            }
        }
        let ordered = self.world.ordered.iter().map(|action| &action.guest);
        for id in paged_out(&plan.paging).chain(ordered) {
            let guest = guests.iter().find(|guest| guest.id == *id);
            // The daemon cannot know of a guest it does not hear that the guest is being moved.
            let now = self.world.now;
            let is_known = |guest: &StormGuest| {
                guest.is_moved(now) && !guest.is_unheard && now >= guest.stalled_until
            };
            if guest.is_some_and(is_known) {
                return Err(Violation::TakenWhileMoved(id.clone()));
            }
        }
        Ok(())
    }

    /// Checks that memory and swap suffice as long as every guest keeps to its grant.
    pub(crate) fn judge_room(&self) -> Result<(), Violation> {
        let lacking = self.world.host.refused;
        let keeps_to_grant = |guest: &StormGuest| {
            guest.is_gone() || guest.granted > 0 && guest.resident() <= guest.granted + SLACK
        };
        let is_told = self.world.now >= self.untold_until;
        if lacking > 0 && is_told && self.world.guests.iter().all(keeps_to_grant) {
            return Err(Violation::Exhausted(lacking));
        }
        Ok(())
    }

    /// Checks that no agent got more than its ration.
    pub(crate) fn judge_agents(&mut self) -> Result<(), Violation> {
        for (agent, guest) in self.world.agents.iter_mut().zip(&self.world.guests) {
            if let Some(what) = agent.as_mut().and_then(|it| it.excess.take()) {
                return Err(Violation::BeyondRation { guest: guest.id.clone(), what });
            }
        }
        Ok(())
    }

    /// Checks that the host takes back in time what an offender visibly keeps without a grant.
    pub(crate) fn judge_debts(&mut self, passed: Duration) -> Result<(), Violation> {
        let now = self.world.now;
        let can_page = !self.world.hides_host
            && self.world.host.is_quick(now)
            && self.world.host.has_room(&self.world.guests)
            && self.paused_until == Duration::ZERO;
        for guest in &mut self.world.guests {
            let occupies = guest.visible(now);
            let keeps = guest.driver != Driver::Honest
                && guest.was_ordered
                && occupies > guest.granted.saturating_add(KEPT_MIN);
            if !keeps || !can_page || guest.is_moved(now) {
                guest.kept_for = Duration::ZERO;
                continue;
            }
            // A host that slept could take nothing back.
            guest.kept_for += passed.min(SLEEP_MIN);
            if guest.kept_for > TAKEN_BACK_WITHIN {
                let (guest, granted) = (guest.id.clone(), guest.granted);
                return Err(Violation::NotTakenBack { guest, occupies, granted });
            }
        }
        Ok(())
    }

    /// After a grant: checks that the granted memory exists, apart from what offenders may hide. If
    /// more could be taken before the grant already, because a guest rebooted, the grant must not
    /// add to it.
    fn judge_grants(&self) -> Result<(), Violation> {
        if self.world.now < self.untold_until {
            return Ok(());
        }
        let before = &self.world.before;
        let (mut takeable, mut earlier) = (0, 0);
        let mut allowed = self.drawn.budget;
        let plan = self.engine.latest().map(|(_, plan)| plan);
        for (guest, before) in self.world.guests.iter().zip(before) {
            // The daemon cannot count a guest that it has never heard of.
            let line = plan.and_then(|plan| plan.guest(&guest.id));
            if line.is_some_and(|line| line.allocation.is_none() && line.target.is_none()) {
                continue;
            }
            let after = self.takeable(guest);
            let is_granted = guest.granted > guest.entitled(before.granted);
            takeable += if is_granted { after } else { after.min(before.takeable) };
            earlier += before.takeable;
            if guest.is_offender {
                allowed += hidden(guest);
            }
        }
        // What the plan keeps free for guests that are to come must not go to others.
        let promised = self.promised();
        let (takeable, earlier) = (takeable + promised, earlier + self.world.promised);
        if takeable > allowed.max(earlier) {
            let guests = self.world.guests.iter().zip(before);
            let guests = guests.map(|(guest, before)| self.told(guest, before)).collect();
            return Err(Violation::Overcommitted { takeable, allowed, guests });
        }
        Ok(())
    }

    /// Memory that the last plan keeps free for guests that are to come, MiB.
    pub(crate) fn promised(&self) -> u64 {
        let plan = self.engine.latest().map(|(_, plan)| plan);
        plan.map_or(0, |plan| plan.reservations.iter().map(|it| it.free.get() >> 20).sum())
    }

    /// A guest's figures for a violation's text.
    fn told(&self, guest: &StormGuest, before: &Holding) -> String {
        let StormGuest { id, holds, granted, target, .. } = guest;
        format!(
            "{id} {} after {}: holds {holds}, ordered {target}, granted {granted} after {}, \
             resident {}",
            self.takeable(guest),
            before.takeable,
            before.granted,
            guest.resident()
        )
    }

    /// For each guest, whether it owes memory by the last plan.
    pub(crate) fn overdue(&self) -> Vec<bool> {
        self.world.guests.iter().map(|guest| self.is_overdue(guest)).collect()
    }

    /// How much a guest may come to occupy, MiB. A guest that is overdue is held to its grant.
    fn takeable(&self, guest: &StormGuest) -> u64 {
        self.world.takeable(guest, self.is_overdue(guest))
    }

    /// Whether a guest owes memory by the last plan; a new process under its name owes nothing.
    fn is_overdue(&self, guest: &StormGuest) -> bool {
        let plan = self.engine.latest().map(|(_, plan)| plan);
        let plan = plan.filter(|_| self.world.left(guest).is_some());
        plan.and_then(|plan| plan.guest(&guest.id)).is_some_and(|line| {
            matches!(line.compliance, Compliance::Slow { .. } | Compliance::Stuck { .. })
        })
    }

    /// Something that has not settled yet; `None`: all has.
    pub(crate) fn amiss(&self) -> Option<String> {
        let (_, plan) = self.engine.latest()?;
        let settles = settles(self.drawn.settings.policy);
        for guest in &plan.guests {
            match guest.compliance {
                Compliance::Compliant => {}
                Compliance::Releasing { .. } if !settles => continue,
                other => return Some(format!("{} is {other:?}", guest.id)),
            }
            let truth = self.world.guests.iter().find(|it| it.id == guest.id)?;
            if !settles {
                continue;
            }
            if guest.target.is_some_and(|target| truth.holds.abs_diff(target.get() >> 20) > SLACK) {
                return Some(format!("{} holds {} of {:?}", guest.id, truth.holds, guest.target));
            }
        }
        if !plan.actions.is_empty() && settles {
            return Some(format!("{} orders", plan.actions.len()));
        }
        (!plan.paging.is_empty()).then(|| format!("{} orders to page", plan.paging.len()))
    }
}
