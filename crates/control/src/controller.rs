//! The state machine described in the crate's header.

#[cfg(test)]
mod corrupted;

use std::sync::Arc;

use ballast_actuation::host_pressure::{HostPressure, HostPressureSettings};
use ballast_actuation::paging::ResidentCap;
use ballast_estimate::Estimator;
use ballast_guard::check::{Checker, Rules};
use ballast_guard::goal_for;
use ballast_guard::{Assessment, Known, Lack, Totals, allocate_grants, budget_for};
use ballast_model::{
    Action, Bytes, Change, Compliance, Generation, GuestId, GuestPlan, Held, Note, Outcome,
    OutcomeKind, PerGuest, Plan, PressureLevel, RequestKind, Snapshot, Timestamp,
};
use ballast_policy::fairness::Fairness;
use ballast_policy::{Policy, build};

use crate::Settings;
use crate::actuate::actuate;
use crate::assess::{By, assess, observe};
use crate::divide::{Divided, given_back, problem};
use crate::event::Event;
use crate::grant::Granting;
use crate::page::{Host, page, rich};
use crate::plan::{Draft, Proposal, StateChange, refused};
use crate::state::GuestState;
use crate::tick::{GuestTick, Seen, Tick};
use crate::transfer::{Transfer, gives, waits};

/// Decides; does nothing else.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Arc<Settings>,
    policy: Box<dyn Policy>,
    estimator: Estimator,
    guests: PerGuest<GuestState>,
    checker: Checker,
    host: HostPressure,
    /// What the policy could not give at the last decision, as floors exceed the budget.
    shortfall: Bytes,
    /// What the policy said at the last decision.
    policy_notes: Vec<Note>,
    fairness: Fairness,
    /// `None`: decide at the next sample.
    next_decision: Option<Timestamp>,
    next_sample: Timestamp,
    latest: Timestamp,
    generation: Generation,
    paused: bool,
    /// The last plan, and how many of its actions were fetched.
    plan: Option<Arc<Plan>>,
    fetched: usize,
    plans_refused: u64,
    /// Whether a process was ever capped.
    has_caps: bool,
    transfer: Transfer,
}

impl Controller {
    /// A controller that wants its first sample at `now`.
    pub fn new(settings: Settings, now: Timestamp) -> Self {
        let policy = build(settings.policy, settings.policy_settings.clone());
        Controller::with_policy(settings, policy, now)
    }

    /// A controller with a policy that is not chosen by name: `settings` say the rest.
    pub fn with_policy(mut settings: Settings, policy: Box<dyn Policy>, now: Timestamp) -> Self {
        settings.policy = policy.name();
        let mut estimator = Estimator::default();
        estimator.configure(settings.probing);
        Controller {
            policy,
            settings: Arc::new(settings),
            estimator,
            guests: PerGuest::default(),
            checker: Checker::default(),
            host: HostPressure::default(),
            shortfall: Bytes::ZERO,
            policy_notes: Vec::new(),
            fairness: Fairness::default(),
            next_decision: None,
            next_sample: now,
            latest: now,
            generation: Generation(0),
            paused: false,
            plan: None,
            fetched: 0,
            plans_refused: 0,
            has_caps: false,
            transfer: Transfer::default(),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the operator has paused acting.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Plans the checker refused so far.
    pub fn plans_refused(&self) -> u64 {
        self.plans_refused
    }

    /// How fairly memory was divided at the last decisions.
    pub fn fairness(&self) -> &Fairness {
        &self.fairness
    }

    /// When the next sample is due.
    pub fn poll_timeout(&self) -> Timestamp {
        self.next_sample
    }

    /// Guests that memory is on its way between: the sample at [`Controller::poll_timeout`] needs
    /// only these, unless [`Settings::tick`] has passed since all were sampled.
    pub fn in_transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// The next action to carry out. Actions not fetched before the next sample are dropped: that
    /// sample's plan takes their place.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.plan.as_ref()?.actions.get(self.fetched)?.clone();
        self.fetched += 1;
        Some(action)
    }

    /// No sample could be had by `now`: drops actions whose deadline has passed and asks for the
    /// next sample a tick later.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        // All actions of a plan have one deadline.
        let next = self.plan.as_ref().and_then(|plan| plan.actions.get(self.fetched));
        if next.is_some_and(|action| action.deadline <= now) {
            self.drop_actions();
        }
        if now >= self.next_sample {
            self.next_sample = now + self.settings.tick;
        }
    }

