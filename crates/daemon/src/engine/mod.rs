//! The engine: observe, decide, record, act.
//!
//! Idea: the engine owns the controller and the state that lives between ticks. It reaches clocks,
//! guests and journal only through a [`World`], so the daemon and a simulation of faults run the
//! same code. Its driver calls [`Engine::tick`] when [`Engine::due`] has come. The controller makes
//! every decision; the engine decides nothing about a guest's memory.
//!
//! Cost: that of the world and the controller; one record per guest.
//! Limits: remembers only guests of the last snapshot, and [`NAMED_GUESTS_MAX`] guests' limits.
//!
//! Begin reading at [`Engine::tick`].

#![deny(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types)]

mod agents;
mod guest_record;
mod limits;
mod operate;
mod restore;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ballast_actuation::fence::fences;
use ballast_control::incident::{Incident, IncidentWatch};
use ballast_control::{Controller, Event, Settings};
use ballast_model::{
    Action, CarriedGuest, GuestChange, GuestId, GuestLimits, Handover, HoldReason, LimitSources,
    Mode, ModeChoice, Note, Outcome, OutcomeKind, Plan, PolicyAnswer, Snapshot, Thrashed,
    Timestamp,
};
use ballast_policy::{Policy, build};
use ballast_store::Tick;
use tracing::{debug, info, warn};

use crate::gathered::gathered;
use crate::inherited::Inherited;
use crate::view::{self, ApiState, View};
use crate::warn_once::WarnOnce;
use guest_record::GuestRecords;
use limits::LimitBook;

pub use crate::agents::{Answer, Conversation};
pub use crate::pager::{PagingEnd, PagingOutcome};
pub use operate::NAMED_GUESTS_MAX;
pub use world::{SampleScope, World};

/// The daemon without its mechanisms.
#[derive(Debug)]
pub struct Engine {
    controller: Controller,
    mode: ModeChoice,
    /// When the engine was created, wall clock.
    started_at: SystemTime,
    latest: Option<(Snapshot, Arc<Plan>)>,
    /// The dry run by the latest snapshot, if one was requested.
    dry_run: Option<Arc<Plan>>,
    guests: GuestRecords,
    /// Outcomes of the last plan, to be recorded with the next.
    unrecorded: Vec<Outcome>,
    /// State that guests brought along since the last tick, to be recorded with the next.
    carried: Vec<CarriedGuest>,
    ticks: u64,
    /// When the last tick began.
    ticked_at: Timestamp,
    /// When all guests were last sampled; `None`: not yet.
    sampled_all_at: Option<Timestamp>,
    decision_cost: Duration,
    reload_error: Option<String>,
    book: LimitBook,
    is_restoring: bool,
    warnings: WarnOnce,
    /// Faults of the policy's program that were reported since it last decided.
    faults: BTreeSet<&'static str>,
    incidents: IncidentWatch,
}

impl Engine {
    /// An engine whose first tick is due at once. It continues where an earlier daemon ended.
    pub fn new(settings: Settings, inherited: Inherited, world: &impl World) -> Engine {
        let policy = build(settings.policy, settings.policy_settings.clone());
        Engine::with_policy(settings, policy, inherited, world)
    }

    /// Like [`Engine::new`], with `policy` instead of the settings' until they are loaded again.
    pub fn with_policy(
        mut settings: Settings,
        policy: Box<dyn Policy>,
        inherited: Inherited,
        world: &impl World,
    ) -> Engine {
        let now = world.now();
        let Inherited { restart, credits, mode } = inherited;
        let mut mode = mode.unwrap_or(ModeChoice::new(settings.mode));
        mode.configure(settings.mode);
        settings.mode = mode.in_force();
        if settings.mode == Mode::Observe {
            info!("{}", HoldReason::Observing);
        }
        let book = LimitBook::new(&settings);
        let guests = GuestRecords::after(&restart.guests);
        let mut controller = Controller::with_policy(settings, policy, now);
        if restart.paused {
            info!("paused, as the last daemon was: `ballast resume` acts again");
        }
        controller.handle_event(Event::Credits(credits));
        controller.handle_event(Event::Restart(Box::new(restart)));
        Engine {
            controller,
            mode,
            started_at: world.wall(),
            latest: None,
            dry_run: None,
            guests,
            unrecorded: Vec::new(),
            carried: Vec::new(),
            ticks: 0,
            ticked_at: now,
            sampled_all_at: None,
            decision_cost: Duration::ZERO,
            reload_error: None,
            book,
            is_restoring: false,
            warnings: WarnOnce::default(),
            faults: BTreeSet::new(),
            incidents: IncidentWatch::default(),
        }
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode.in_force()
    }

    /// When the next tick is due.
    pub fn due(&self) -> Timestamp {
        self.controller.poll_timeout().min(self.all_due())
    }

    /// When the last tick began; before the first tick, when the engine was created.
    pub fn ticked_at(&self) -> Timestamp {
        self.ticked_at
    }

