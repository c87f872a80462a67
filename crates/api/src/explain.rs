//! The chain from observation to action for one guest.

use std::time::SystemTime;

use ballast_model::{
    Bounds, Bytes, GuestId, GuestLimits, GuestStats, LimitSource, LimitSources, Measured,
    MemoryRoom, Outcome,
};
use serde::{Deserialize, Serialize};

use crate::tick::{Tick, TickView, millis, unix_millis};
use crate::{
    API_VERSION, AgentView, BudgetView, CapabilitiesView, ChangeView, Coded, ComplianceView,
    EstimateView, FenceView, HotplugView, MoveView, RegretView, TrackingView,
};

/// Answer to `GET /v1/guests/{id}/explain`: the last decision about one guest, step by step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The tick that the reply describes.
    pub tick: TickView,
    /// The guest's name.
    pub guest: String,
    /// What was observed of it.
    pub inputs: InputsView,
    /// Its limits.
    pub limits: LimitsView,
    /// The memory that is divided between all guests.
    pub budget: BudgetView,
    /// Notes about the host as a whole.
    pub notes: Vec<Coded>,
    /// What is known about its need for memory; `null`: nothing.
    pub estimate: Option<EstimateView>,
    /// What the policy wants for it, and why; `null`: the policy was not asked about it.
    pub desired: Option<DesiredView>,
    /// How the guard changed the policy's target, in order.
    pub clamps: Vec<Coded>,
    /// Whether it releases the memory that was requested from it; `null`: the plan has no line for
    /// it.
    pub compliance: Option<ComplianceView>,
    /// Its target once this plan is carried out; `null`: it never had one.
    pub target_bytes: Option<u64>,
    /// What the plan does to it; `null`: the plan has no line for it.
    pub change: Option<ChangeView>,
    /// How its memory is moved: one entry for each mechanism, with the reason.
    pub moves: Vec<MoveView>,
    /// What the last reductions of its memory cost it; `null`: none has been judged yet.
    pub regret: Option<RegretView>,
    /// The outcome of its last action; `null`: none is known.
    pub outcome: Option<OutcomeView>,
}

