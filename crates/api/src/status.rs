//! Host and guests in summary.

use ballast_model::{Bytes, Estimate, GuestSample, PageMerging, Plan, Provenance, Reservation};
use serde::{Deserialize, Serialize};

use crate::tick::{DaemonView, Tick, TickView, millis};
use crate::{
    API_VERSION, CapabilitiesView, ChangeView, Coded, ComplianceView, FenceView, HotplugView,
    RegretView, TrackingView,
};

/// Answer to `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The tick that the reply describes.
    pub tick: TickView,
    /// The daemon; `null`: none answers, and the reply is from a journal.
    pub daemon: Option<DaemonView>,
    /// The host.
    pub host: HostView,
    /// The memory that the plan divides.
    pub budget: BudgetView,
    /// How short of memory the host is, and how far it goes to regain some: `normal`,
    /// `balloon-only`, `reclaim-owed`, `reclaim-richest` or `freeze`; each includes the ones before
    /// it.
    #[serde(rename = "rung")]
    pub host_pressure: Coded,
    /// Memory that is kept free for guests that are about to start, sorted by name.
    #[serde(default)]
    pub reservations: Vec<ReservationView>,
    /// Notes about the host as a whole.
    pub notes: Vec<Coded>,
    /// The guests, sorted by name.
    pub guests: Vec<GuestView>,
}

impl From<&Tick<'_>> for StatusReply {
    fn from(tick: &Tick<'_>) -> Self {
        StatusReply {
            api_version: API_VERSION,
            tick: tick.view(),
            daemon: tick.daemon.clone(),
            host: HostView::from(&tick.snapshot.host),
            budget: BudgetView::from(&tick.plan.budget),
            host_pressure: Coded::new(tick.plan.host_pressure.code(), tick.plan.host_pressure),
            reservations: reservations(tick.plan),
            notes: tick.plan.notes.iter().map(Coded::from).collect(),
            guests: guests(tick),
        }
    }
}

/// Memory that is kept free for a guest that is about to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReservationView {
    /// The guest's name.
    pub guest: String,
    /// Memory that the guest should find free.
    pub size_bytes: u64,
    /// The part of `size_bytes` that is free.
    pub free_bytes: u64,
    /// Time from the tick until the reservation ends if the guest does not appear.
    pub ends_in_ms: u64,
}

fn reservations(plan: &Plan) -> Vec<ReservationView> {
    let view = |it: &Reservation| ReservationView {
        guest: it.guest.to_string(),
        size_bytes: it.size.get(),
        free_bytes: it.free.get(),
        ends_in_ms: millis(it.until.saturating_since(plan.decided_at)),
    };
    plan.reservations.iter().map(view).collect()
}

/// Answer to `GET /v1/guests`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestsReply {
    /// Version of this format, as in the path: 1 for `/v1`.
    pub api_version: u32,
    /// The tick that the reply describes.
    pub tick: TickView,
    /// The guests, sorted by name.
    pub guests: Vec<GuestView>,
}

impl From<&Tick<'_>> for GuestsReply {
    fn from(tick: &Tick<'_>) -> Self {
        GuestsReply { api_version: API_VERSION, tick: tick.view(), guests: guests(tick) }
    }
}

fn guests(tick: &Tick<'_>) -> Vec<GuestView> {
    tick.snapshot.guests().iter().map(|sample| GuestView::new(tick, sample)).collect()
}

/// The host's memory. A figure that is unknown is `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostView {
    /// Memory that the host's kernel manages (`MemTotal`).
    pub memory_total_bytes: Option<u64>,
    /// Memory that the host could hand out without swapping (`MemAvailable`).
    pub memory_available_bytes: Option<u64>,
    /// Swap that is configured.
    pub swap_total_bytes: Option<u64>,
    /// Swap that is not in use.
    pub swap_free_bytes: Option<u64>,
    /// Share of the last 10 s in which some task waited for memory, in hundredths of a percent, 0
    /// to 10,000.
    pub pressure_some_basis_points: Option<u32>,
    /// Share of the last 10 s in which all tasks waited for memory, in hundredths of a percent, 0
    /// to 10,000.
    pub pressure_full_basis_points: Option<u32>,
    /// Merging of equal pages (KSM); `null`: the kernel has none, or it cannot be read.
    #[serde(default)]
    pub ksm: Option<MergingView>,
}