    /// Ticks so far.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// What a tick at `now` samples. Guests that call without end cannot delay the regular sampling
    /// of the others.
    pub fn scope_at(&self, now: Timestamp) -> SampleScope {
        if now >= self.all_due() { SampleScope::All } else { SampleScope::Urgent }
    }

    /// The snapshot and the plan of the last tick.
    pub fn latest(&self) -> Option<(&Snapshot, &Plan)> {
        self.latest.as_ref().map(|(snapshot, plan)| (snapshot, &**plan))
    }

    /// Observes, decides, records and acts, once. A plan is recorded before it is carried out, so
    /// that the next daemon knows what guests were promised. Outcomes are recorded with the next
    /// plan.
    pub async fn tick(&mut self, world: &mut impl World, scope: SampleScope) {
        let wall = world.wall();
        self.dry_run = None;
        self.ticked_at = world.now();
        if scope == SampleScope::All {
            self.sampled_all_at = Some(self.ticked_at);
        }
        let snapshot = world.sample(scope, self.controller.in_transfer().guests()).await;
        let carried = self.guests.carried_limits();
        for id in self.guests.align(&snapshot) {
            self.warnings.clear(id.as_str());
        }
        if self.guests.carried_limits() != carried && !self.is_restoring {
            self.take_in_carried();
        }
        if let Some(settings) = world.changed_settings().filter(|_| !self.is_restoring) {
            self.take_in_settings(settings);
        }
        let answer = match self.controller.question(&snapshot) {
            Some(question) => Some(world.ask(&question).await),
            None => None,
        };
        if let Some(answer) = answer.clone() {
            self.controller.handle_event(Event::Answer(answer));
        }
        let begun = world.monotonic();
        let plan = self.controller.handle_sample(&snapshot);
        self.decision_cost = world.monotonic().saturating_sub(begun);
        let mut handovers = self.controller.handovers();
        self.guests.hand_over(&plan, &mut handovers);
        self.record(world, wall, &snapshot, answer.as_ref(), &handovers, &plan).await;
        // Before anything is granted, so that no guest runs into a fence that is about to rise.
        let (limits, held) = (&self.controller.settings().limits, self.controller.held());
        world.fence(fences(&snapshot, &plan, &handovers, limits, held.is_some()));
        world.merge(&snapshot, held.is_some());
        let actions: Vec<Action> = std::iter::from_fn(|| self.controller.poll_action()).collect();
        let (waiting, actions) = agents::hold_back(world, &snapshot, actions);
        let mut outcomes = world.act(&actions).await;
        outcomes.extend(lost(&actions, &outcomes));
        outcomes.extend(waiting);
        for outcome in &outcomes {
            self.record_outcome(outcome, world.wall());
        }
        for paged in world.page(&plan) {
            paged.log(&mut self.warnings);
        }
        agents::answer(world, &self.controller, &snapshot, &plan);
        self.ticks += 1;
        self.warn_of(&plan);
        self.report_program_fault(&plan, answer.is_some());
        self.report_incidents(world, &snapshot, &plan);
        self.unrecorded = outcomes;
        self.latest = Some((snapshot, plan));
    }

    async fn record(
        &mut self,
        world: &mut impl World,
        wall: SystemTime,
        snapshot: &Snapshot,
        answer: Option<&PolicyAnswer>,
        handovers: &[Handover],
        plan: &Plan,
    ) {
        world.record_tick(Tick {
            wall,
            snapshot,
            answer,
            plan,
            outcomes: &std::mem::take(&mut self.unrecorded),
            carried: &std::mem::take(&mut self.carried),
            handovers,
            limits: &self.limits(snapshot),
            paused: self.controller.paused(),
            mode: self.mode,
            decision_cost: self.decision_cost,
        });
        if !plan.actions.is_empty() || !plan.paging.is_empty() {
            world.wait_until_recorded().await;
        }
    }

    /// The published state after the last tick; `None` before the first.
    pub fn view(&self, world: &impl World) -> Option<View> {
        let (snapshot, plan) = self.latest.clone()?;
        let journal = world.journal();
        Some(View {
            started_at: self.started_at,
            seen_at: world.wall(),
            limits: self.limits(&snapshot),
            limit_sources: self.limit_sources(&snapshot),
            limit_changes: self.limit_changes(&snapshot),
            gone_with_limits: self.gone_with_limits(&snapshot),
            thrashed: self.thrashed(&snapshot),
            carried_in: self.guests.carried_in(),
            snapshot,
            plan: Plan::clone(&plan),
            outcomes: self.guests.outcomes(),
            policy: self.controller.settings().policy,
            paused: self.controller.paused(),
            mode: self.mode,
            tick: self.controller.settings().tick,
            host_reserve: self.controller.settings().guard.host_reserve,
            decision_cost: self.decision_cost,
            ticks: self.ticks,
            plans_refused: self.controller.plans_refused(),
            fairness: view::fairness(self.controller.fairness()),
            reload_error: self.reload_error.clone(),
            journal_error: journal.error,
            journal_aside: journal.moved_aside.into_iter().map(|moved| moved.to).collect(),
            guests_refused: world.guests_refused(),
            log_lines_dropped: 0,
            api: ApiState::default(),
        })
    }

