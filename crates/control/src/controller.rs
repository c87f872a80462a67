//! The state machine described in the crate's header.

use std::collections::VecDeque;
use std::sync::Arc;

use ballast_estimate::Estimator;
use ballast_guard::check::{self, Before, Rules};
use ballast_guard::{
    Goal, Ledger, Rationing, Record, Standing, budget_for, goal_for, immovable, ration, verdict,
};
use ballast_mechanism::hotplug::Router;
use ballast_mechanism::paging::Bound;
use ballast_model::{
    Action, Budget, Bytes, Change, Compliance, Generation, GuestId, GuestPlan, Held, Note,
    OutcomeKind, PerGuest, Plan, RequestKind, Rung, Snapshot, Timestamp,
};
use ballast_policy::fairness::Fairness;
use ballast_policy::{Policy, Problem, build};

use crate::Settings;
use crate::event::Event;
use crate::moving::Moving;
use crate::pages::{Pages, paged};
use crate::routing::{Routing, route};
use crate::standings::{
    before, bound_of, contender, has_hotplug, held_without, limits_in_step, request_of, standing,
    within,
};
use crate::transfer::in_transfer;

/// Decides; does nothing else.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    policy: Box<dyn Policy>,
    estimator: Estimator,
    ledger: Ledger,
    /// The last decision: goals of the guests it covered.
    goals: PerGuest<Option<Goal>>,
    shortfall: Bytes,
    /// What the policy said at the last decision.
    policy_notes: Vec<Note>,
    fairness: Fairness,
    /// Per guest the number of the last request that was decided on.
    requests: PerGuest<Option<u64>>,
    /// `None`: decide at the next sample.
    next_decision: Option<Timestamp>,
    next_sample: Timestamp,
    latest: Timestamp,
    generation: Generation,
    paused: bool,
    actions: VecDeque<Action>,
    plans_refused: u64,
    moving: Moving,
    in_transfer: Vec<GuestId>,
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
            settings,
            estimator,
            ledger: Ledger::default(),
            goals: PerGuest::default(),
            shortfall: Bytes::ZERO,
            policy_notes: Vec::new(),
            fairness: Fairness::default(),
            requests: PerGuest::default(),
            next_decision: None,
            next_sample: now,
            latest: now,
            generation: Generation(0),
            paused: false,
            actions: VecDeque::new(),
            plans_refused: 0,
            moving: Moving::default(),
            in_transfer: Vec::new(),
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

    /// Guests that memory is on its way between: the sample at [`Controller::poll_timeout`] has to look at these alone,
    /// unless it is [`Settings::tick`] since all were looked at.
    pub fn in_transfer(&self) -> &[GuestId] {
        &self.in_transfer
    }

    /// The next action to carry out. Actions not fetched before the next sample are dropped: that
    /// sample's plan takes their place.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// No sample could be had by `now`: drops actions whose deadline has passed and asks for the
    /// next sample a tick later.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let (kept, late): (VecDeque<Action>, VecDeque<Action>) =
            self.actions.drain(..).partition(|action| action.deadline > now);
        self.actions = kept;
        for action in late {
            self.ledger.failed(&action.guest);
        }
        if now >= self.next_sample {
            self.next_sample = now + self.settings.tick;
        }
    }

    /// Takes in what happened between samples. What changes the decision is decided anew at the
    /// next sample.
    pub fn handle_event(&mut self, event: Event) {
        match event {
            Event::Outcome(outcome) => match outcome.kind {
                OutcomeKind::Accepted => {}
                OutcomeKind::Failed(_)
                | OutcomeKind::Expired
                | OutcomeKind::Superseded
                | OutcomeKind::Waiting => self.ledger.failed(&outcome.guest),
            },
            Event::Pause => {
                self.paused = true;
                self.drop_actions();
            }
            Event::Resume => self.paused = false,
            Event::SetLimits(id, limits) => {
                self.settings.limits.insert(id, limits);
                self.next_decision = None;
            }
            Event::SetPolicy(name) => {
                self.settings.policy = name;
                self.replace_policy();
            }
            Event::Reconfigure(settings) => {
                self.estimator.configure(settings.probing);
                self.settings = *settings;
                self.replace_policy();
            }
            Event::Credits(accounts) => self.policy.keep_credits(&accounts, self.latest),
        }
    }

    /// The policy that the settings name from the next sample on, with the credits that guests have.
    fn replace_policy(&mut self) {
        let accounts = self.policy.ledger().map(|ledger| ledger.accounts());
        self.policy = build(self.settings.policy, self.settings.policy_settings.clone());
        self.policy.keep_credits(&accounts.unwrap_or_default(), self.latest);
        self.next_decision = None;
    }

    /// The number of a guest's last request that a decision took in.
    pub fn request_decided(&self, id: &GuestId) -> Option<u64> {
        self.requests.named(id).copied().flatten()
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
        self.next_sample = now + self.settings.tick;

        let standings = self.standings(snapshot);
        let (mut budget, mut notes) = budget_for(&snapshot.host, &standings, &self.settings.guard);
        if self.moving.rung() == Rung::Freeze {
            budget.grantable = Bytes::ZERO;
        }
        if self.is_due(now, &standings, budget) {
            self.decide(snapshot, &standings, budget);
        }
        let seen = |s: &&Standing| s.committed > Bytes::ZERO;
        let uncounted = standings.len() - standings.iter().filter(seen).count();
        if uncounted > 0 {
            notes.push(Note::Uncounted { guests: uncounted });
        }
        if self.shortfall > Bytes::ZERO {
            notes.push(Note::Infeasible { shortfall: self.shortfall });
        }
        notes.extend(self.policy_notes.iter().cloned());
        let routers = has_hotplug(snapshot).then(|| self.moving.routers.clone());
        let refused = self.plans_refused;
        let (mut plan, asks) = self.plan(snapshot, &standings, budget, notes);
        self.moving.tell(&mut plan);
        let paging = Pages {
            snapshot,
            standings: &standings,
            ledger: &self.ledger,
            rates: &self.moving.rates,
            guard: &self.settings.guard,
            swap: self.settings.paging,
            paused: self.paused,
        };
        let (plan, bounds) = paged(paging, plan, self.moving.bounds.clone());
        let plan = self.checked(plan, snapshot, &standings, &asks);
        if self.plans_refused == refused {
            self.moving.bounds = bounds;
            self.ledger.ask_anew(asks);
        } else if let Some(routers) = routers {
            // Nothing of the plan is carried out: its orders have to be made again.
            self.moving.routers = routers;
        }
        self.ledger.sent(&plan);
        let lent =
            |router: &Option<Box<Router>>| router.as_ref().map_or(Bytes::ZERO, |it| it.lent());
        self.ledger.lend(self.moving.routers.values().map(lent));
        self.in_transfer = in_transfer(&plan);
        if !self.in_transfer.is_empty() {
            self.next_sample = now + self.settings.transfer_tick.min(self.settings.tick);
        }
        self.actions.extend(plan.actions.iter().cloned());
        Arc::new(plan)
    }

    /// Forgets actions nobody fetched; their guests never heard of them.
    fn drop_actions(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            self.ledger.failed(&action.guest);
        }
    }

    /// Estimates and verdicts.
    fn standings(&mut self, snapshot: &Snapshot) -> Vec<Standing> {
        let limits = limits_in_step(&self.settings, snapshot);
        let guests = || snapshot.guests().iter().zip(&limits);
        let stale_after = self.settings.guard.stale_after;
        let verdicts: Vec<Result<(), Held>> =
            guests().map(|(guest, limits)| verdict(guest, limits, stale_after)).collect();
        let usable: Vec<bool> = verdicts.iter().map(Result::is_ok).collect();
        self.ledger.observe(snapshot, &usable, &self.settings.guard);
        self.estimator.observe(snapshot);
        self.goals.align(snapshot);
        self.requests.align(snapshot);
        if self.moving.observe(snapshot, &self.ledger, &self.settings) && self.settings.undo {
            self.next_decision = None;
        }
        let (now, unplugged) = (snapshot.taken_at, Router::default());
        let each = guests().zip(self.ledger.records()).zip(verdicts).enumerate();
        each.map(|(place, (((guest, limits), record), verdict))| {
            let bound = bound_of(self.moving.bounds.at(place), record);
            let stuck = if verdict.is_ok() { record.stuck(now) } else { None };
            let estimate = verdict
                .and_then(|()| self.estimator.estimate(snapshot, place).map_err(held_without));
            let part = (estimate, stuck);
            let mut standing = standing(guest, limits, Some(record), bound, stale_after, now, part);
            if let Some(settings) = &self.settings.hotplug {
                let router = self.moving.routers.at(place).and_then(Option::as_deref);
                let range = router.unwrap_or(&unplugged).range(now, guest, settings);
                standing.bounds = within(standing.bounds, range);
            }
            standing
        })
        .collect()
    }

    /// Whether to ask the policy: its interval is over, the guests that can be moved are not those
    /// of the last decision, the host has less than was given away, or a guest asks for memory in a
    /// way that does not wait.
    fn is_due(&self, now: Timestamp, standings: &[Standing], budget: Budget) -> bool {
        let movable = standings.iter().map(|standing| standing.estimate().is_some());
        self.next_decision.is_none_or(|at| now >= at)
            || budget.committed > budget.distributable
            || !movable.eq(self.goals.values().map(Option::is_some))
            || self.is_asked(standings)
    }

    /// Whether a guest has made a request since the last decision that does not wait.
    fn is_asked(&self, standings: &[Standing]) -> bool {
        let on_request = self.policy.pacing().on_request;
        standings.iter().zip(self.requests.values()).any(|(standing, decided)| {
            request_of(standing).is_some_and(|request| {
                let waits = !on_request && request.kind != RequestKind::Emergency;
                !waits && decided.is_none_or(|number| request.number > number)
            })
        })
    }

    fn decide(&mut self, snapshot: &Snapshot, standings: &[Standing], budget: Budget) {
        let now = snapshot.taken_at;
        let pacing = self.policy.pacing();
        self.next_decision = Some(now + self.settings.interval.unwrap_or(pacing.interval));
        let dead_band = self.settings.guard.dead_band.unwrap_or(pacing.dead_band);
        let left = budget.distributable.saturating_sub(immovable(standings));
        let given_back = if self.settings.undo {
            self.moving.given_back(now, standings, left, &self.settings.look_back)
        } else {
            vec![None; standings.len()]
        };
        let each = || standings.iter().zip(&given_back);
        let contenders = each().filter_map(|(it, held)| contender(it, *held)).collect();
        for (standing, decided) in standings.iter().zip(self.requests.values_mut()) {
            *decided = request_of(standing).map(|request| request.number).max(*decided);
        }
        let problem = Problem::new(left, contenders).at(now).on(snapshot.host.clone());
        self.fairness.observe(&problem);
        let division = self.policy.divide(&problem);
        self.shortfall = division.shortfall;
        self.policy_notes = division.notes;
        let mut wanted = division.wanted.into_iter();
        for ((standing, held), goal) in each().zip(self.goals.values_mut()) {
            let desired = standing.estimate().and_then(|_| wanted.next());
            *goal = desired.and_then(|wanted| {
                debug_assert_eq!(standing.id, wanted.id, "policies keep the problem's order");
                goal_for(standing, wanted.desired, *held, dead_band, &self.settings.guard)
            });
        }
    }

    fn plan(
        &mut self,
        snapshot: &Snapshot,
        standings: &[Standing],
        budget: Budget,
        notes: Vec<Note>,
    ) -> (Plan, Vec<Option<Bytes>>) {
        let now = snapshot.taken_at;
        let mut draft = ration(Rationing {
            standings,
            goals: &self.goals,
            budget,
            ledger: &self.ledger,
            paused: self.paused,
            now,
        });
        let is_normal = self.moving.rung() == Rung::Normal;
        let routing = Routing {
            snapshot,
            standings,
            ledger: &self.ledger,
            spare: if is_normal { budget.grantable } else { Bytes::ZERO },
            settings: self.settings.hotplug.as_ref().filter(|_| !self.paused),
            generation: self.generation,
            deadline: now + self.settings.guard.action_deadline,
        };
        let actions = route(routing, &mut self.moving.routers, &mut draft);
        let mut guests = draft.guests;
        if let Some(ledger) = self.policy.ledger() {
            for guest in &mut guests {
                guest.credits = ledger.credits(&guest.id);
            }
        }
        let plan = Plan {
            generation: self.generation,
            decided_at: now,
            policy: self.settings.policy,
            budget,
            guests,
            actions,
            paging: Vec::new(),
            rung: Rung::Normal,
            notes,
        };
        (plan, draft.asks)
    }

    /// The plan, or, where the checker finds fault with it, one that does nothing and says so.
    fn checked(
        &mut self,
        mut plan: Plan,
        snapshot: &Snapshot,
        standings: &[Standing],
        asks: &[Option<Bytes>],
    ) -> Plan {
        let asks_nothing = asks.iter().all(Option::is_none);
        if plan.actions.is_empty() && plan.paging.is_empty() && asks_nothing {
            return plan;
        }
        let known: Vec<(&GuestId, Before)> = snapshot
            .guests()
            .iter()
            .zip(self.ledger.records())
            .zip(self.moving.bounds.values())
            .zip(standings.iter().zip(plan.guests.iter().zip(asks)))
            .map(|(((guest, record), bound), (standing, (planned, ask)))| {
                (&guest.id, before(standing, record, bound, planned, *ask, snapshot.taken_at))
            })
            .collect();
        let guard = &self.settings.guard;
        let rules = Rules {
            budget: guard.budget,
            host_reserve: guard.host_reserve,
            stale_after: guard.stale_after,
            step_up_max: guard.step_up_max,
            step_down_max: guard.step_down_max,
            limits: &self.settings.limits,
            limits_default: &self.settings.limits_default,
            before: &known,
            paused: self.paused,
        };
        if let Some(violation) = check::violations(&plan, snapshot, &rules).first() {
            self.plans_refused += 1;
            let violation = violation.to_string();
            plan.actions.clear();
            plan.paging.clear();
            for (guest, (_, before)) in plan.guests.iter_mut().zip(&known) {
                guest.target = before.target;
                guest.change = Change::Hold(Held::PlanRefused { violation: violation.clone() });
            }
            plan.notes.push(Note::Refused { violation });
        }
        plan
    }

    /// Time is not trusted until it passes the latest moment seen again: everything is held, and
    /// nothing is remembered of the sample.
    fn plan_for_a_clock_that_went_backwards(&self, snapshot: &Snapshot) -> Plan {
        let limits = limits_in_step(&self.settings, snapshot);
        let each = snapshot.guests().iter().zip(limits);
        let standings: Vec<Standing> = each
            .map(|(guest, limits)| {
                let record = self.ledger.record(&guest.id);
                let stale_after = self.settings.guard.stale_after;
                let bound = self.moving.bounds.named(&guest.id).and_then(Bound::in_force);
                let held = (Err(Held::ClockBackwards), None);
                standing(guest, limits, record, bound, stale_after, self.latest, held)
            })
            .collect();
        let (budget, notes) = budget_for(&snapshot.host, &standings, &self.settings.guard);
        let held = |standing: Standing| GuestPlan {
            target: self.ledger.record(&standing.id).and_then(Record::target),
            id: standing.id,
            allocation: standing.allocation,
            bounds: standing.bounds,
            estimate: None,
            desired: None,
            clamps: Vec::new(),
            credits: None,
            compliance: Compliance::Compliant,
            change: Change::Hold(Held::ClockBackwards),
            moves: Vec::new(),
            balloon_rate: None,
            regret: None,
        };
        Plan {
            generation: self.generation,
            decided_at: snapshot.taken_at,
            policy: self.settings.policy,
            budget,
            guests: standings.into_iter().map(held).collect(),
            actions: Vec::new(),
            paging: Vec::new(),
            rung: self.moving.rung(),
            notes,
        }
    }
}
