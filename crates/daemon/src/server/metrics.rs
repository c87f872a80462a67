//! The latest view in Prometheus' text formats.
//!
//! Idea: every scrape encodes one view; no state is kept. Unknown values have no sample. Units are
//! in the names; a guest's name is the label `guest`. The library writes OpenMetrics; the classic
//! format is derived from that.
//! Cost: linear in the guests.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use ballast_api::MetricsFormat;
use ballast_model::{
    Bytes, Change, Compliance, GuestPlan, GuestSample, HoldReason, Mode, Note, PageMerging,
    Reservation, Share, Tracking, TrackingState,
};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::view::View;

type Whole = Gauge<u64, AtomicU64>;
type Real = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GuestLabel {
    guest: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GuestReason {
    guest: String,
    reason: String,
}

/// `view` as text for a scrape at `now`.
///
/// # Errors
/// None in practice: writing to memory does not fail.
pub(super) fn encode(
    view: &View,
    now: SystemTime,
    format: MetricsFormat,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ballast");
    daemon(&mut registry, view, now);
    host(&mut registry, view);
    guest_sizes(&mut registry, view);
    guest_counters(&mut registry, view);
    guest_states(&mut registry, view);
    guest_tracking(&mut registry, view);
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(format.of_open_metrics(out))
}

fn daemon(registry: &mut Registry, view: &View, now: SystemTime) {
    let info = Info::new(vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("policy", view.policy.to_string()),
    ]);
    registry.register("daemon", "Version of the daemon and policy in force", info);
    let seconds = |registry: &mut Registry, name: &str, help: &str, value: f64| {
        let gauge = Real::default();
        gauge.set(value);
        registry.register_with_unit(name, help, Unit::Seconds, gauge);
    };
    let age = now.duration_since(view.seen_at).unwrap_or_default();
    let started = view.started_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    seconds(registry, "start_time", "When the daemon started, since 1970", started.as_secs_f64());
    seconds(registry, "tick_interval", "Time between ticks", view.tick.as_secs_f64());
    seconds(registry, "last_tick_age", "Time since the last tick", age.as_secs_f64());
    let cost = view.decision_cost.as_secs_f64();
    seconds(registry, "decision", "Time the last decision took", cost);
    let count = |registry: &mut Registry, name: &str, help: &str, value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    count(registry, "ticks", "Ticks since the daemon started", view.ticks);
    let help = "Plans the checker refused since the daemon started";
    count(registry, "plans_refused", help, view.plans_refused);
    whole(registry, "paused", "Whether the operator paused acting", Some(view.paused.into()));
    let observing = view.mode.in_force() == Mode::Observe;
    let help = "Whether Ballast only observes and moves nothing";
    whole(registry, "observing", help, Some(observing.into()));
    let failing = Some(view.journal_error.is_some().into());
    whole(registry, "journal_failing", "Whether the journal does not record", failing);
    let help = "Files moved out of the journal's way since the daemon started";
    let aside = u64::try_from(view.journal_aside.len()).unwrap_or(u64::MAX);
    count(registry, "journal_files_moved_aside", help, aside);
    let help = "Times the API's thread ended by a fault and was replaced";
    count(registry, "api_restarts", help, view.api.restarts);
    let help = "Lines of the log dropped because nobody read them in time";
    count(registry, "log_lines_dropped", help, view.log_lines_dropped);
    let refused = Some(view.reload_error.is_some().into());
    whole(registry, "reload_failed", "Whether the last reload was refused", refused);
    if let Some(fairness) = view.fairness {
        let mean = f64::from(fairness.mean_basis_points) / 10_000.0;
        let help = "Jain's index of what guests have of their entitlement, over the last decisions";
        ratio(registry, "fairness", help, mean);
    }
    let guests = u64::try_from(view.snapshot.guests().len()).ok();
    whole(registry, "guests", "Guests known", guests);
    let refused = u64::try_from(view.guests_refused).ok();
    whole(registry, "guests_refused", "Guests left out for want of open files", refused);
}

