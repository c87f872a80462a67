//! Whether what was ordered keeps the promises, by what is really so.
//!
//! Idea: guests and host are looked at as they are, not as they are reported. What the daemon itself
//! thinks is asked for only where a promise depends on it: which guest it holds to be overdue, and
//! which one it has never heard of.

use std::time::Duration;

use ballast_daemon::view::View;
use ballast_model::{Bytes, Change, Compliance, GuestLimits, GuestPlan, Held, PolicyName};

use crate::agent::StormAgent;
use crate::guest::{Driver, StormGuest};
use crate::run::Storm;
use crate::violation::Violation;
use crate::world::Holding;

/// What guests are given beside what they use.
const RESERVE: u64 = 110;

/// An offender may hide this part of its memory in what a hypervisor may need.
const HIDDEN_PART: u64 = 8;
const HIDDEN_MIN: u64 = 64;

/// What is believed of a liar's needs without evidence, as a part of what it has filled.
pub(crate) const BELIEVED_PART: u64 = 4;

/// What is not worth an order, or a balloon's last pages.
pub(crate) const SLACK: u64 = 24;

/// Statistics older than this take nothing from a guest. By QMP they have whole seconds.
const STALE_AFTER: Duration = Duration::from_secs(10);
const STAMP: Duration = Duration::from_secs(1);

/// What an offender may keep: room for its hypervisor, and what it reads back while the host pages.
const KEPT_MIN: u64 = 200;

/// A tick takes this long at most, unless the host slept.
const SLEEP_MIN: Duration = Duration::from_secs(2);

/// The host takes back what an offender keeps within this time: it is given time to comply first.
const TAKEN_BACK_WITHIN: Duration = Duration::from_secs(60);

/// A guest that holds this much more than its part is left that.
pub(crate) const DEAD_BAND: u64 = 10;

/// What an offender may hide.
pub(crate) fn hidden(guest: &StormGuest) -> u64 {
    HIDDEN_MIN + guest.boot / HIDDEN_PART
}

