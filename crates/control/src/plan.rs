//! The plan: what the phases found for each guest, and the state changes once it is carried out.
//!
//! Limits: decides nothing. Releases come before grants, each in the order of names.

use ballast_actuation::paging::{Page, ResidentCap};
use ballast_guard::Grant;
use ballast_guard::check::Promise;
use ballast_model::{
    Action, Bytes, Change, GuestPlan, HoldReason, Mechanism, Note, Paging, PerGuest, Plan,
    Timestamp,
};
use ballast_policy::flexmemd::Accounts;

use crate::state::{GuestState, cap_of};
use crate::tick::{Actuated, GuestActuation, GuestTick, NextActuator};
use crate::transfer::{Transfer, TransferGuests};

/// A plan that waits to be checked.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) plan: Plan,
    /// Its promises besides the targets, sorted by name.
    pub(crate) promises: Vec<Promise>,
    /// Its changes to guests' states, sorted by place.
    pub(crate) changes: Vec<StateChange>,
    pub(crate) transfer: Transfer,
}

/// Change to the state of the guest at a place.
#[derive(Debug)]
pub(crate) struct StateChange {
    pub(crate) place: usize,
    /// `None`: the target stays as it is.
    pub(crate) target: Option<Bytes>,
    /// Whether the guest is entitled to that target.
    pub(crate) entitles: bool,
    pub(crate) ask: Option<Bytes>,
    pub(crate) actuator: Option<NextActuator>,
    pub(crate) cap: ResidentCap,
}

impl Proposal {
    /// Whether it contains nothing that could be wrong.
    pub(crate) fn does_nothing(&self) -> bool {
        let asks_nothing = || self.changes.iter().all(|change| change.ask.is_none());
        self.plan.actions.is_empty() && self.plan.paging.is_empty() && asks_nothing()
    }
}

/// A proposal under construction.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    /// Its actions so far are releases.
    plan: Plan,
    deadline: Timestamp,
    /// Credits of all guests, if the policy has guests pay rent.
    credits: Option<&'a Accounts>,
    /// Actions that take nothing from a guest.
    grants: Vec<Action>,
    promises: Vec<Promise>,
    changes: Vec<StateChange>,
    involved: TransferGuests,
}