fn host(registry: &mut Registry, view: &View) {
    let host = &view.snapshot.host;
    let budget = &view.plan.budget;
    let reserved = |of: fn(&Reservation) -> Bytes| view.plan.reservations.iter().map(of).sum();
    for (name, help, value) in [
        ("host_memory_total", "Memory the host kernel manages", host.memory_total),
        ("host_memory_available", "Memory the host can give without swap", host.memory_available),
        ("host_swap_total", "Swap configured on the host", host.swap_total),
        ("host_swap_free", "Swap not in use on the host", host.swap_free),
        ("budget", "Memory all guests together may be allocated", Some(budget.distributable)),
        ("committed", "Memory guests hold or were promised", Some(budget.committed)),
        ("grantable", "Memory that can be granted at once", Some(budget.grantable)),
        ("reserved", "Memory reserved for guests about to start", Some(reserved(|it| it.size))),
        ("reserved_free", "How much of that is free", Some(reserved(|it| it.free))),
    ] {
        if let Some(value) = value {
            let gauge = Whole::default();
            gauge.set(value.get());
            registry.register_with_unit(name, help, Unit::Bytes, gauge);
        }
    }
    // Shown beside the budget, not as a part of it: 0 while all floors fit.
    let shortfall = view.plan.notes.iter().find_map(|note| match note {
        Note::Infeasible { shortfall } => Some(*shortfall),
        _ => None,
    });
    let gauge = Whole::default();
    gauge.set(shortfall.unwrap_or_default().get());
    let help = "How much floors and guests that cannot be moved exceed the budget";
    registry.register_with_unit("budget_shortfall", help, Unit::Bytes, gauge);
    let level = Whole::default();
    level.set(view.plan.host_pressure as u64);
    let help = "How far the host goes to get memory back: 0 not at all, 4 grants nothing";
    registry.register("host_rung", help, level);
    merging(registry, host.merging.as_ref());
    let Some(pressure) = host.pressure else { return };
    for (name, help, basis_points) in [
        ("host_pressure_some", "Time some task waited for memory", pressure.some_basis_points),
        ("host_pressure_full", "Time all tasks waited for memory", pressure.full_basis_points),
    ] {
        ratio(registry, name, help, f64::from(basis_points) / 10_000.0);
    }
}

/// Merging of equal pages (KSM); a kernel without it has no samples.
fn merging(registry: &mut Registry, merging: Option<&PageMerging>) {
    let Some(merging) = merging else { return };
    for (name, help, value) in [
        ("host_ksm_shared", "Pages that stand for several like ones (KSM)", merging.shared),
        ("host_ksm_saved", "What merging like pages saves (KSM)", merging.saved),
    ] {
        let gauge = Whole::default();
        gauge.set(value.get());
        registry.register_with_unit(name, help, Unit::Bytes, gauge);
    }
    let running = Some(merging.knobs.is_running.into());
    whole(registry, "host_ksm_running", "Whether like pages are searched for", running);
    let pages = Some(merging.knobs.pages_to_scan);
    whole(registry, "host_ksm_pages_to_scan", "Pages looked at between two sleeps", pages);
    let scans: Counter = Counter::default();
    scans.inc_by(merging.full_scans);
    registry.register("host_ksm_full_scans", "Times all memory was looked at", scans);
}

fn ratio(registry: &mut Registry, name: &str, help: &str, value: f64) {
    let gauge = Real::default();
    gauge.set(value);
    registry.register_with_unit(name, help, Unit::Other("ratio".to_owned()), gauge);
}

fn whole(registry: &mut Registry, name: &str, help: &str, value: Option<u64>) {
    if let Some(value) = value {
        let gauge = Whole::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    }
}

/// A guest with its part of the plan.
type GuestAndPlan<'a> = (&'a GuestSample, Option<&'a GuestPlan>);

fn rows(view: &View) -> impl Iterator<Item = GuestAndPlan<'_>> {
    view.snapshot.guests().iter().map(|sample| (sample, view.plan.guest(&sample.id)))
}

fn label(sample: &GuestSample) -> GuestLabel {
    GuestLabel { guest: sample.id.to_string() }
}

fn guest_sizes(registry: &mut Registry, view: &View) {
    type Size = fn(GuestAndPlan<'_>) -> Option<Bytes>;
    let sizes: [(&str, &str, Size); 15] = [
        ("guest_allocation", "Memory the guest holds", |(sample, _)| {
            sample.allocation.map(|measured| measured.value)
        }),
        ("guest_wanted", "What the policy wants the guest to hold", |(_, plan)| {
            Some(plan?.desired.as_ref()?.target)
        }),
        ("guest_target", "Target in force", |(_, plan)| plan?.target),
        ("guest_used", "Memory the guest uses", |(_, plan)| Some(plan?.estimate.as_ref()?.used)),
        ("guest_available", "Memory the guest could give back without swapping", |(_, plan)| {
            Some(plan?.estimate.as_ref()?.available)
        }),
        ("guest_resident", "Host memory the guest's process occupies", |(sample, _)| {
            sample.resident.map(|measured| measured.value)
        }),
        ("guest_merged", "Memory of the guest's process merged with like pages", |(sample, _)| {
            sample.merged
        }),
        ("guest_tracked_working_set", "Working set that page tracking found", |(sample, _)| {
            sample.tracker.as_ref().map(|measured| measured.value.working_set)
        }),
        (
            "guest_committed",
            "Memory that the guest's kernel promised to processes",
            |(sample, _)| sample.agent.as_ref().and_then(|measured| measured.value.committed),
        ),
        ("guest_swap_used", "Swap in use in the guest", |(sample, _)| {
            sample.agent.as_ref().and_then(|measured| measured.value.swap_used)
        }),
        ("guest_boot", "Memory the guest was booted with", |(sample, _)| sample.boot_memory),
        ("guest_plugged", "Memory plugged into the guest", |(sample, _)| {
            sample.hotplug.map(|hotplug| hotplug.plugged)
        }),
        ("guest_fence", "Limit on the guest's cgroup that keeps it from growing", |(sample, _)| {
            sample.fence.as_ref()?.limit
        }),
        ("guest_floor", "Guaranteed minimum", |(_, plan)| Some(plan?.bounds?.floor)),
        ("guest_ceiling", "Largest allocation", |(_, plan)| Some(plan?.bounds?.ceiling)),
    ];
    for (name, help, size) in sizes {
        let family = Family::<GuestLabel, Whole>::default();
        for row in rows(view) {
            if let Some(size) = size(row) {
                family.get_or_create(&label(row.0)).set(size.get());
            }
        }
        registry.register_with_unit(name, help, Unit::Bytes, family);
    }
}

fn guest_counters(registry: &mut Registry, view: &View) {
    type Count = fn(&ballast_model::GuestStats) -> Option<u64>;
    let counts: [(&str, &str, Option<Unit>, Count); 3] = [
        ("guest_swap_in", "Memory read back from swap", Some(Unit::Bytes), |stats| {
            stats.swap_in.map(Bytes::get)
        }),
        ("guest_swap_out", "Memory written to swap", Some(Unit::Bytes), |stats| {
            stats.swap_out.map(Bytes::get)
        }),
        ("guest_major_faults", "Faults that waited for a disk", None, |stats| stats.major_faults),
    ];
    for (name, help, unit, count) in counts {
        let family = Family::<GuestLabel, Counter>::default();
        for (sample, _) in rows(view) {
            if let Some(count) = sample.stats.as_ref().and_then(|stats| count(&stats.value)) {
                family.get_or_create(&label(sample)).inc_by(count);
            }
        }
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, family),
            None => registry.register(name, help, family),
        }
    }
}