impl Storm<'_> {
    pub(crate) fn judge_tick(&mut self) -> Result<(), Violation> {
        let view = self.engine.view(&self.world).expect("there was a tick");
        if view.plans_refused > 0 {
            let why =
                view.plan.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(Violation::PlanRefused { why });
        }
        if view.limits.len() > self.world.guests.len() {
            return Err(Violation::Unbounded { remembered: view.limits.len() });
        }
        let is_owned =
            |line: &&GuestPlan| matches!(line.change, Change::Hold(Held::AnotherOwner { .. }));
        if let Some(line) = view.plan.guests.iter().find(is_owned) {
            // Nobody else orders anything in a storm.
            return Err(Violation::TakenForOwned { guest: line.id.clone() });
        }
        if let Some(action) = self.world.ordered.first()
            && !self.paused_until.is_zero()
        {
            return Err(Violation::ActsPaused { guest: action.guest.clone() });
        }
        let is_stamped = !self.world.wires.is_empty();
        let stale_after = STALE_AFTER + if is_stamped { STAMP } else { Duration::ZERO };
        let mut grants = false;
        for action in &self.world.ordered {
            let guest = self.world.guests.iter_mut().find(|guest| guest.id == action.guest);
            let Some(guest) = guest else { continue };
            let change = view.plan.guest(&guest.id).map(|line| &line.change);
            // To be told to keep what it holds is no grant.
            if matches!(change, Some(Change::CancelShrink { .. })) {
                continue;
            }
            let granted = std::mem::replace(&mut guest.granted, action.target.get() >> 20);
            guest.is_forgotten = false;
            let target = action.target.get() >> 20;
            let age = guest.stats_age(self.world.now);
            if target < granted.min(guest.holds) && age > stale_after {
                return Err(Violation::OnStaleFigures { guest: guest.id.clone(), age });
            }
            // No fault sets a floor.
            let floor = GuestLimits::default().floor_for(Bytes::mib(guest.boot)).get() >> 20;
            if target < floor && target < guest.holds {
                let guest = guest.id.clone();
                return Err(Violation::BelowFloor { guest, target, floor });
            }
            // Before it was ordered anything its claim is all there is to go by.
            let holds =
                if guest.was_ordered { guest.holds } else { guest.claims().min(guest.boot) };
            grants |= target > guest.holds.max(holds).max(granted);
        }
        // A stuck guest is asked to hold more without an order; the journal tells.
        for left in &self.world.recorded.guests {
            let id = &left.handover.guest;
            let ordered = self.world.ordered.iter().find(|action| action.guest == *id);
            // To be told to keep what it holds is no grant.
            let is_kept = view
                .plan
                .guest(id)
                .is_some_and(|it| matches!(it.change, Change::CancelShrink { .. }));
            let ordered = ordered.filter(|_| !is_kept).map(|action| action.target);
            let granted = left.handover.granted.or(left.target).max(ordered);
            let guest = self.world.guests.iter_mut().find(|guest| guest.id == *id);
            let (Some(guest), Some(granted)) = (guest, granted) else { continue };
            grants |= granted.get() >> 20 > guest.granted;
            guest.granted = granted.get() >> 20;
        }
        if grants {
            self.judge_grants()?;
        }
        Ok(())
    }

    /// No agent has more done for it than it has a right to.
    pub(crate) fn judge_agents(&mut self) -> Result<(), Violation> {
        for (agent, guest) in self.world.agents.iter_mut().zip(&self.world.guests) {
            if let Some(what) = agent.as_mut().and_then(StormAgent::take_excess) {
                return Err(Violation::BeyondRation { guest: guest.id.clone(), what });
            }
        }
        Ok(())
    }

    /// What an offender keeps without a grant, for the host to see, is taken back in time.
    pub(crate) fn judge_debts(&mut self, passed: Duration) -> Result<(), Violation> {
        let now = self.world.now;
        let can_page = !self.world.hides_host
            && now >= self.world.swap_hangs_until
            && self.paused_until == Duration::ZERO;
        for guest in &mut self.world.guests {
            let occupies = guest.visible(now);
            let keeps = guest.driver != Driver::Honest
                && guest.was_ordered
                && occupies > guest.granted.saturating_add(KEPT_MIN);
            if !keeps || !can_page {
                guest.kept_for = Duration::ZERO;
                continue;
            }
            // A host that slept takes nothing back.
            guest.kept_for += passed.min(SLEEP_MIN);
            if guest.kept_for > TAKEN_BACK_WITHIN {
                let (guest, granted) = (guest.id.clone(), guest.granted);
                return Err(Violation::NotTakenBack { guest, occupies, granted });
            }
        }
        Ok(())
    }

    /// Memory was granted: it has to be there, but for what an offender hides. Where more could be
    /// taken than that already, as a guest rebooted, the grants must not add to it.
    fn judge_grants(&self) -> Result<(), Violation> {
        if self.world.now < self.untold_until {
            return Ok(());
        }
        let before = &self.world.before;
        let (mut takeable, mut earlier) = (0, 0);
        let mut allowed = self.drawn.budget;
        let plan = self.engine.latest().map(|(_, plan)| plan);
        for (guest, before) in self.world.guests.iter().zip(before) {
            // Nobody can count a guest that this daemon has never heard of.
            let line = plan.and_then(|plan| plan.guest(&guest.id));
            if line.is_some_and(|line| line.allocation.is_none() && line.target.is_none()) {
                continue;
            }
            let after = self.takeable(guest);
            let is_granted = guest.granted > before.granted;
            takeable += if is_granted { after } else { after.min(before.takeable) };
            earlier += before.takeable;
            if guest.is_offender {
                allowed += hidden(guest);
            }
        }
        if takeable > allowed.max(earlier) {
            let guests = self.world.guests.iter().zip(before);
            let guests = guests.map(|(guest, before)| self.told(guest, before)).collect();
            return Err(Violation::Overcommitted { takeable, allowed, guests });
        }
        Ok(())
    }

    /// A guest in the words of a violation.
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

    /// Which guests owe memory by the last plan.
    pub(crate) fn overdue(&self) -> Vec<bool> {
        self.world.guests.iter().map(|guest| self.is_overdue(guest)).collect()
    }

    /// What a guest may come to occupy. One that is overdue is held to what it was granted.
    fn takeable(&self, guest: &StormGuest) -> u64 {
        self.world.takeable(guest, self.is_overdue(guest))
    }

    /// Whether a guest owes memory by the last plan; another process under its name owes nothing.
    fn is_overdue(&self, guest: &StormGuest) -> bool {
        let plan = self.engine.latest().map(|(_, plan)| plan);
        let plan = plan.filter(|_| self.world.left(guest).is_some());
        plan.and_then(|plan| plan.guest(&guest.id)).is_some_and(|line| {
            matches!(line.compliance, Compliance::Slow { .. } | Compliance::Stuck { .. })
        })
    }

    /// What has not settled yet.
    pub(crate) fn amiss(&self) -> Option<String> {
        let (_, plan) = self.engine.latest()?;
        for guest in &plan.guests {
            if !matches!(guest.compliance, Compliance::Compliant) {
                return Some(format!("{} is {:?}", guest.id, guest.compliance));
            }
            let truth = self.world.guests.iter().find(|it| it.id == guest.id)?;
            if guest.target.is_some_and(|target| truth.holds.abs_diff(target.get() >> 20) > SLACK) {
                return Some(format!("{} holds {} of {:?}", guest.id, truth.holds, guest.target));
            }
        }
        if !plan.actions.is_empty() {
            return Some(format!("{} orders", plan.actions.len()));
        }
        (!plan.paging.is_empty()).then(|| format!("{} orders to page", plan.paging.len()))
    }

    /// A guest's part of the budget by shares alone.
    pub(crate) fn share(&self, guest: &StormGuest) -> u64 {
        let view = self.engine.view(&self.world).expect("there was a tick");
        let shares = |guest: &StormGuest| shares(&view, guest);
        let all: u64 = self.world.guests.iter().map(shares).sum();
        (self.drawn.budget * shares(guest) / all).min(guest.boot)
    }

    /// What shares alone give a guest, whatever it claims: under `static` also its part of what others
    /// cannot hold of theirs.
    pub(crate) fn part(&self, guest: &StormGuest) -> u64 {
        let view = self.engine.view(&self.world).expect("there was a tick");
        if self.drawn.settings.policy != PolicyName::Static {
            return self.share(guest);
        }
        let shares = |guest: &StormGuest| shares(&view, guest);
        let (mut left, mut open) = (self.drawn.budget, Vec::from_iter(&self.world.guests));
        loop {
            let all: u64 = open.iter().map(|guest| shares(guest)).sum();
            let is_full = |other: &&StormGuest| other.boot * all <= left * shares(other);
            let full: Vec<_> = open.iter().copied().filter(is_full).collect();
            if full.is_empty() || full.iter().any(|other| other.id == guest.id) {
                return (left * shares(guest) / all.max(1)).min(guest.boot);
            }
            left -= full.iter().map(|guest| guest.boot).sum::<u64>();
            open.retain(|other| full.iter().all(|guest| guest.id != other.id));
        }
    }

    /// What a guest keeps that claims to use all that it holds and to have no swap: whatever it is
    /// granted by right, which is its part or, where needs count, what it is believed to need and what
    /// guests are given beside that.
    pub(crate) fn keeps(&self, guest: &StormGuest) -> u64 {
        let filled = guest.touched.min(self.entitlement(guest));
        let needs = match self.drawn.settings.policy {
            PolicyName::Static => 0,
            _ => filled + filled / BELIEVED_PART + RESERVE,
        };
        self.part(guest).max(needs.min(guest.boot))
    }

    /// What a guest was last granted; its part by shares before it was granted anything.
    pub(crate) fn entitlement(&self, guest: &StormGuest) -> u64 {
        if guest.granted > 0 { guest.granted } else { self.share(guest) }
    }

    /// No honest guest ends below what is due to it: its share where shares alone count, and what it
    /// needs where there is enough for all.
    pub(crate) fn judge_end(&self) -> Result<(), Violation> {
        let needs = |guest: &StormGuest| (guest.wants + RESERVE).min(guest.boot);
        // What is not worth an order to each of the others adds up.
        let slack = SLACK + DEAD_BAND * (self.world.guests.len() as u64 - 1);
        let fits = self.world.guests.iter().map(needs).sum::<u64>() <= self.drawn.budget;
        for guest in self.world.guests.iter().filter(|guest| !guest.is_offender) {
            let due = match self.drawn.settings.policy {
                PolicyName::Static => self.part(guest),
                _ if fits => guest.wants,
                _ => 0,
            };
            if guest.holds + slack < due {
                let (guest, has) = (guest.id.clone(), guest.holds);
                return Err(Violation::Squeezed { guest, has, due });
            }
        }
        Ok(())
    }
}

/// A guest's shares; the default's where the daemon was not shown it.
fn shares(view: &View, guest: &StormGuest) -> u64 {
    let limits = view.limits.get(&guest.id).cloned().unwrap_or_default();
    limits.shares.into()
}