impl<'a> Draft<'a> {
    /// A proposal from a plan without lines yet. Its orders must begin by `deadline`.
    pub(crate) fn new(plan: Plan, deadline: Timestamp, credits: Option<&'a Accounts>) -> Draft<'a> {
        Draft {
            plan,
            deadline,
            credits,
            grants: Vec::new(),
            promises: Vec::new(),
            changes: Vec::new(),
            involved: TransferGuests::default(),
        }
    }

    /// The line of the guest at a place. Also records the actions, promises and state changes of
    /// its tick.
    pub(crate) fn line(
        &mut self,
        place: usize,
        guest: &GuestTick<'_>,
        actuation: GuestActuation,
    ) -> GuestPlan {
        let GuestTick { sample, state, assessment, .. } = guest;
        let GuestActuation { grant, actuated, paged } = actuation;
        let Grant { send, ask, clamp, change } = grant;
        let Actuated { order, next } = actuated;
        let id = &sample.id;
        let target = send.or(state.log.target());
        if let Some(to) = order.target {
            self.add_action(guest, to, order.plug);
        }
        let mut moves = order.moves;
        let mut cap = state.resident_cap;
        if let Some(paged) = paged {
            cap = paged.cap;
            if let Some(Page { mechanism, resident, as_move }) = paged.page {
                let (generation, deadline) = (self.plan.generation, self.deadline);
                moves.push(as_move);
                let guest = id.clone();
                self.plan.paging.push(Paging { guest, mechanism, resident, generation, deadline });
            }
        }
        let now = self.plan.decided_at;
        let transient_grant =
            next.as_ref().map_or(state.log.transient_grant(), NextActuator::transient_grant);
        let entitled = target.map(|target| target.saturating_add(transient_grant));
        let entitles = send.is_some_and(|send| is_entitled_to(guest, send, &change));
        let granted = if entitles { entitled } else { state.log.entitlement() };
        let cap_next = cap_of(cap, || ask.or_else(|| state.log.asked_of_stuck()).or(granted));
        let entitled = entitled.filter(|_| transient_grant > Bytes::ZERO);
        if entitled.is_some() || ask.is_some() || cap_next.is_some() {
            self.promises.push(Promise { guest: id.clone(), entitled, asked: ask, cap: cap_next });
        }
        if send.is_some() || ask.is_some() || next.is_some() || cap != state.resident_cap {
            let (target, actuator) = (send, next);
            self.changes.push(StateChange { place, target, entitles, ask, actuator, cap });
        }
        let goal = state.goal.as_ref();
        let of_goal = goal.map_or(&[][..], |goal| &goal.clamps);
        let mut clamps = Vec::with_capacity(of_goal.len() + usize::from(clamp.is_some()));
        clamps.extend_from_slice(of_goal);
        clamps.extend(clamp);
        let compliance = state.log.compliance(now);
        self.involved.add(id, compliance, &change, &clamps);
        GuestPlan {
            id: id.clone(),
            allocation: assessment.allocation,
            bounds: assessment.bounds,
            desired: goal.map(|goal| goal.desired.clone()),
            clamps,
            credits: self.credits.and_then(|credits| credits.credits(id)),
            compliance,
            target,
            change,
            moves,
            balloon_rate: state.rates.measured(Mechanism::Balloon),
            regret: state.thrash.regret(),
            estimate: guest.estimate().cloned(),
        }
    }

    /// Adds an order to balloon and plugged memory. It is a release if it is less than the guest's
    /// target and less than the guest claims to hold.
    fn add_action(&mut self, guest: &GuestTick<'_>, target: Bytes, plug: Option<Bytes>) {
        let claimed = guest.assessment.claimed.unwrap_or_default();
        let is_release = target < guest.state.log.target().unwrap_or(claimed).min(claimed);
        let list = if is_release { &mut self.plan.actions } else { &mut self.grants };
        list.push(Action {
            guest: guest.sample.id.clone(),
            target,
            plug,
            generation: self.plan.generation,
            deadline: self.deadline,
        });
    }

    /// The proposal with the lines of all guests, releases before grants.
    pub(crate) fn finish(self, lines: Vec<GuestPlan>) -> Proposal {
        let Draft { mut plan, mut grants, promises, changes, involved, .. } = self;
        plan.guests = lines;
        plan.actions.append(&mut grants);
        let transfer = involved.transfer(&plan);
        Proposal { plan, promises, changes, transfer }
    }
}

/// Whether a guest is entitled to the target that it is sent.
fn is_entitled_to(guest: &GuestTick<'_>, send: Bytes, change: &Change) -> bool {
    let log = &guest.state.log;
    // A guest that is left alone is entitled to no more than before.
    let is_moved = guest.assessment.verdict.is_ok() || Some(send) <= log.entitlement();
    match change {
        // Nor is a guest that still shrinks towards its grant entitled to the steps between.
        Change::Shrink { .. } => is_moved && log.granted().is_none_or(|granted| send <= granted),
        Change::CancelShrink { .. } => false,
        Change::Grow { .. } | Change::Hold(_) => is_moved,
    }
}

/// A plan that does nothing, in place of `plan`, which the checker refused.
pub(crate) fn refused(plan: Plan, states: &PerGuest<GuestState>, violation: String) -> Plan {
    let held = |(guest, state): (GuestPlan, &GuestState)| GuestPlan {
        target: state.log.target(),
        change: Change::Hold(HoldReason::PlanRefused { violation: violation.clone() }),
        ..guest
    };
    let guests = plan.guests.into_iter().zip(states.values()).map(held).collect();
    let mut notes = plan.notes;
    notes.push(Note::Refused { violation: violation.clone() });
    Plan { guests, notes, actions: Vec::new(), paging: Vec::new(), ..plan }
}