/// Merging of equal pages by the kernel (KSM).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MergingView {
    /// Whether the kernel searches for equal pages. Merged pages stay merged while it does not.
    pub running: bool,
    /// Memory in pages that stand for several equal ones.
    pub shared_bytes: u64,
    /// Memory that merging saves.
    pub saved_bytes: u64,
    /// How often all memory that may be merged has been scanned.
    pub full_scans: u64,
    /// Number of pages that are scanned before the search sleeps.
    pub pages_to_scan: u64,
    /// How long the search then sleeps.
    pub sleep_ms: u64,
}

impl From<&PageMerging> for MergingView {
    fn from(merging: &PageMerging) -> Self {
        let PageMerging { knobs, shared, saved, full_scans } = *merging;
        MergingView {
            running: knobs.is_running,
            shared_bytes: shared.get(),
            saved_bytes: saved.get(),
            full_scans,
            pages_to_scan: knobs.pages_to_scan,
            sleep_ms: millis(knobs.sleep),
        }
    }
}

impl From<&ballast_model::HostSample> for HostView {
    fn from(host: &ballast_model::HostSample) -> Self {
        HostView {
            memory_total_bytes: host.memory_total.map(Bytes::get),
            memory_available_bytes: host.memory_available.map(Bytes::get),
            swap_total_bytes: host.swap_total.map(Bytes::get),
            swap_free_bytes: host.swap_free.map(Bytes::get),
            pressure_some_basis_points: host.pressure.map(|p| p.some_basis_points),
            pressure_full_basis_points: host.pressure.map(|p| p.full_basis_points),
            ksm: host.merging.as_ref().map(MergingView::from),
        }
    }
}

/// The memory that a plan divides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    /// Memory that all guests together may hold: the operator's budget, or less if the host has
    /// less; without reservations.
    pub distributable_bytes: u64,
    /// Memory that guests hold or were promised: for each guest the larger of what it holds and its
    /// last target.
    pub committed_bytes: u64,
    /// Memory that can be granted at once, before any guest releases some.
    pub grantable_bytes: u64,
}

impl From<&ballast_model::Budget> for BudgetView {
    fn from(budget: &ballast_model::Budget) -> Self {
        BudgetView {
            distributable_bytes: budget.distributable.get(),
            committed_bytes: budget.committed.get(),
            grantable_bytes: budget.grantable.get(),
        }
    }
}

/// One guest in summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestView {
    /// The guest's name.
    pub guest: String,
    /// Its run state: `running`, `paused`, `shutdown`, `panicked`, `incoming`, `other` or
    /// `unknown`. Or why its hypervisor does not answer: `connecting`, `taken`,
    /// `permission-denied`, `refused`, `timed-out`, `protocol-error` or `closed`.
    pub state: Coded,
    /// Memory that it holds: boot memory and plugged memory, less the balloon; `null`: unknown.
    pub allocation_bytes: Option<u64>,
    /// Memory that it should hold by the policy, as in `GET /v1/plan`; `null`: the policy was not
    /// asked about it. Nothing is moved there while Ballast observes or is paused.
    #[serde(default)]
    pub wanted_bytes: Option<u64>,
    /// Its target once this plan is carried out; `null`: it never had one.
    pub target_bytes: Option<u64>,
    /// Memory that it uses and could not give up without reclaim; `null`: unknown.
    pub used_bytes: Option<u64>,
    /// Memory that it could give up without swapping; `null`: unknown.
    pub available_bytes: Option<u64>,
    /// Memory that it needs to run as well as it can; `null`: unknown.
    pub demand_bytes: Option<u64>,
    /// How far `demand_bytes` can be relied on, 0 (not at all) to 100; `null`: unknown.
    #[serde(default)]
    pub demand_confidence_percent: Option<u8>,
    /// Host memory that its process occupies; `null`: unknown.
    pub resident_bytes: Option<u64>,
    /// The most host memory that its process occupies while it is copied to another host; `null`:
    /// unknown.
    #[serde(default)]
    pub copied_resident_bytes: Option<u64>,
    /// Memory of its process that is merged with equal pages (KSM); `null`: unknown, or none.
    #[serde(default)]
    pub merged_bytes: Option<u64>,
    /// Memory that it was booted with; `null`: unknown.
    pub boot_bytes: Option<u64>,
    /// Memory that can be plugged in while it runs; `null`: none can.
    pub hotplug: Option<HotplugView>,
    /// The floor in force: memory that it is guaranteed; `null`: unknown.
    pub floor_bytes: Option<u64>,
    /// The ceiling in force: the most memory that it may hold; `null`: unknown.
    pub ceiling_bytes: Option<u64>,
    /// Its weight when memory is divided, 1 to 1,000,000; `null`: unknown.
    pub shares: Option<u32>,
    /// Its priority, 0 to 255: when memory is short, guests of lower priority give up memory first;
    /// `null`: unknown.
    pub priority: Option<u8>,
    /// Whether Ballast may move its memory; `null`: unknown.
    pub managed: Option<bool>,
    /// Age of its statistics at the tick; `null`: there are none.
    pub stats_age_ms: Option<u64>,
    /// Memory that it has read back from its swap since its boot, as it reports it; `null`: it does
    /// not report that.
    #[serde(default)]
    pub swap_in_bytes: Option<u64>,
    /// How its page touches are tracked; `null`: they are not.
    pub tracking: Option<TrackingView>,
    /// The fence around it; `null`: it is configured to have none.
    #[serde(default)]
    pub fence: Option<FenceView>,
    /// What keeps its pages on the host when its balloon takes them, and what still works; absent:
    /// nothing that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Coded>,
    /// Whether it releases the memory that was requested from it; `null`: the plan has no line for
    /// it.
    pub compliance: Option<ComplianceView>,
    /// What the plan does to it; `null`: the plan has no line for it.
    pub change: Option<ChangeView>,
    /// What the last reductions of its memory cost it; `null`: none has been judged yet.
    pub regret: Option<RegretView>,
    /// What its devices can do.
    #[serde(default)]
    pub capabilities: CapabilitiesView,
}

