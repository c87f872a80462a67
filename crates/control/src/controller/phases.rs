//! The phases of a tick, in the order in which they run.
//!
//! Idea: each phase takes what the one before it returned and adds its own part. State that lives
//! from tick to tick changes in three places: that of the host and of the guests seen in `observe`,
//! goals in `divide` and `bound`, and everything that a plan changes in `commit`.

use ballast_actuation::host_pressure::HostPressureSettings;
use ballast_actuation::paging::ResidentCap;
use ballast_guard::check::Rules;
use ballast_guard::goal_for;
use ballast_guard::{
    Assessment, AssessmentInput, Lack, Rooms, TickBudget, Totals, allocate_grants, budget_for,
};
use ballast_model::{
    Bytes, Change, Compliance, Estimate, GuestPlan, HoldReason, HostSample, Note, PerGuest, Plan,
    PressureLevel, RequestKind, Snapshot,
};
use ballast_policy::Pacing;

use super::Controller;
use crate::Settings;
use crate::actuate::actuate;
use crate::assess::{AssessmentContext, assess, observe};
use crate::divide::{
    Divided, PosedProblem, given_back, has_proven_more, needs_more, problem, unproven,
};
use crate::grant::Granting;
use crate::page::{Host, page, rich};
use crate::plan::{Draft, Proposal, StateChange, refused};
use crate::state::GuestState;
use crate::tick::{GuestActuation, GuestTick, ObservedGuest, Tick};
use crate::transfer::Transfer;

/// A smaller debt of all guests together gets no note.
const DEBT_NOTED_MIN: Bytes = Bytes::mib(16);

/// Whether the host has somewhere to page guests out to.
fn may_page(snapshot: &Snapshot, settings: &Settings) -> bool {
    settings.paging.is_some_and(|rules| rules.has_room(&snapshot.host))
}

/// How much of the host's swap is in use.
fn swapped_out(host: &HostSample) -> Bytes {
    let (total, free) = (host.swap_total.unwrap_or_default(), host.swap_free.unwrap_or_default());
    total.saturating_sub(free)
}

