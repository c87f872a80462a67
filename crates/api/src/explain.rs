//! The chain from observation to action for one guest.

use std::time::SystemTime;

use ballast_model::{
    Bounds, Bytes, GuestId, GuestLimits, GuestStats, LimitSource, LimitSources, Measured, Outcome,
};
use serde::{Deserialize, Serialize};

use crate::tick::{Tick, TickView, millis, unix_millis, version};
use crate::{
    AgentView, BudgetView, CapabilitiesView, ChangeView, Coded, ComplianceView, EstimateView,
    FenceView, HotplugView, MoveView, RegretView, TrackingView,
};

/// Answer to `GET /v1/guests/{id}/explain`: every step of the last decision, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// The tick that the reply describes.
    pub tick: TickView,
    /// The guest.
    pub guest: String,
    /// What was observed of it.
    pub inputs: InputsView,
    /// The operator's bounds.
    pub limits: LimitsView,
    /// The memory divided between all guests.
    pub budget: BudgetView,
    /// Notes about the host as a whole.
    pub notes: Vec<Coded>,
    /// What is known about its demand for memory.
    pub estimate: Option<EstimateView>,
    /// The policy's target for it, and why.
    pub desired: Option<DesiredView>,
    /// How the guard changed that target, in order.
    pub clamps: Vec<Coded>,
    /// Whether it releases the memory it was asked for.
    pub compliance: Option<ComplianceView>,
    /// The target in force.
    pub target_bytes: Option<u64>,
    /// The change this plan makes.
    pub change: Option<ChangeView>,
    /// The mechanisms that move its memory, and why these.
    pub moves: Vec<MoveView>,
    /// What its last reductions cost it; `None`: no reduction has been evaluated yet.
    pub regret: Option<RegretView>,
    /// The outcome of its last action.
    pub outcome: Option<OutcomeView>,
}

impl ExplainReply {
    /// The chain for `id`; `None`: the tick has no such guest. O(log n).
    pub fn new(tick: &Tick<'_>, id: &GuestId) -> Option<Self> {
        let sample = tick.snapshot.guest(id)?;
        let plan = tick.plan.guest(id);
        let bounds = plan.and_then(|plan| plan.bounds);
        Some(ExplainReply {
            api_version: version(),
            tick: tick.view(),
            guest: id.to_string(),
            inputs: InputsView {
                state: Coded::state_of(sample),
                allocation_bytes: bytes_of(sample.allocation),
                allocation_age_ms: age_of(sample.allocation),
                boot_bytes: sample.boot_memory.map(Bytes::get),
                hotplug: sample.hotplug.as_ref().map(HotplugView::from),
                resident_bytes: bytes_of(sample.resident),
                resident_age_ms: age_of(sample.resident),
                stats: sample.stats.as_ref().map(StatsView::from),
                tracking: TrackingView::of(sample),
                fence: sample.fence.as_ref().map(FenceView::from),
                pinned: sample.pinned.as_ref().map(Coded::from),
                agent: AgentView::of(sample),
                capabilities: CapabilitiesView::from(&sample.capabilities),
            },
            limits: LimitsView::new(tick.limits.get(id), tick.limit_sources.get(id), bounds),
            budget: BudgetView::from(&tick.plan.budget),
            notes: tick.plan.notes.iter().map(Coded::from).collect(),
            estimate: plan.and_then(|plan| plan.estimate.as_ref()).map(|estimate| {
                let measured = sample.allocation.map(|measured| measured.value);
                let allocation = plan.and_then(|plan| plan.allocation).or(measured);
                let objective = tick.limits.get(id).and_then(|limits| limits.miss_rate_max);
                EstimateView::new(estimate, allocation, objective)
            }),
            desired: plan.and_then(|plan| plan.desired.as_ref()).map(DesiredView::from),
            clamps: plan
                .map(|plan| plan.clamps.iter().map(Coded::from).collect())
                .unwrap_or_default(),
            compliance: plan.map(ComplianceView::new),
            target_bytes: plan.and_then(|plan| plan.target).map(Bytes::get),
            change: plan.map(|plan| ChangeView::from(&plan.change)),
            moves: plan
                .map(|plan| plan.moves.iter().map(MoveView::from).collect())
                .unwrap_or_default(),
            regret: plan.and_then(|plan| plan.regret.as_ref()).map(RegretView::from),
            outcome: tick
                .outcomes
                .get(id)
                .map(|(at, outcome)| OutcomeView::new(*at, outcome, tick.now)),
        })
    }
}

fn bytes_of(measured: Option<Measured<Bytes>>) -> Option<u64> {
    measured.map(|measured| measured.value.get())
}

fn age_of<T>(measured: Option<Measured<T>>) -> Option<u64> {
    measured.map(|measured| millis(measured.age))
}

/// What was observed of a guest. Ages are as of the tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputsView {
    /// Its run state, or why it cannot be reached.
    pub state: Coded,
    /// Memory it holds.
    pub allocation_bytes: Option<u64>,
    /// Age of that figure.
    pub allocation_age_ms: Option<u64>,
    /// Memory it was booted with.
    pub boot_bytes: Option<u64>,
    /// Memory that can be hotplugged; `None`: none.
    pub hotplug: Option<HotplugView>,
    /// Host memory its process occupies.
    pub resident_bytes: Option<u64>,
    /// Age of that figure.
    pub resident_age_ms: Option<u64>,
    /// Its own statistics.
    pub stats: Option<StatsView>,
    /// How its page touches are tracked; `None`: they are not.
    pub tracking: Option<TrackingView>,
    /// The fence around it; `None`: it is to have none.
    #[serde(default)]
    pub fence: Option<FenceView>,
    /// What keeps its pages on the host when its balloon takes them, and what still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Coded>,
    /// Its agent's report; `None`: no agent ever reported.
    #[serde(default)]
    pub agent: Option<AgentView>,
    /// Its devices and their features.
    pub capabilities: CapabilitiesView,
}