    /// When all guests must be sampled again.
    fn all_due(&self) -> Timestamp {
        let tick = self.controller.settings().tick;
        self.sampled_all_at.map_or(Timestamp::ZERO, |at| at + tick)
    }

    fn record_outcome(&mut self, outcome: &Outcome, at: SystemTime) {
        debug!("{}: target {}: {}", outcome.guest, outcome.target, outcome.kind);
        if let OutcomeKind::Failed(how) = &outcome.kind {
            self.warnings.warn(outcome.guest.as_str(), how);
        } else {
            self.warnings.clear(outcome.guest.as_str());
        }
        self.controller.handle_event(Event::Outcome(outcome.clone()));
        self.guests.set_outcome(at, outcome.clone());
    }

    fn report_incidents(&mut self, world: &mut impl World, snapshot: &Snapshot, plan: &Plan) {
        let incidents = self.incidents.observe(snapshot, plan);
        for Incident { kind, guest, is_over, text } in &incidents {
            let (event, guest) = (kind.code(), guest.as_ref().map(GuestId::as_str));
            let of = guest.map(|guest| format!(" of {guest}")).unwrap_or_default();
            match is_over {
                false => warn!(event, guest, state = "begun", "event {event}{of}: {text}"),
                true => info!(event, guest, state = "over", "event {event}{of}: {text}"),
            }
        }
        world.report_incidents(&incidents);
    }

    fn warn_of(&mut self, plan: &Plan) {
        for note in &plan.notes {
            match note {
                // Normal in every guest's first seconds, so no warning.
                Note::Newcomers { .. } => debug!("{note}"),
                // A policy may lack several inputs; each gets its own warning.
                Note::MissingInput { what, .. } => {
                    self.warnings
                        .warn(&format!("policy {}, {what}", plan.policy), &note.to_string());
                }
                // Reported when it begins and when it ends (`report_program_fault`).
                Note::Unanswered { .. } => {}
                Note::Unmapped { guest, .. } => {
                    self.warnings.warn(&format!("{guest}, unmapped"), &note.to_string());
                }
                _ => self.warnings.warn(note.code(), &note.to_string()),
            }
        }
    }

    /// Reports once for each cause that the policy's program did not decide, until it does again.
    fn report_program_fault(&mut self, plan: &Plan, is_asked: bool) {
        let fault = plan.notes.iter().find_map(|note| match note {
            Note::Unanswered { fault } => Some((fault, note)),
            _ => None,
        });
        match fault {
            Some((fault, note)) if self.faults.insert(fault.code()) => warn!("{note}"),
            None if is_asked && !self.faults.is_empty() => {
                self.faults.clear();
                info!("the policy's program decides again");
            }
            _ => {}
        }
    }

    fn limit_sources(&self, snapshot: &Snapshot) -> BTreeMap<GuestId, LimitSources> {
        let sources_of = |id: &GuestId| (id.clone(), self.book.layers(id).sources());
        snapshot.guests().iter().map(|guest| sources_of(&guest.id)).collect()
    }

    fn limit_changes(&self, snapshot: &Snapshot) -> BTreeMap<GuestId, GuestChange> {
        let change_of = |id: &GuestId| (id.clone(), self.book.layers(id).change());
        let all = snapshot.guests().iter().map(|guest| change_of(&guest.id));
        gathered(all.filter(|(_, change)| !change.is_empty()))
    }

    fn gone_with_limits(&self, snapshot: &Snapshot) -> BTreeSet<GuestId> {
        let is_gone = |id: &&GuestId| snapshot.guest(id).is_none();
        gathered(self.book.set_guests().filter(is_gone).cloned())
    }

    fn thrashed(&self, snapshot: &Snapshot) -> BTreeMap<GuestId, Thrashed> {
        let thrashed = |id: &GuestId| Some((id.clone(), self.controller.thrashed(id)?));
        gathered(snapshot.guests().iter().filter_map(|guest| thrashed(&guest.id)))
    }

    fn limits(&self, snapshot: &Snapshot) -> BTreeMap<GuestId, GuestLimits> {
        let settings = self.controller.settings();
        let limits_of = |id: &GuestId| (id.clone(), settings.limits.of(id).clone());
        snapshot.guests().iter().map(|guest| limits_of(&guest.id)).collect()
    }
}

/// Failures for actions without an outcome. They may have been carried out; ordering them again is
/// safe.
fn lost(actions: &[Action], outcomes: &[Outcome]) -> Vec<Outcome> {
    let answered: BTreeSet<&GuestId> = gathered(outcomes.iter().map(|outcome| &outcome.guest));
    let unknown = || OutcomeKind::Failed("its outcome is unknown".to_owned());
    let is_lost = |action: &&Action| !answered.contains(&action.guest);
    actions.iter().filter(is_lost).map(|action| agents::outcome(action, unknown())).collect()
}

#[cfg(test)]
mod tests;