    /// Takes in what happened between samples. What changes the decision is decided anew at the
    /// next sample.
    pub fn handle_event(&mut self, event: Event) {
        match event {
            Event::Outcome(outcome) => self.note(&outcome),
            Event::Pause => {
                self.paused = true;
                self.drop_actions();
            }
            Event::Resume => self.paused = false,
            Event::SetLimits(id, limits) => {
                Arc::make_mut(&mut self.settings).limits.named.insert(id, limits);
                self.next_decision = None;
            }
            Event::SetPolicy(name) => {
                Arc::make_mut(&mut self.settings).policy = name;
                self.replace_policy();
            }
            Event::Reconfigure(settings) => {
                self.estimator.configure(settings.probing);
                self.settings = settings.into();
                self.replace_policy();
            }
            Event::Credits(credits) => self.policy.restore_credits(&credits, self.latest),
        }
    }

    fn note(&mut self, outcome: &Outcome) {
        match outcome.kind {
            OutcomeKind::Accepted => {}
            OutcomeKind::Failed(_)
            | OutcomeKind::Expired
            | OutcomeKind::Superseded
            | OutcomeKind::Waiting => {
                if let Some(state) = self.guests.named_mut(&outcome.guest) {
                    state.log.failed();
                }
            }
        }
    }

    /// The policy that the settings name from the next sample on, with the credits that guests
    /// have.
    fn replace_policy(&mut self) {
        let credits = self.policy.accounts().map(|accounts| accounts.all());
        self.policy = build(self.settings.policy, self.settings.policy_settings.clone());
        self.policy.restore_credits(&credits.unwrap_or_default(), self.latest);
        self.next_decision = None;
    }

    /// The number of a guest's last request that a decision took in.
    pub fn request_decided(&self, id: &GuestId) -> Option<u64> {
        self.guests.named(id)?.request
    }

    /// What [`Controller::handle_sample`] would return, without any effect: a decision is made
    /// whether or not one is due, and a pause is disregarded.
    pub fn dry_run(&self, snapshot: &Snapshot) -> Arc<Plan> {
        let mut copy = self.clone();
        copy.next_decision = None;
        copy.paused = false;
        copy.handle_sample(snapshot)
    }

    /// Decides on what was seen. The plan's actions can then be fetched with
    /// [`Controller::poll_action`].
    pub fn handle_sample(&mut self, snapshot: &Snapshot) -> Arc<Plan> {
        self.drop_actions();
        self.generation = Generation(self.generation.0 + 1);
        let now = snapshot.taken_at;
        if now < self.latest {
            return Arc::new(self.plan_for_a_clock_that_went_backwards(snapshot));
        }
        self.latest = now;
        let settings = Arc::clone(&self.settings);
        let mut guests = std::mem::take(&mut self.guests);
        guests.align(snapshot);

        let seen = self.observe(&mut guests, snapshot, &settings);
        let mut tick = self.assess(snapshot, seen, &settings);
        let is_due = self.is_due(&tick, &settings);
        let divided = is_due.then(|| self.divide(&tick, &settings));
        let lacks = self.bound(&mut tick, divided, &settings);
        let granting = self.grant(&tick, &lacks, &settings);
        let proposal = self.act(tick, granting, &settings);
        self.guests = guests;
        let plan = match self.check(&proposal, snapshot, &settings) {
            None => self.commit(proposal),
            Some(violation) => self.refuse(proposal.plan, violation),
        };

        let until_next = match self.transfer.guests() {
            [] => settings.tick,
            _ => settings.transfer_tick.min(settings.tick),
        };
        self.next_sample = now + until_next;
        let plan = Arc::new(plan);
        self.plan = Some(Arc::clone(&plan));
        plan
    }

    /// Forgets actions nobody fetched; their guests never heard of them.
    fn drop_actions(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        for action in plan.actions.iter().skip(std::mem::take(&mut self.fetched)) {
            if let Some(state) = self.guests.named_mut(&action.guest) {
                state.log.failed();
            }
        }
    }