impl Controller {
    /// Takes in a snapshot: what happened to the host and to each guest since the last one.
    pub(super) fn observe<'a>(
        &mut self,
        guests: &'a mut PerGuest<GuestState>,
        snapshot: &'a Snapshot,
        settings: &'a Settings,
    ) -> impl Iterator<Item = ObservedGuest<'a>> + use<'a> {
        let reserve = settings.guard.host_reserve;
        let pressure = HostPressureSettings { reserve, ..HostPressureSettings::default() };
        self.host.observe(snapshot.taken_at, &snapshot.host, &pressure);
        let is_held = self.held().is_some();
        self.checker.observe(snapshot, &settings.limits);
        observe(guests, snapshot, settings, is_held)
    }

    /// What is known of each guest, and how much memory there is to divide.
    pub(super) fn assess<'a>(
        &self,
        snapshot: &'a Snapshot,
        seen: impl Iterator<Item = ObservedGuest<'a>>,
        settings: &Settings,
    ) -> Tick<'a> {
        let for_guests = settings.guard.budget.or_else(|| {
            Some(snapshot.host.memory_total?.saturating_sub(settings.guard.host_reserve))
        });
        let context = AssessmentContext {
            now: snapshot.taken_at,
            stale_after: settings.guard.stale_after,
            believed_percent: settings.guard.believed_percent,
            paged_out: swapped_out(&snapshot.host),
            host_memory: snapshot.host.memory_total.unwrap_or_default(),
            may_page: may_page(snapshot, settings),
            shared: for_guests.map(|budget| (budget, settings.limits.shares_of_all(snapshot))),
            hotplug: settings.hotplug.as_ref(),
        };
        let (mut totals, mut thrashes, mut has_thrashed) = (Totals::default(), false, false);
        // The iterator knows its length, so `collect` writes each assessment to its final place.
        let guests = seen.map(|seen| {
            thrashes |= seen.thrashes;
            has_thrashed |= seen.state.thrash.least(context.now).is_some();
            assess(seen, context, |assessment| totals.add(assessment, &settings.guard))
        });
        let guests: Vec<GuestTick<'a>> = guests.collect();
        let committed = |guest: &GuestTick<'a>| (guest.sample, guest.assessment.committed);
        let rooms = Rooms::new(guests.iter().map(committed));
        let reserved = self.reservations.sum();
        let TickBudget { mut budget, kept_free, notes } =
            budget_for(&snapshot.host, &totals, reserved, &settings.guard);
        if self.host.level() == PressureLevel::Freeze {
            budget.grantable = Bytes::ZERO;
        }
        Tick { snapshot, guests, totals, rooms, thrashes, has_thrashed, budget, kept_free, notes }
    }

    /// Whether to ask the policy. It is asked when its interval is over, when a guest thrashes,
    /// when the set of movable guests changed, when more is committed than the host now has, or
    /// when a guest needs or requests memory in a way that cannot wait.
    pub(super) fn is_due(&self, tick: &Tick<'_>, settings: &Settings) -> bool {
        let now = tick.snapshot.taken_at;
        let (reserve, dead_band) = (settings.policy_settings.reserve, self.dead_band(settings));
        let is_over = self.next_decision.is_none_or(|at| now >= at);
        let is_overcommitted = tick.budget.committed > tick.budget.distributable;
        if is_over || tick.thrashes && settings.undo || is_overcommitted {
            return true;
        }
        let Pacing { on_need, on_request, .. } = self.policy.pacing();
        tick.guests.iter().any(|guest| {
            guest.assessment.has_part != guest.state.goal.is_some()
                || has_proven_more(guest)
                || on_need && needs_more(guest, reserve, dead_band)
                || has_urgent_request(guest, on_request)
        })
    }

    /// Changes up to this size are not made.
    fn dead_band(&self, settings: &Settings) -> Bytes {
        settings.guard.dead_band.unwrap_or(self.policy.pacing().dead_band)
    }

    /// Asks the policy for the target of each guest that can be moved.
    pub(super) fn divide(&mut self, tick: &Tick<'_>, settings: &Settings) -> Divided {
        let now = tick.snapshot.taken_at;
        self.next_decision = Some(now + settings.interval.unwrap_or(self.policy.pacing().interval));
        let PosedProblem { given_back, problem } = self.pose(tick, settings);
        self.fairness.observe(&problem);
        let division = self.policy.divide(&problem);
        self.shortfall = division.shortfall;
        self.policy_notes = division.notes;
        Divided { given_back, wanted: division.wanted }
    }

    /// The problem that this tick poses to the policy.
    pub(super) fn pose(&self, tick: &Tick<'_>, settings: &Settings) -> PosedProblem {
        // A guest's debt (memory beyond its entitlement) is not charged to the others. Exception:
        // the host is short of memory itself and cannot page. Then the occupied part of the debt is
        // charged.
        let is_short = self.host.level() > PressureLevel::Normal;
        let unpaid = match is_short && !may_page(tick.snapshot, settings) {
            true => tick.totals.debt_occupied,
            false => Bytes::ZERO,
        };
        let spoken_for = tick.totals.immovable.saturating_add(unpaid);
        let left = tick.budget.distributable.saturating_sub(spoken_for);
        let given_back = match settings.undo {
            true => given_back(tick, left, &settings.thrash),
            false => Vec::new(),
        };
        let problem = problem(tick, left, &given_back);
        PosedProblem { given_back, problem }
    }

    /// Clamps what the policy wants, if it was asked, to each guest's own limits. Returns what each
    /// guest then lacks.
    pub(super) fn bound(
        &self,
        tick: &mut Tick<'_>,
        divided: Option<Divided>,
        settings: &Settings,
    ) -> Vec<Lack> {
        let guard = &settings.guard;
        let dead_band = self.dead_band(settings);
        let lack = |guest: &GuestTick<'_>| Lack::of(&guest.assessment, guest.state.goal.as_ref());
        let Some(Divided { given_back, wanted }) = divided else {
            return tick.guests.iter().map(lack).collect();
        };
        // Each of many guests may have less to give than the dead band. Without this, an arriving
        // guest or one below its floor would wait forever.
        let is_awaited =
            self.reservations.sum() > tick.kept_free || below_floors(tick) > tick.budget.grantable;
        let mut wanted = wanted.into_iter();
        let mut lacks = Vec::with_capacity(tick.guests.len());
        for (place, guest) in tick.guests.iter_mut().enumerate() {
            let request = guest.request().map(|request| request.number);
            guest.state.request = request.max(guest.state.request);
            guest.state.needed = guest.estimate().map(Estimate::used_and_swapped);
            let wanted = if guest.assessment.has_part { wanted.next() } else { None };
            guest.state.goal = wanted.and_then(|wanted| {
                let held = given_back.get(place).copied().flatten();
                let unproven = unproven(guest);
                let gives = guest.assessment.reference.is_some_and(|it| wanted.target < it);
                let band = if is_awaited && gives { Bytes::ZERO } else { dead_band };
                goal_for(&guest.assessment, wanted, held, unproven, band, guard)
            });
            lacks.push(lack(guest));
        }
        lacks
    }

    /// New memory for each guest, as far as some is free and the kernel's limits on its process
    /// leave some, and what is then left for plugging in ahead of need.
    pub(super) fn grant<'a>(
        &self,
        tick: &Tick<'a>,
        mut lacks: Vec<Lack>,
        settings: &'a Settings,
    ) -> Granting<'a> {
        let mut rooms = tick.rooms.clone();
        let narrow = rooms.cut(&mut lacks);
        let new = allocate_grants(&lacks, tick.budget);
        for (guest, new) in tick.guests.iter().zip(&new) {
            rooms.take(guest.sample, *new);
        }
        let mut granting = Granting {
            new,
            narrow,
            rooms,
            budget: tick.budget,
            guard: &settings.guard,
            held: self.held(),
            spare: Bytes::ZERO,
        };
        let is_normal = self.host.level() == PressureLevel::Normal;
        let plugs = settings.hotplug.is_some() && granting.held.is_none();
        let has_devices = || tick.guests.iter().any(|guest| guest.sample.hotplug.is_some());
        if is_normal && plugs && has_devices() {
            let granted: Bytes = tick
                .guests
                .iter()
                .enumerate()
                .map(|(place, guest)| granting.grant_to(place, guest).new_memory(&guest.assessment))
                .sum();
            granting.spare = tick.budget.grantable.saturating_sub(granted);
        }
        granting
    }

    /// For each guest: its grant, the order to its mechanisms, the cap on its process, and its line
    /// in the plan.
    pub(super) fn act(
        &self,
        mut tick: Tick<'_>,
        mut granting: Granting<'_>,
        settings: &Settings,
    ) -> Proposal {
        let now = tick.snapshot.taken_at;
        let host = Host {
            now,
            level: self.host.level(),
            lacks: tick.budget.committed > tick.budget.distributable
                || self.host.level() >= PressureLevel::ReclaimOwed,
            may_page: may_page(tick.snapshot, settings),
            is_held: self.held().is_some(),
            settings,
        };
        let pages = host.may_page || self.has_caps;
        let rich = if pages { rich(&tick, host) } else { Vec::new() };
        let hotplug = settings.hotplug.as_ref().filter(|_| !host.is_held);
        let (mut spare, mut rooms) = (granting.spare, std::mem::take(&mut granting.rooms));
        let mut draft = self.heading(&mut tick, settings);
        let lines = tick.guests.iter().enumerate().map(|(place, guest)| {
            let grant = granting.grant_to(place, guest);
            let most = spare.min(rooms.left(guest.sample));
            let actuated =
                actuate(guest, grant.send, now, most, hotplug, &settings.guard, host.is_held);
            spare = spare.saturating_sub(actuated.order.from_spare);
            rooms.take(guest.sample, actuated.order.from_spare);
            let is_rich = rich.get(place).copied().unwrap_or_default();
            let paged = pages.then(|| page(guest, is_rich, host));
            draft.line(place, guest, GuestActuation { grant, actuated, paged })
        });
        let lines = lines.collect();
        draft.finish(lines)
    }

    /// A proposal without guest lines yet.
    pub(super) fn heading<'a>(&'a self, tick: &mut Tick<'_>, settings: &Settings) -> Draft<'a> {
        let mut notes = std::mem::take(&mut tick.notes);
        if tick.totals.uncounted > 0 {
            notes.push(Note::Uncounted { guests: tick.totals.uncounted });
        }
        let Totals { debt, debtors: guests, .. } = tick.totals;
        if debt >= DEBT_NOTED_MIN {
            let collected = may_page(tick.snapshot, settings);
            notes.push(Note::BeyondEntitlement { guests, debt, collected });
        }
        if self.shortfall > Bytes::ZERO {
            notes.push(Note::Infeasible { shortfall: self.shortfall });
        }
        notes.extend(self.policy_notes.iter().cloned());
        let now = tick.snapshot.taken_at;
        let plan = Plan {
            generation: self.generation,
            decided_at: now,
            policy: settings.policy,
            budget: tick.budget,
            guests: Vec::new(),
            actions: Vec::new(),
            paging: Vec::new(),
            host_pressure: self.host.level(),
            reservations: self.reservations.with(tick.kept_free),
            notes,
        };
        Draft::new(plan, now + settings.guard.action_deadline, self.policy.accounts())
    }

    /// The violation that the checker finds, if any.
    pub(super) fn check(
        &self,
        proposal: &Proposal,
        snapshot: &Snapshot,
        settings: &Settings,
    ) -> Option<String> {
        if proposal.does_nothing() {
            return None;
        }
        let guard = &settings.guard;
        let rules = Rules {
            budget: guard.budget,
            host_reserve: guard.host_reserve,
            stale_after: guard.stale_after,
            step_up_max: guard.step_up_max,
            step_down_max: guard.step_down_max,
            limits: &settings.limits,
        };
        let found = self.checker.check(&proposal.plan, &proposal.promises, snapshot, &rules);
        found.first().map(ToString::to_string)
    }

    /// The plan is carried out: from now on its targets and promises are in force.
    pub(super) fn commit(&mut self, proposal: Proposal) -> Plan {
        let Proposal { plan, promises, changes, transfer } = proposal;
        self.checker.commit(&plan, &promises);
        for StateChange { place, target, entitles, ask, actuator, cap } in changes {
            let Some(state) = self.guests.at_mut(place) else { continue };
            if let Some(target) = target {
                state.log.record_target(target, entitles);
            }
            if let Some(ask) = ask {
                state.log.ask_anew(ask);
            }
            if let Some(next) = actuator {
                state.log.set_transient_grant(next.transient_grant());
                state.actuator = next.0;
            }
            self.has_caps |= cap != ResidentCap::default();
            state.resident_cap = cap;
        }
        self.transfer = transfer;
        plan
    }

    /// A plan that does nothing and says why. Nothing of `plan` is remembered.
    pub(super) fn refuse(&mut self, plan: Plan, violation: String) -> Plan {
        self.plans_refused += 1;
        let plan = refused(plan, &self.guests, violation);
        self.transfer = Transfer::of(&plan);
        plan
    }

    /// The clock went backwards: until it passes the latest moment seen, everything is held and
    /// samples are not remembered.
    pub(super) fn plan_for_a_clock_that_went_backwards(&self, snapshot: &Snapshot) -> Plan {
        let settings = &self.settings;
        let mut totals = Totals::default();
        let mut guests = Vec::with_capacity(snapshot.guests().len());
        let unknown = GuestState::default();
        for sample in snapshot.guests() {
            let limits = settings.limits.of(&sample.id);
            let state = self.guests.named(&sample.id).unwrap_or(&unknown);
            let mut holding = state.holding;
            holding.observe(sample, self.latest);
            let input = AssessmentInput {
                now: self.latest,
                sample,
                limits,
                log: &state.log,
                cap: state.resident_cap.in_force(),
                holding: &holding,
                shared: None,
                paged_out: swapped_out(&snapshot.host),
                believed_percent: settings.guard.believed_percent,
                stale_after: settings.guard.stale_after,
            };
            let assessment = Assessment::new(&input, Err(HoldReason::ClockBackwards), None);
            totals.add(&assessment, &settings.guard);
            guests.push(GuestPlan {
                id: sample.id.clone(),
                allocation: assessment.allocation,
                bounds: assessment.bounds,
                estimate: None,
                desired: None,
                clamps: Vec::new(),
                credits: None,
                compliance: Compliance::Compliant,
                target: state.log.target(),
                change: Change::Hold(HoldReason::ClockBackwards),
                moves: Vec::new(),
                balloon_rate: None,
                regret: None,
            });
        }
        let reserved = self.reservations.sum();
        let TickBudget { budget, kept_free, notes } =
            budget_for(&snapshot.host, &totals, reserved, &settings.guard);
        Plan {
            generation: self.generation,
            decided_at: snapshot.taken_at,
            policy: settings.policy,
            budget,
            guests,
            actions: Vec::new(),
            paging: Vec::new(),
            host_pressure: self.host.level(),
            reservations: self.reservations.with(kept_free),
            notes,
        }
    }
}

/// Whether a guest has made a request since the last decision that is not to wait for the next one:
/// an emergency or, if the policy decides `on_request`, any.
fn has_urgent_request(guest: &GuestTick<'_>, on_request: bool) -> bool {
    let Some(request) = guest.request() else { return false };
    let is_urgent = on_request || request.kind == RequestKind::Emergency;
    is_urgent && guest.state.request.is_none_or(|decided| request.number > decided)
}

/// Sum of what movable guests lack for their floors.
fn below_floors(tick: &Tick<'_>) -> Bytes {
    let mut lacking = Bytes::ZERO;
    for guest in tick.guests.iter().filter(|it| it.assessment.has_part) {
        if let (Some(bounds), Some(reference)) =
            (guest.assessment.bounds, guest.assessment.reference)
        {
            lacking = lacking.saturating_add(bounds.floor.saturating_sub(reference));
        }
    }
    lacking
}
