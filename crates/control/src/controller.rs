//! The state machine described in the crate's header.

#[cfg(test)]
mod corrupted;
mod phases;
#[cfg(test)]
mod restarted;

use std::sync::Arc;

use ballast_actuation::host_pressure::HostPressure;
use ballast_guard::check::Checker;
use ballast_model::{
    Action, Bytes, CarriedGuest, Generation, GuestId, Handover, HoldReason, Mode, Note, Outcome,
    OutcomeKind, PerGuest, Plan, PolicyName, Reservation, Restart, Snapshot, Thrashed, Timestamp,
};
use ballast_policy::fairness::Fairness;
use ballast_policy::{Policy, Question, build};

use crate::Settings;
use crate::divide::PosedProblem;
use crate::event::Event;
use crate::reserve::Reservations;
use crate::restart::LeftGuests;
use crate::state::GuestState;
use crate::tick::Tick;
use crate::transfer::Transfer;

/// Decides, and does nothing else.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Arc<Settings>,
    policy: Box<dyn Policy>,
    guests: PerGuest<GuestState>,
    /// Handovers from the previous controller of guests that have not appeared yet.
    left_guests: LeftGuests,
    reservations: Reservations,
    checker: Checker,
    host: HostPressure,
    /// What the policy could not give at the last decision because floors exceed the budget.
    shortfall: Bytes,
    /// Notes of the policy at the last decision.
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

    /// A controller with the given policy instead of the one that `settings` name.
    pub fn with_policy(mut settings: Settings, policy: Box<dyn Policy>, now: Timestamp) -> Self {
        settings.policy = policy.name();
        let mut checker = Checker::default();
        checker.set_mode(settings.mode);
        Controller {
            policy,
            settings: Arc::new(settings),
            guests: PerGuest::default(),
            left_guests: LeftGuests::default(),
            reservations: Reservations::default(),
            checker,
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

    /// Why nothing is moved at all; `None`: plans are carried out.
    pub fn held(&self) -> Option<HoldReason> {
        match (self.settings.mode, self.paused) {
            (Mode::Observe, _) => Some(HoldReason::Observing),
            (Mode::Balance, true) => Some(HoldReason::Paused),
            (Mode::Balance, false) => None,
        }
    }

    /// Memory that is kept free for guests about to start, sorted by name. The last plan says how
    /// much of it is free.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.reservations.all()
    }

    /// Number of plans that the checker has refused so far.
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

    /// Guests that take part in a transfer: the sample at [`Controller::poll_timeout`] needs
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

    /// No sample was taken by `now`: drops actions whose deadline has passed and asks for the next
    /// sample a tick later.
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

    /// Takes in what happened between samples. An event that changes the decision has effect at the
    /// next sample.
    pub fn handle_event(&mut self, event: Event) {
        match event {
            Event::Outcome(outcome) => self.record_outcome(&outcome),
            Event::Pause => {
                self.set_paused(true);
                self.drop_actions();
            }
            Event::Resume => self.set_paused(false),
            Event::Reserve(reservation) => {
                self.checker.reserve(&reservation);
                self.reservations.set(reservation);
                self.next_decision = None;
            }
            Event::Unreserve(guest) => {
                self.checker.unreserve(&guest);
                self.reservations.end(&guest);
                self.next_decision = None;
            }
            Event::SetLimits(id, limits) => {
                Arc::make_mut(&mut self.settings).limits.named.insert(id, limits);
                self.next_decision = None;
            }
            Event::ReplaceLimits(named) => {
                if self.settings.limits.named != named {
                    Arc::make_mut(&mut self.settings).limits.named = named;
                    self.next_decision = None;
                }
            }
            Event::SetMode(mode) => self.set_mode(mode),
            Event::SetPolicy(name) => {
                Arc::make_mut(&mut self.settings).policy = name;
                self.replace_policy();
            }
            Event::Reconfigure(settings) => {
                let mode = settings.mode;
                self.settings = settings.into();
                self.set_mode(mode);
                self.replace_policy();
            }
            Event::Answer(answer) => self.policy.take_answer(answer),
            Event::Credits(credits) => self.policy.restore_credits(&credits, self.latest),
            Event::Carried(carried) => self.take_over(&carried),
            Event::Restart(restart) => self.go_on(*restart),
        }
    }

    fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        self.checker.set_paused(paused);
    }

    fn set_mode(&mut self, mode: Mode) {
        Arc::make_mut(&mut self.settings).mode = mode;
        self.checker.set_mode(mode);
        if mode == Mode::Observe {
            self.drop_actions();
        }
    }

    /// Goes on where the last controller left off.
    fn go_on(&mut self, restart: Restart) {
        self.checker.restore(&restart);
        let Restart { paused, reservations, guests } = restart;
        self.paused |= paused;
        reservations.into_iter().for_each(|it| self.reservations.set(it));
        self.has_caps |= guests.iter().any(|left| left.handover.resident_cap.is_some());
        self.left_guests = LeftGuests::new(guests);
    }

    /// Goes on with a guest where another host's controller left off.
    fn take_over(&mut self, carried: &CarriedGuest) {
        if let Some(credits) = carried.credits {
            self.policy.set_credits(&carried.guest, credits, self.latest);
        }
        if let (Some(thrashed), Some(state)) =
            (carried.thrashed, self.guests.named_mut(&carried.guest))
        {
            state.carry(thrashed);
        }
        self.next_decision = None;
    }

    /// Where a guest thrashed last; `None`: it did not, or was content since.
    pub fn thrashed(&self, guest: &GuestId) -> Option<Thrashed> {
        self.guests.named(guest)?.thrashed()
    }

    /// State of the guests, besides the last plan, that the next controller needs. Sorted by name.
    /// O(n).
    pub fn handovers(&self) -> Vec<Handover> {
        let mut handovers = Vec::new();
        for (place, (id, state)) in self.guests.iter().enumerate() {
            let (held, target) = (state.log.last_seen(), state.log.target());
            let mut handover = state.handover(id);
            self.checker.hand_over(place, held, target, &mut handover);
            if handover != Handover::nothing(id.clone()) {
                handovers.push(handover);
            }
        }
        handovers
    }

    /// A target that may not have reached its guest has to be sent again.
    fn record_outcome(&mut self, outcome: &Outcome) {
        match outcome.kind {
            OutcomeKind::Accepted => {}
            OutcomeKind::Failed(_)
            | OutcomeKind::Expired
            | OutcomeKind::Superseded
            | OutcomeKind::Waiting => {
                if let Some(state) = self.guests.named_mut(&outcome.guest) {
                    state.log.record_send_failure();
                }
            }
        }
    }

    /// Installs the policy that the settings name. Guests keep their credits.
    fn replace_policy(&mut self) {
        let credits = self.policy.accounts().map(|accounts| accounts.all());
        self.policy = build(self.settings.policy, self.settings.policy_settings.clone());
        self.policy.restore_credits(&credits.unwrap_or_default(), self.latest);
        self.next_decision = None;
    }

    /// Number of the guest's last request that a decision took into account.
    pub fn request_decided(&self, id: &GuestId) -> Option<u64> {
        self.guests.named(id)?.request
    }

    /// What [`Controller::handle_sample`] would return, without any effect. Decides even if no
    /// decision is due, and ignores a pause and the mode.
    pub fn dry_run(&self, snapshot: &Snapshot) -> Arc<Plan> {
        let mut copy = self.clone();
        copy.next_decision = None;
        copy.set_paused(false);
        copy.set_mode(Mode::Balance);
        copy.handle_sample(snapshot)
    }

    /// The question for the policy's program, to be asked before this snapshot is handed to
    /// [`Controller::handle_sample`]. Its answer, or the reason why there is none, comes back as
    /// [`Event::Answer`]. `None`: the policy asks no program, or nothing is decided at this sample.
    /// Works on a copy, O(n).
    pub fn question(&self, snapshot: &Snapshot) -> Option<Question> {
        if self.settings.policy != PolicyName::External || snapshot.taken_at < self.latest {
            return None;
        }
        let mut copy = self.clone();
        copy.drop_actions();
        let settings = Arc::clone(&copy.settings);
        let mut guests = std::mem::take(&mut copy.guests);
        let tick = copy.take_in(&mut guests, snapshot, &settings);
        if !copy.is_due(&tick, &settings) {
            return None;
        }
        let PosedProblem { problem, .. } = copy.pose(&tick, &settings);
        Question::about(problem, settings.policy_settings.reserve)
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
        let settings = Arc::clone(&self.settings);
        let mut guests = std::mem::take(&mut self.guests);
        let mut tick = self.take_in(&mut guests, snapshot, &settings);
        let is_due = self.is_due(&tick, &settings);
        let divided = is_due.then(|| self.divide(&tick, &settings));
        let lacks = self.bound(&mut tick, divided, &settings);
        let granting = self.grant(&tick, lacks, &settings);
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

    /// Takes in a snapshot: what happened to `guests`, and what is known of them now.
    fn take_in<'a>(
        &mut self,
        guests: &'a mut PerGuest<GuestState>,
        snapshot: &'a Snapshot,
        settings: &'a Settings,
    ) -> Tick<'a> {
        self.latest = snapshot.taken_at;
        guests.align(snapshot);
        self.left_guests.join(guests, snapshot);
        for arrival in self.reservations.arrivals(snapshot, self.latest) {
            if let Some(state) = guests.named_mut(&arrival.handover.guest) {
                state.restore(arrival, self.latest);
            }
        }
        let seen = self.observe(guests, snapshot, settings);
        let mut tick = self.assess(snapshot, seen, settings);
        tick.notes.extend(unmapped(snapshot));
        tick
    }

    /// Forgets actions that were not fetched; their guests never got them.
    fn drop_actions(&mut self) {
        let Some(plan) = self.plan.take() else { return };
        for action in plan.actions.iter().skip(std::mem::take(&mut self.fetched)) {
            if let Some(state) = self.guests.named_mut(&action.guest) {
                state.log.record_send_failure();
            }
        }
    }
}

/// A note for each guest that claims memory which its hypervisor has not mapped.
fn unmapped(snapshot: &Snapshot) -> impl Iterator<Item = Note> {
    snapshot.guests().iter().filter_map(|guest| {
        Some(Note::Unmapped { guest: guest.id.clone(), claimed: guest.unmapped? })
    })
}
