//! A plan: the change for every guest, and the actions in order.

use ballast_model::{Action, Bytes, GuestPlan, Plan, Timestamp};
use serde::{Deserialize, Serialize};

use crate::tick::{Tick, TickView, millis, version};
use crate::{
    BudgetView, ChangeView, Coded, ComplianceView, DesiredView, MoveView, PagingView, RegretView,
};

/// Answer to `GET /v1/plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// The tick whose snapshot the plan was made from.
    pub tick: TickView,
    /// Whether this plan is only a preview of the next tick; nothing of it is carried out.
    pub dry_run: bool,
    /// The plan's number.
    pub generation: u64,
    /// The policy that made it.
    pub policy: String,
    /// The memory it divides.
    pub budget: BudgetView,
    /// Notes about the host as a whole.
    pub notes: Vec<Coded>,
    /// The guests, sorted by name.
    pub guests: Vec<PlanGuestView>,
    /// The actions, releases first.
    pub actions: Vec<ActionView>,
    /// How far the host goes to regain memory.
    pub rung: Coded,
    /// The guests that the host pages out or in.
    pub paging: Vec<PagingView>,
}

impl PlanReply {
    /// The plan that the daemon decided in `tick`.
    pub fn latest(tick: &Tick<'_>) -> Self {
        PlanReply::new(tick, tick.plan, false)
    }

    /// `plan`, which the next tick would make from the snapshot of `tick`.
    pub fn dry_run(tick: &Tick<'_>, plan: &Plan) -> Self {
        PlanReply::new(tick, plan, true)
    }

    fn new(tick: &Tick<'_>, plan: &Plan, dry_run: bool) -> Self {
        PlanReply {
            api_version: version(),
            tick: tick.view(),
            dry_run,
            generation: plan.generation.0,
            policy: plan.policy.to_string(),
            budget: BudgetView::from(&plan.budget),
            notes: plan.notes.iter().map(Coded::from).collect(),
            guests: plan.guests.iter().map(PlanGuestView::new).collect(),
            actions: plan.actions.iter().map(|a| ActionView::new(a, plan.decided_at)).collect(),
            rung: Coded::new(plan.host_pressure.code(), plan.host_pressure),
            paging: plan.paging.iter().map(|p| PagingView::new(p, plan.decided_at)).collect(),
        }
    }
}

/// One guest's part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanGuestView {
    /// Its name.
    pub guest: String,
    /// Memory it held when it was observed.
    pub allocation_bytes: Option<u64>,
    /// The policy's target for it, and why.
    pub desired: Option<DesiredView>,
    /// How the guard changed that target, in order.
    pub clamps: Vec<Coded>,
    /// Whether it releases the memory it was asked for.
    pub compliance: ComplianceView,
    /// The target in force after this plan.
    pub target_bytes: Option<u64>,
    /// The change this plan makes.
    pub change: ChangeView,
    /// The mechanisms that move its memory, and why these.
    pub moves: Vec<MoveView>,
    /// What its last reductions cost it; `None`: no reduction has been evaluated yet.
    pub regret: Option<RegretView>,
}

impl PlanGuestView {
    fn new(guest: &GuestPlan) -> Self {
        PlanGuestView {
            guest: guest.id.to_string(),
            allocation_bytes: guest.allocation.map(Bytes::get),
            desired: guest.desired.as_ref().map(DesiredView::from),
            clamps: guest.clamps.iter().map(Coded::from).collect(),
            compliance: ComplianceView::new(guest),
            target_bytes: guest.target.map(Bytes::get),
            change: ChangeView::from(&guest.change),
            moves: guest.moves.iter().map(MoveView::from).collect(),
            regret: guest.regret.as_ref().map(RegretView::from),
        }
    }
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActionView {
    /// The guest.
    pub guest: String,
    /// Its new allocation.
    pub target_bytes: u64,
    /// Its new amount of plugged memory; `None`: unchanged.
    pub plug_bytes: Option<u64>,
    /// Time after the decision within which it may begin.
    pub deadline_ms: u64,
}

impl ActionView {
    fn new(action: &Action, decided_at: Timestamp) -> Self {
        ActionView {
            guest: action.guest.to_string(),
            target_bytes: action.target.get(),
            plug_bytes: action.plug.map(Bytes::get),
            deadline_ms: millis(action.deadline.saturating_since(decided_at)),
        }
    }
}