    /// Takes a snapshot in: what happened to the host and to each guest since the last one.
    fn observe<'a>(
        &mut self,
        guests: &'a mut PerGuest<GuestState>,
        snapshot: &'a Snapshot,
        settings: &'a Settings,
    ) -> impl Iterator<Item = Seen<'a>> + use<'a> {
        let reserve = settings.guard.host_reserve;
        let pressure = HostPressureSettings { reserve, ..HostPressureSettings::default() };
        self.host.observe(snapshot.taken_at, &snapshot.host, &pressure);
        self.checker.observe(snapshot);
        self.estimator.observe(snapshot);
        observe(guests, snapshot, settings)
    }

    /// What is known of each guest, and how much memory there is to divide.
    fn assess<'a>(
        &self,
        snapshot: &'a Snapshot,
        seen: impl Iterator<Item = Seen<'a>>,
        settings: &Settings,
    ) -> Tick<'a> {
        let by = By {
            now: snapshot.taken_at,
            stale_after: settings.guard.stale_after,
            hotplug: settings.hotplug.as_ref(),
        };
        let (mut totals, mut thrashes) = (Totals::default(), false);
        let assessed = seen.enumerate().map(|(place, seen)| {
            thrashes |= seen.thrashes;
            let guest = assess(seen, || self.estimator.estimate(snapshot, place), by);
            totals.add(&guest.assessment, &settings.guard);
            guest
        });
        let guests = assessed.collect();
        let (mut budget, notes) = budget_for(&snapshot.host, &totals, &settings.guard);
        if self.host.level() == PressureLevel::Freeze {
            budget.grantable = Bytes::ZERO;
        }
        Tick { snapshot, guests, totals, thrashes, budget, notes }
    }

    /// Whether to ask the policy: its interval is over, a guest thrashes, the guests that can be
    /// moved are not those of the last decision, the host has less than was given away, or a guest
    /// asks for memory in a way that does not wait.
    fn is_due(&self, tick: &Tick<'_>, settings: &Settings) -> bool {
        let now = tick.snapshot.taken_at;
        self.next_decision.is_none_or(|at| now >= at)
            || tick.thrashes && settings.undo
            || tick.budget.committed > tick.budget.distributable
            || tick.guests.iter().any(|it| it.estimate().is_some() != it.state.goal.is_some())
            || tick.guests.iter().any(|guest| {
                guest.request().is_some_and(|request| {
                    let on_request = self.policy.pacing().on_request;
                    let waits = !on_request && request.kind != RequestKind::Emergency;
                    !waits && guest.state.request.is_none_or(|decided| request.number > decided)
                })
            })
    }

    /// Asks the policy what each guest that can be moved is to have.
    fn divide(&mut self, tick: &Tick<'_>, settings: &Settings) -> Divided {
        let now = tick.snapshot.taken_at;
        self.next_decision = Some(now + settings.interval.unwrap_or(self.policy.pacing().interval));
        let left = tick.budget.distributable.saturating_sub(tick.totals.immovable);
        let given_back = match settings.undo {
            true => given_back(tick, left, &settings.thrash),
            false => Vec::new(),
        };
        let problem = problem(tick, left, &given_back);
        self.fairness.observe(&problem);
        let division = self.policy.divide(&problem);
        self.shortfall = division.shortfall;
        self.policy_notes = division.notes;
        Divided { given_back, wanted: division.wanted }
    }

    /// Brings what the policy wants, if it was asked, within each guest's own limits. What each
    /// guest then lacks.
    fn bound(
        &self,
        tick: &mut Tick<'_>,
        divided: Option<Divided>,
        settings: &Settings,
    ) -> Vec<Lack> {
        let guard = &settings.guard;
        let dead_band = guard.dead_band.unwrap_or(self.policy.pacing().dead_band);
        let lack = |guest: &GuestTick<'_>| Lack::of(&guest.assessment, guest.state.goal.as_ref());
        let Some(Divided { given_back, wanted }) = divided else {
            return tick.guests.iter().map(lack).collect();
        };
        let mut wanted = wanted.into_iter();
        let bounded = tick.guests.iter_mut().enumerate().map(|(place, guest)| {
            let request = guest.request().map(|request| request.number);
            guest.state.request = request.max(guest.state.request);
            let wanted = guest.estimate().and_then(|_| wanted.next());
            guest.state.goal = wanted.and_then(|wanted| {
                debug_assert_eq!(guest.sample.id, wanted.id, "policies keep the problem's order");
                let held = given_back.get(place).copied().flatten();
                goal_for(&guest.assessment, wanted.desired, held, dead_band, guard)
            });
            lack(guest)
        });
        bounded.collect()
    }

    /// New memory for each guest, as far as some is free, and what is then left to plug in ahead of
    /// need.
    fn grant(&self, tick: &Tick<'_>, lacks: &[Lack], settings: &Settings) -> Granting {
        let new = allocate_grants(lacks, tick.budget);
        let mut granting =
            Granting { new, budget: tick.budget, paused: self.paused, spare: Bytes::ZERO };
        let is_normal = self.host.level() == PressureLevel::Normal;
        let plugs = settings.hotplug.is_some() && !self.paused;
        let has_devices = || tick.guests.iter().any(|guest| guest.sample.hotplug.is_some());
        if is_normal && plugs && has_devices() {
            let granted: Bytes = tick
                .guests
                .iter()
                .enumerate()
                .map(|(place, guest)| granting.to(place, guest).new_memory(&guest.assessment))
                .sum();
            granting.spare = tick.budget.grantable.saturating_sub(granted);
        }
        granting
    }

    /// Guest by guest: its grant, the order to its mechanisms, the cap on its process, and its line
    /// in the plan.
    fn act(&self, mut tick: Tick<'_>, granting: Granting, settings: &Settings) -> Proposal {
        let now = tick.snapshot.taken_at;
        let host = Host {
            now,
            level: self.host.level(),
            may_page: settings.paging.is_some_and(|rules| rules.has_room(&tick.snapshot.host)),
            paused: self.paused,
            settings,
        };
        let pages = host.may_page || self.has_caps;
        let rich = if pages { rich(&tick, host) } else { Vec::new() };
        let hotplug = settings.hotplug.as_ref().filter(|_| !self.paused);
        let mut spare = granting.spare;
        let mut draft = self.heading(&mut tick, settings);
        let lines = tick.guests.into_iter().enumerate().map(|(place, mut guest)| {
            guest.grant = Some(granting.to(place, &guest));
            let actuated = actuate(&guest, now, spare, hotplug);
            spare = spare.saturating_sub(actuated.order.from_spare);
            guest.actuated = Some(actuated);
            let is_rich = rich.get(place).copied().unwrap_or_default();
            guest.paged = pages.then(|| Box::new(page(&guest, is_rich, host)));
            draft.line(place, guest)
        });
        // In place: a line of the plan takes the room of the tick that it is made from.
        let lines = lines.collect();
        draft.finish(lines)
    }

    /// A proposal without a line for any guest yet.
    fn heading<'a>(&'a self, tick: &mut Tick<'_>, settings: &Settings) -> Draft<'a> {
        let mut notes = std::mem::take(&mut tick.notes);
        if tick.totals.uncounted > 0 {
            notes.push(Note::Uncounted { guests: tick.totals.uncounted });
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
            notes,
        };
        Draft::new(plan, now + settings.guard.action_deadline, self.policy.accounts())
    }

    /// What the checker finds wrong, if anything.
    fn check(
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
            paused: self.paused,
        };
        let found = self.checker.check(&proposal.plan, &proposal.promises, snapshot, &rules);
        found.first().map(ToString::to_string)
    }

    /// The plan is carried out: what it asks of guests and promises them holds from now on.
    fn commit(&mut self, proposal: Proposal) -> Plan {
        let Proposal { plan, promises, changes, is_transfer } = proposal;
        self.checker.commit(&plan, &promises);
        for StateChange { place, target, ask, actuator, cap } in changes {
            let Some(state) = self.guests.at_mut(place) else { continue };
            if target.is_some() {
                state.log.sent(target);
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
        self.transfer = if is_transfer { Transfer::of(&plan) } else { Transfer::default() };
        plan
    }

    /// A plan that does nothing and says why; nothing of `plan` is remembered.
    fn refuse(&mut self, plan: Plan, violation: String) -> Plan {
        self.plans_refused += 1;
        let plan = refused(plan, &self.guests, violation);
        let is_transfer = plan.guests.iter().any(gives) && plan.guests.iter().any(waits);
        self.transfer = if is_transfer { Transfer::of(&plan) } else { Transfer::default() };
        plan
    }

    /// Time is not trusted until it passes the latest moment seen again: everything is held, and
    /// nothing is remembered of the sample.
    fn plan_for_a_clock_that_went_backwards(&self, snapshot: &Snapshot) -> Plan {
        let settings = &self.settings;
        let mut totals = Totals::default();
        let mut guests = Vec::with_capacity(snapshot.guests().len());
        for sample in snapshot.guests() {
            let limits = settings.limits.of(&sample.id);
            let state = self.guests.named(&sample.id);
            let log = state.map(|state| &state.log);
            let known = Known {
                now: self.latest,
                sample,
                limits,
                log,
                cap: state.map(|state| state.resident_cap).and_then(|cap| cap.in_force()),
                stale_after: settings.guard.stale_after,
            };
            let assessment = Assessment::new(&known, Err(Held::ClockBackwards), None);
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
                target: log.and_then(|log| log.target()),
                change: Change::Hold(Held::ClockBackwards),
                moves: Vec::new(),
                balloon_rate: None,
                regret: None,
            });
        }
        let (budget, notes) = budget_for(&snapshot.host, &totals, &settings.guard);
        Plan {
            generation: self.generation,
            decided_at: snapshot.taken_at,
            policy: settings.policy,
            budget,
            guests,
            actions: Vec::new(),
            paging: Vec::new(),
            host_pressure: self.host.level(),
            notes,
        }
    }
}
