//! A plan: the change for every guest, and the actions in order.

use ballast_model::{Action, Bytes, GuestPlan, Plan, Timestamp};
use serde::{Deserialize, Serialize};

use crate::tick::{Tick, TickView, millis};
use crate::{
    API_VERSION, BudgetView, ChangeView, Coded, ComplianceView, DesiredView, MoveView, PagingView,
    RegretView,
};

/// Answer to `GET /v1/plan`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The tick whose observations the plan was made from.
    pub tick: TickView,
    /// Whether this is a dry run: a plan made as if a decision were due, Ballast were not paused,
    /// and its mode were `balance`. Nothing of a dry run is carried out.
    pub dry_run: bool,
    /// The plan's number.
    pub generation: u64,
    /// The policy that made the plan.
    pub policy: String,
    /// The memory that the plan divides.
    pub budget: BudgetView,
    /// Notes about the host as a whole.
    pub notes: Vec<Coded>,
    /// The guests, sorted by name.
    pub guests: Vec<PlanGuestView>,
    /// The actions in the order in which they are carried out: releases first.
    pub actions: Vec<ActionView>,
    /// How short of memory the host is, and how far it goes to regain some: `normal`,
    /// `balloon-only`, `reclaim-owed`, `reclaim-richest` or `freeze`; each includes the ones before
    /// it.
    #[serde(rename = "rung")]
    pub host_pressure: Coded,
    /// The guests that the host pages out or in.
    pub paging: Vec<PagingView>,
}

impl PlanReply {
    /// The plan that the daemon decided in `tick`.
    pub fn latest(tick: &Tick<'_>) -> Self {
        PlanReply::new(tick, tick.plan, false)
    }

    /// `plan`, a dry run from the snapshot of `tick`.
    pub fn dry_run(tick: &Tick<'_>, plan: &Plan) -> Self {
        PlanReply::new(tick, plan, true)
    }

    fn new(tick: &Tick<'_>, plan: &Plan, dry_run: bool) -> Self {
        PlanReply {
            api_version: API_VERSION,
            tick: tick.view(),
            dry_run,
            generation: plan.generation.0,
            policy: plan.policy.to_string(),
            budget: BudgetView::from(&plan.budget),
            notes: plan.notes.iter().map(Coded::from).collect(),
            guests: plan.guests.iter().map(PlanGuestView::new).collect(),
            actions: plan.actions.iter().map(|a| ActionView::new(a, plan.decided_at)).collect(),
            host_pressure: Coded::new(plan.host_pressure.code(), plan.host_pressure),
            paging: plan.paging.iter().map(|p| PagingView::new(p, plan.decided_at)).collect(),
        }
    }
}

/// One guest's part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanGuestView {
    /// The guest's name.
    pub guest: String,
    /// Memory that it held when it was last observed; `null`: unknown.
    pub allocation_bytes: Option<u64>,
    /// What the policy wants for it, and why; `null`: the policy was not asked about it.
    pub desired: Option<DesiredView>,
    /// How the guard changed the policy's target, in order.
    pub clamps: Vec<Coded>,
    /// Whether it releases the memory that was requested from it.
    pub compliance: ComplianceView,
    /// Its target once this plan is carried out; `null`: it never had one.
    pub target_bytes: Option<u64>,
    /// What this plan does to it.
    pub change: ChangeView,
    /// How its memory is moved: one entry for each mechanism, with the reason.
    pub moves: Vec<MoveView>,
    /// What the last reductions of its memory cost it; `null`: none has been judged yet.
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

/// One action: an order to a guest's hypervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActionView {
    /// The guest's name.
    pub guest: String,
    /// Memory that the guest should hold, in whole pages.
    pub target_bytes: u64,
    /// Memory that should be plugged in, in whole blocks; `null`: unchanged.
    pub plug_bytes: Option<u64>,
    /// Time after the decision within which the action must begin.
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