impl GuestView {
    fn new(tick: &Tick<'_>, sample: &GuestSample) -> Self {
        let plan = tick.plan.guest(&sample.id);
        let limits = tick.limits.get(&sample.id);
        let estimate = plan.and_then(|plan| plan.estimate.as_ref());
        let bounds = plan.and_then(|plan| plan.bounds);
        GuestView {
            guest: sample.id.to_string(),
            state: Coded::state_of(sample),
            allocation_bytes: sample.allocation.map(|measured| measured.value.get()),
            wanted_bytes: plan.and_then(|plan| Some(plan.desired.as_ref()?.target.get())),
            target_bytes: plan.and_then(|plan| plan.target).map(Bytes::get),
            used_bytes: estimate.map(|estimate| estimate.used.get()),
            available_bytes: estimate.map(|estimate| estimate.available.get()),
            demand_bytes: estimate.map(|estimate| estimate.demand.size.get()),
            demand_confidence_percent: estimate
                .map(|estimate| estimate.demand.confidence.percent()),
            resident_bytes: sample.resident.map(|measured| measured.value.get()),
            copied_resident_bytes: sample.occupied_while_copied().map(Bytes::get),
            merged_bytes: sample.merged.map(Bytes::get),
            boot_bytes: sample.boot_memory.map(Bytes::get),
            hotplug: sample.hotplug.as_ref().map(HotplugView::from),
            floor_bytes: bounds.map(|bounds| bounds.floor.get()),
            ceiling_bytes: bounds.map(|bounds| bounds.ceiling.get()),
            shares: limits.map(|limits| limits.shares),
            priority: limits.map(|limits| limits.priority),
            managed: limits.map(|limits| limits.managed),
            stats_age_ms: stats_age_ms(sample, estimate),
            swap_in_bytes: sample.stats.and_then(|stats| stats.value.swap_in).map(Bytes::get),
            tracking: TrackingView::of(sample),
            fence: sample.fence.as_ref().map(FenceView::from),
            pinned: sample.pinned.as_ref().map(Coded::from),
            compliance: plan.map(ComplianceView::new),
            change: plan.map(|plan| ChangeView::from(&plan.change)),
            regret: plan.and_then(|plan| plan.regret.as_ref()).map(RegretView::from),
            capabilities: CapabilitiesView::from(&sample.capabilities),
        }
    }
}

fn stats_age_ms(sample: &GuestSample, estimate: Option<&Estimate>) -> Option<u64> {
    let of_estimate = estimate.and_then(|estimate| match estimate.provenance {
        Provenance::BalloonStatistics { age } => Some(age),
        Provenance::WorkingSet { .. } => None,
    });
    sample.stats.map(|stats| stats.age).or(of_estimate).map(millis)
}