impl ExplainReply {
    /// The chain for `id`; `None`: the tick has no such guest. O(log n).
    pub fn new(tick: &Tick<'_>, id: &GuestId) -> Option<Self> {
        let sample = tick.snapshot.guest(id)?;
        let plan = tick.plan.guest(id);
        let bounds = plan.and_then(|plan| plan.bounds);
        Some(ExplainReply {
            api_version: API_VERSION,
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
                rooms: sample.rooms.iter().map(RoomView::from).collect(),
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

/// What was observed of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputsView {
    /// Its run state: `running`, `paused`, `shutdown`, `panicked`, `incoming`, `other` or
    /// `unknown`. Or why its hypervisor does not answer: `connecting`, `taken`,
    /// `permission-denied`, `refused`, `timed-out`, `protocol-error` or `closed`.
    pub state: Coded,
    /// Memory that it holds: boot memory and plugged memory, less the balloon; `null`: unknown.
    pub allocation_bytes: Option<u64>,
    /// Age of `allocation_bytes` at the tick; `null`: unknown.
    pub allocation_age_ms: Option<u64>,
    /// Memory that it was booted with; `null`: unknown.
    pub boot_bytes: Option<u64>,
    /// Memory that can be plugged in while it runs; `null`: none can.
    pub hotplug: Option<HotplugView>,
    /// Host memory that its process occupies; `null`: unknown.
    pub resident_bytes: Option<u64>,
    /// Age of `resident_bytes` at the tick; `null`: unknown.
    pub resident_age_ms: Option<u64>,
    /// Its own statistics; `null`: there are none.
    pub stats: Option<StatsView>,
    /// How its page touches are tracked; `null`: they are not.
    pub tracking: Option<TrackingView>,
    /// The fence around it; `null`: it is configured to have none.
    #[serde(default)]
    pub fence: Option<FenceView>,
    /// What keeps its pages on the host when its balloon takes them, and what still works; absent:
    /// nothing that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Coded>,
    /// Limits of the host's kernel on its process, and what they leave; absent: none is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rooms: Vec<RoomView>,
    /// The report of its agent; `null`: none has ever reported.
    #[serde(default)]
    pub agent: Option<AgentView>,
    /// What its devices can do.
    pub capabilities: CapabilitiesView,
}

/// A limit of the host's kernel on the memory of a guest's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoomView {
    /// What limits: a cgroup's file, or NUMA nodes.
    pub by: String,
    /// The limit.
    pub limit_bytes: u64,
    /// What all processes below the limit together can still get.
    pub left_bytes: u64,
}

impl From<&MemoryRoom> for RoomView {
    fn from(room: &MemoryRoom) -> Self {
        let MemoryRoom { by, limit, left } = room;
        RoomView { by: by.clone(), limit_bytes: limit.get(), left_bytes: left.get() }
    }
}

/// A guest's statistics as it reported them; `null`: it did not report that figure. Counters count
/// from its boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatsView {
    /// Age of the statistics at the tick.
    pub age_ms: u64,
    /// Memory that its kernel manages (`MemTotal`).
    pub total_bytes: Option<u64>,
    /// Unused memory (`MemFree`).
    pub free_bytes: Option<u64>,
    /// Memory that it could give up without swapping (`MemAvailable`).
    pub available_bytes: Option<u64>,
    /// Page cache that could be dropped.
    pub disk_caches_bytes: Option<u64>,
    /// Memory that it has read back from swap.
    pub swap_in_bytes: Option<u64>,
    /// Memory that it has written to swap.
    pub swap_out_bytes: Option<u64>,
    /// Number of page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Number of page faults that did not wait for a disk.
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

/// A guest's limits: as they were set, and as they are in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitsView {
    /// The floor that was set; `null`: none. The default is an eighth of boot memory, but at least
    /// 128 MiB.
    pub floor_set_bytes: Option<u64>,
    /// The ceiling that was set; `null`: none. The default is boot memory and all memory that can
    /// be plugged in.
    pub ceiling_set_bytes: Option<u64>,
    /// The floor in force: memory that the guest is guaranteed; `null`: unknown.
    pub floor_bytes: Option<u64>,
    /// The ceiling in force: the most memory that the guest may hold; `null`: unknown.
    pub ceiling_bytes: Option<u64>,
    /// Its weight when memory is divided, 1 to 1,000,000; `null`: unknown.
    pub shares: Option<u32>,
    /// Its priority, 0 to 255: when memory is short, guests of lower priority give up memory first;
    /// `null`: unknown.
    pub priority: Option<u8>,
    /// Its objective: the most misses a second that it should have; `null`: none.
    pub miss_rate_max_per_s: Option<u64>,
    /// Whether Ballast may move its memory; `null`: unknown.
    pub managed: Option<bool>,
    /// Whether Ballast moves its memory even if something else moves it too; `null`: unknown.
    #[serde(default)]
    pub take_over: Option<bool>,
    /// Where each limit comes from; `null`: unknown, because a journal does not say.
    #[serde(default)]
    pub sources: Option<SourcesView>,
}

/// Where each limit of a guest comes from: `default` (Ballast's, or `[defaults]` in the
/// configuration file), `carried` (the guest brought it from another host), `metadata` (settings
/// that live with the guest), `file` (the configuration file) or `set` (`ballast set`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourcesView {
    /// Source of the floor.
    pub floor: String,
    /// Source of the ceiling.
    pub ceiling: String,
    /// Source of the shares.
    pub shares: String,
    /// Source of the priority.
    pub priority: String,
    /// Source of the objective, `miss_rate_max_per_s`.
    pub miss_rate_max: String,
    /// Source of `managed`.
    pub managed: String,
    /// Source of `take_over`.
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

/// What the policy wants for a guest, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DesiredView {
    /// Memory that the guest should hold by the policy.
    pub target_bytes: u64,
    /// Why the policy wants that.
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
    /// When the outcome arrived, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Age of the outcome when the reply was made.
    pub age_ms: u64,
    /// Number of the plan that the action belonged to.
    pub generation: u64,
    /// The target that was requested.
    pub target_bytes: u64,
    /// `accepted` (by the hypervisor; the guest follows at its own speed), `failed`, `expired` (its
    /// deadline passed before it began), `superseded` (a later plan's action was carried out first)
    /// or `waiting` (programs in the guest release memory first).
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