fn guest_states(registry: &mut Registry, view: &View) {
    let ages = Family::<GuestLabel, Real>::default();
    let shares = Family::<GuestLabel, Whole>::default();
    let priorities = Family::<GuestLabel, Whole>::default();
    let stuck = Family::<GuestLabel, Whole>::default();
    let held = Family::<GuestReason, Whole>::default();
    let unfenced = Family::<GuestLabel, Whole>::default();
    for (sample, plan) in rows(view) {
        if let Some(stats) = &sample.stats {
            ages.get_or_create(&label(sample)).set(stats.age.as_secs_f64());
        }
        if let Some(limits) = view.limits.get(&sample.id) {
            shares.get_or_create(&label(sample)).set(limits.shares.into());
            priorities.get_or_create(&label(sample)).set(limits.priority.into());
        }
        if let Some(fence) = &sample.fence {
            unfenced.get_or_create(&label(sample)).set(fence.trouble.is_some().into());
        }
        let Some(plan) = plan else { continue };
        let is_stuck = matches!(plan.compliance, Compliance::Stuck { .. });
        stuck.get_or_create(&label(sample)).set(is_stuck.into());
        if let Some(why) = held_by(&plan.change) {
            let reason =
                GuestReason { guest: sample.id.to_string(), reason: why.code().to_owned() };
            held.get_or_create(&reason).set(1);
        }
    }
    let help = "Age of the guest's statistics";
    registry.register_with_unit("guest_statistics_age", help, Unit::Seconds, ages);
    registry.register("guest_shares", "Weight in every division of memory", shares);
    let help = "Guests of lower priority go without first";
    registry.register("guest_priority", help, priorities);
    registry.register("guest_stuck", "Whether the guest gives nothing it was asked for", stuck);
    let help = "Whether the guest's fence does not stand as it is to";
    registry.register("guest_fence_failing", help, unfenced);
    registry.register("guest_held", "Why the guest's memory is left alone", held);
}

/// The state of page tracking; a guest that is not tracked has no sample.
fn guest_tracking(registry: &mut Registry, view: &View) {
    type Part = fn(&Tracking) -> Option<Share>;
    let shares: [(&str, &str, Part); 2] = [
        ("guest_tracker_cost", "Share of a core that page tracking takes", |it| it.cost),
        ("guest_tracker_watched", "Share of the guest's pages that is watched", |it| it.watched),
    ];
    let tracked = || {
        let guests = view.snapshot.guests().iter();
        guests.filter_map(|sample| Some((sample, sample.tracking.as_ref()?)))
    };
    for (name, help, share) in shares {
        let family = Family::<GuestLabel, Real>::default();
        for (sample, tracking) in tracked() {
            if let Some(share) = share(tracking) {
                family.get_or_create(&label(sample)).set(share.ratio());
            }
        }
        registry.register_with_unit(name, help, Unit::Other("ratio".to_owned()), family);
    }
    for (name, help, state) in [
        ("guest_tracker_watching", "Whether the tracker watches", TrackingState::Watching),
        ("guest_tracker_resting", "Whether the tracker rests", TrackingState::Resting),
        ("guest_tracker_failing", "Whether page tracking does not work", TrackingState::Failing),
    ] {
        let family = Family::<GuestLabel, Whole>::default();
        for (sample, tracking) in tracked() {
            family.get_or_create(&label(sample)).set((tracking.state == state).into());
        }
        registry.register(name, help, family);
    }
}

fn held_by(change: &Change) -> Option<&HoldReason> {
    match change {
        Change::Hold(why) | Change::CancelShrink { why } => Some(why),
        Change::Grow { .. } | Change::Shrink { .. } => None,
    }
}
