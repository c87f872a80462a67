//! Host and guests in summary.

use ballast_model::{Bytes, Estimate, GuestSample, PageMerging, Plan, Provenance, Reservation};
use serde::{Deserialize, Serialize};

use crate::tick::{DaemonView, Tick, TickView, millis, version};
use crate::{
    CapabilitiesView, ChangeView, Coded, ComplianceView, FenceView, HotplugView, RegretView,
    TrackingView,
};

/// Answer to `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusReply {
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// The tick that the reply describes.
    pub tick: TickView,
    /// The daemon, if one runs.
    pub daemon: Option<DaemonView>,
    /// The host.
    pub host: HostView,
    /// The memory the plan divides.
    pub budget: BudgetView,
    /// How far the host goes to regain memory.
    pub rung: Coded,
    /// What is kept free for guests that are about to start, sorted by name.
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
            api_version: version(),
            tick: tick.view(),
            daemon: tick.daemon.clone(),
            host: HostView::from(&tick.snapshot.host),
            budget: BudgetView::from(&tick.plan.budget),
            rung: Coded::new(tick.plan.host_pressure.code(), tick.plan.host_pressure),
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
    /// How much it is to find free.
    pub size_bytes: u64,
    /// How much of that is free.
    pub free_bytes: u64,
    /// Time from the tick until it ends if the guest does not appear.
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
    /// [`API_VERSION`](crate::API_VERSION).
    pub api_version: u32,
    /// The tick that the reply describes.
    pub tick: TickView,
    /// The guests, sorted by name.
    pub guests: Vec<GuestView>,
}

impl From<&Tick<'_>> for GuestsReply {
    fn from(tick: &Tick<'_>) -> Self {
        GuestsReply { api_version: version(), tick: tick.view(), guests: guests(tick) }
    }
}

fn guests(tick: &Tick<'_>) -> Vec<GuestView> {
    tick.snapshot.guests().iter().map(|sample| GuestView::new(tick, sample)).collect()
}

/// The host's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostView {
    /// Memory the host kernel manages.
    pub memory_total_bytes: Option<u64>,
    /// Memory the host could allocate without swapping.
    pub memory_available_bytes: Option<u64>,
    /// Swap configured.
    pub swap_total_bytes: Option<u64>,
    /// Swap not in use.
    pub swap_free_bytes: Option<u64>,
    /// Share of the last 10 s in which some task waited for memory, in hundredths of a percent.
    pub pressure_some_basis_points: Option<u32>,
    /// Share of the last 10 s in which all tasks waited for memory, in hundredths of a percent.
    pub pressure_full_basis_points: Option<u32>,
    /// Merging of like pages (KSM); `None`: the kernel has none.
    #[serde(default)]
    pub ksm: Option<MergingView>,
}

/// Merging of like pages (KSM).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MergingView {
    /// Whether they are searched for.
    pub running: bool,
    /// Pages that stand for several like ones.
    pub shared_bytes: u64,
    /// What that saves.
    pub saved_bytes: u64,
    /// How often all memory that may be merged was looked at.
    pub full_scans: u64,
    /// Pages that are looked at before the search sleeps.
    pub pages_to_scan: u64,
    /// How long it sleeps then.
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

/// The memory a plan divides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    /// Memory that all guests together may be allocated.
    pub distributable_bytes: u64,
    /// Memory that guests hold or were promised.
    pub committed_bytes: u64,
    /// Memory that can be granted before any guest releases some.
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

/// One guest in summary. Ages are as of the tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestView {
    /// Its name.
    pub guest: String,
    /// Its run state, or why it cannot be reached.
    pub state: Coded,
    /// Memory it holds.
    pub allocation_bytes: Option<u64>,
    /// What the policy wants it to have, as in `GET /v1/plan`; not moved there while Ballast
    /// observes or is paused.
    #[serde(default)]
    pub wanted_bytes: Option<u64>,
    /// The target in force.
    pub target_bytes: Option<u64>,
    /// Memory it uses.
    pub used_bytes: Option<u64>,
    /// Memory it could release without swapping.
    pub available_bytes: Option<u64>,
    /// Memory it would need to run as well as it can.
    pub demand_bytes: Option<u64>,
    /// Confidence in the demand, 0 to 100.
    #[serde(default)]
    pub demand_confidence_percent: Option<u8>,
    /// Host memory its process occupies.
    pub resident_bytes: Option<u64>,
    /// Host memory its process occupies at most while it is copied to another host; `None`: not
    /// known.
    #[serde(default)]
    pub copied_resident_bytes: Option<u64>,
    /// Memory of its process that is merged with like pages (KSM); `None`: not known, or none.
    #[serde(default)]
    pub merged_bytes: Option<u64>,
    /// Memory it was booted with.
    pub boot_bytes: Option<u64>,
    /// Memory that can be hotplugged; `None`: none.
    pub hotplug: Option<HotplugView>,
    /// Its guaranteed minimum.
    pub floor_bytes: Option<u64>,
    /// Its largest allocation.
    pub ceiling_bytes: Option<u64>,
    /// Its weight.
    pub shares: Option<u32>,
    /// Its priority; when memory is short, lower priorities lose first.
    pub priority: Option<u8>,
    /// Whether Ballast may move its memory.
    pub managed: Option<bool>,
    /// Age of its statistics.
    pub stats_age_ms: Option<u64>,
    /// Memory it has read back from its swap since its boot, as it reports it.
    #[serde(default)]
    pub swap_in_bytes: Option<u64>,
    /// How its page touches are tracked; `None`: they are not.
    pub tracking: Option<TrackingView>,
    /// The fence around it; `None`: it is to have none.
    #[serde(default)]
    pub fence: Option<FenceView>,
    /// What keeps its pages on the host when its balloon takes them, and what still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Coded>,
    /// Whether it releases the memory it was asked for.
    pub compliance: Option<ComplianceView>,
    /// The change this plan makes.
    pub change: Option<ChangeView>,
    /// What its last reductions cost it; `None`: no reduction has been evaluated yet.
    pub regret: Option<RegretView>,
    /// Its devices and their features.
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