/// A guest's own statistics, as it reported them. Counters count from its boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatsView {
    /// Their age.
    pub age_ms: u64,
    /// Memory its kernel manages.
    pub total_bytes: Option<u64>,
    /// Free memory.
    pub free_bytes: Option<u64>,
    /// Memory it could release without swapping.
    pub available_bytes: Option<u64>,
    /// Page cache that could be dropped.
    pub disk_caches_bytes: Option<u64>,
    /// Memory read back from swap.
    pub swap_in_bytes: Option<u64>,
    /// Memory written to swap.
    pub swap_out_bytes: Option<u64>,
    /// Faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Faults that did not.
    pub minor_faults: Option<u64>,
}

impl From<&Measured<GuestStats>> for StatsView {
    fn from(measured: &Measured<GuestStats>) -> Self {
        let stats = &measured.value;
        StatsView {
            age_ms: millis(measured.age),
            total_bytes: stats.total.map(Bytes::get),
            free_bytes: stats.free.map(Bytes::get),
            available_bytes: stats.available.map(Bytes::get),
            disk_caches_bytes: stats.disk_caches.map(Bytes::get),
            swap_in_bytes: stats.swap_in.map(Bytes::get),
            swap_out_bytes: stats.swap_out.map(Bytes::get),
            major_faults: stats.major_faults,
            minor_faults: stats.minor_faults,
        }
    }
}

/// The operator's bounds: as set, and as they apply to this guest's boot memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsView {
    /// The floor as set; `None` is the default, an eighth of boot memory.
    pub floor_set_bytes: Option<u64>,
    /// The ceiling as set; `None` is the guest's boot memory.
    pub ceiling_set_bytes: Option<u64>,
    /// The floor in force.
    pub floor_bytes: Option<u64>,
    /// The ceiling in force.
    pub ceiling_bytes: Option<u64>,
    /// Its weight.
    pub shares: Option<u32>,
    /// Its priority; when memory is short, lower priorities lose first.
    pub priority: Option<u8>,
    /// Its objective in misses a second; `None`: none.
    pub miss_rate_max_per_s: Option<u64>,
    /// Whether Ballast may move its memory.
    pub managed: Option<bool>,
    /// Whether it does so although somebody else moves it, too.
    #[serde(default)]
    pub take_over: Option<bool>,
    /// Who said each of them; `None`: not known, as in a journal.
    #[serde(default)]
    pub sources: Option<SourcesView>,
}

/// Who said each bound of a guest: `default`, `carried` (the guest brought it from another host),
/// `metadata` (settings that live with the guest), `file` (the configuration) or `set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourcesView {
    /// Of the floor.
    pub floor: String,
    /// Of the ceiling.
    pub ceiling: String,
    /// Of the shares.
    pub shares: String,
    /// Of the priority.
    pub priority: String,
    /// Of the objective.
    pub miss_rate_max: String,
    /// Whether it is managed.
    pub managed: String,
    /// Whether it is taken over.
    pub take_over: String,
}

impl From<&LimitSources> for SourcesView {
    fn from(sources: &LimitSources) -> Self {
        let word = |source: LimitSource| source.as_str().to_owned();
        SourcesView {
            floor: word(sources.floor),
            ceiling: word(sources.ceiling),
            shares: word(sources.shares),
            priority: word(sources.priority),
            miss_rate_max: word(sources.miss_rate_max),
            managed: word(sources.managed),
            take_over: word(sources.take_over),
        }
    }
}

impl LimitsView {
    fn new(
        limits: Option<&GuestLimits>,
        sources: Option<&LimitSources>,
        bounds: Option<Bounds>,
    ) -> Self {
        LimitsView {
            floor_set_bytes: limits.and_then(|limits| limits.floor).map(Bytes::get),
            ceiling_set_bytes: limits.and_then(|limits| limits.ceiling).map(Bytes::get),
            floor_bytes: bounds.map(|bounds| bounds.floor.get()),
            ceiling_bytes: bounds.map(|bounds| bounds.ceiling.get()),
            shares: limits.map(|limits| limits.shares),
            priority: limits.map(|limits| limits.priority),
            miss_rate_max_per_s: limits.and_then(|limits| limits.miss_rate_max),
            managed: limits.map(|limits| limits.managed),
            take_over: limits.map(|limits| limits.take_over),
            sources: sources.map(SourcesView::from),
        }
    }
}

/// The policy's target for a guest, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DesiredView {
    /// The allocation wanted.
    pub target_bytes: u64,
    /// Why.
    pub reason: Coded,
}

impl From<&ballast_model::Desired> for DesiredView {
    fn from(desired: &ballast_model::Desired) -> Self {
        DesiredView { target_bytes: desired.target.get(), reason: Coded::from(&desired.reason) }
    }
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutcomeView {
    /// When it arrived.
    pub at_unix_ms: u64,
    /// Its age when the reply was made.
    pub age_ms: u64,
    /// The plan the action belonged to.
    pub generation: u64,
    /// The target asked for.
    pub target_bytes: u64,
    /// What happened: `accepted`, `failed`, `expired`, `superseded` or `waiting`.
    pub kind: Coded,
}

impl OutcomeView {
    fn new(at: SystemTime, outcome: &Outcome, now: SystemTime) -> Self {
        OutcomeView {
            at_unix_ms: unix_millis(at),
            age_ms: millis(now.duration_since(at).unwrap_or_default()),
            generation: outcome.generation.0,
            target_bytes: outcome.target.get(),
            kind: Coded::from(&outcome.kind),
        }
    }
}
