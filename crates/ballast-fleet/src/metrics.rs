//! What a member counts, in the text formats of Prometheus.
//!
//! Idea: counters live as long as the program. States (registered, leads, the plan) are written
//! into the text at each scrape, and are left out if unknown: only a leader has figures of a plan.
//! Cost: a few atomic operations for each call to etcd; a scrape is linear in the labels, some
//! dozens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ballast_fleet_proto::{CoordinatorError, PlanRecord};
use ballast_model::Bytes;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

type IntegerGauge = Gauge<u64, AtomicU64>;
/// Names and values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Buckets of calls to etcd, in seconds: most take milliseconds, and none more than 60 s.
const CALL_BOUNDS_S: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0];

/// What a member of a fleet counts.
#[derive(Debug)]
pub struct FleetMetrics {
    is_member: AtomicBool,
    is_leader: AtomicBool,
    /// Name, help text and value of each figure of the latest plan; none if the host does not lead.
    planned: Mutex<Vec<(&'static str, &'static str, u64)>>,
    calls: Family<Labels<1>, Histogram>,
    errors: Family<Labels<2>, Counter>,
    /// Figures about moves.
    pub moves: MoveMetrics,
}

/// Moves of guests: those of the fleet, if this host leads, and what this host has copied.
#[derive(Debug, Default)]
pub struct MoveMetrics {
    under_way: Mutex<BTreeMap<&'static str, u64>>,
    ended: Family<Labels<1>, Counter>,
    copied: Counter,
}

impl Default for FleetMetrics {
    fn default() -> FleetMetrics {
        FleetMetrics {
            is_member: AtomicBool::default(),
            is_leader: AtomicBool::default(),
            planned: Mutex::default(),
            calls: Family::new_with_constructor(|| Histogram::new(CALL_BOUNDS_S)),
            errors: Family::default(),
            moves: MoveMetrics::default(),
        }
    }
}

impl MoveMetrics {
    /// Sets how many moves of the fleet are in each phase; absent phases have none.
    pub fn set_under_way(&self, moves: BTreeMap<&'static str, u64>) {
        *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = moves;
    }

    /// Counts a move that this leader has closed, by its last phase: `moved`, `abandoned` or
    /// `lost`.
    pub fn count_end(&self, result: &'static str) {
        self.ended.get_or_create(&[("result", result)]).inc();
    }

    /// Counts bytes that this host has copied to another one.
    pub fn count_copied(&self, copied: Bytes) {
        self.copied.inc_by(copied.get());
    }
}

impl FleetMetrics {
    /// Sets whether the host is registered. A host that is not does not lead either.
    pub(crate) fn set_member(&self, is_member: bool) {
        self.is_member.store(is_member, Ordering::Relaxed);
        if !is_member {
            self.set_leader(false);
        }
    }

    /// Sets whether the host leads. A host that does not has no plan.
    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
        if !is_leader {
            self.moves.set_under_way(BTreeMap::new());
            self.planned.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Sets the plan that this host has made as leader.
    pub(crate) fn set_plan(&self, plan: &PlanRecord) {
        let figures = vec![
            (
                "paused",
                "Whether nothing is planned by an operator's order",
                u64::from(plan.paused_by.is_some()),
            ),
            ("hosts", "Hosts that this leader plans for", plan.hosts as u64),
            ("guests", "Guests that this leader plans for", plan.guests as u64),
            ("planned_moves", "Moves that the plan would have now", plan.migrations.len() as u64),
            (
                "waiting_moves",
                "Moves that the plan would have after those",
                plan.waiting.len() as u64,
            ),
            ("unmet_needs", "Needs that no move of the plan meets", plan.unmet.len() as u64),
            ("hosts_left_out", "Hosts that cannot be planned for", plan.left_out.len() as u64),
        ];
        *self.planned.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// Counts a call to etcd.
    pub(crate) fn count_call(
        &self,
        call: &'static str,
        took: Duration,
        error: Option<&CoordinatorError>,
    ) {
        self.calls.get_or_create(&[("call", call)]).observe(took.as_secs_f64());
        if let Some(error) = error {
            self.errors.get_or_create(&[("call", call), ("error", code(error))]).inc();
        }
    }

    /// All figures in the format OpenMetrics.
    ///
    /// # Errors
    /// None in practice: writing to memory does not fail.
    pub(crate) fn encode(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("ballast_fleet");
        let set = |registry: &mut Registry, name: &str, help: &str, value: u64| {
            let gauge = IntegerGauge::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        };
        let is = |flag: &AtomicBool| u64::from(flag.load(Ordering::Relaxed));
        set(&mut registry, "member", "Whether the host is registered", is(&self.is_member));
        set(&mut registry, "leader", "Whether the host leads", is(&self.is_leader));
        for &(name, help, value) in &*self.planned.lock().unwrap_or_else(PoisonError::into_inner) {
            set(&mut registry, name, help, value);
        }
        self.moves.register(&mut registry);
        let help = "Calls to etcd by how long they took";
        registry.register_with_unit("etcd_call", help, Unit::Seconds, self.calls.clone());
        registry.register("etcd_errors", "Calls to etcd that failed", self.errors.clone());
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl MoveMetrics {
    fn register(&self, registry: &mut Registry) {
        let under_way = Family::<Labels<1>, IntegerGauge>::default();
        for (&phase, &count) in &*self.under_way.lock().unwrap_or_else(PoisonError::into_inner) {
            under_way.get_or_create(&[("phase", phase)]).set(count);
        }
        let help = "Moves of guests of the fleet that this host leads, by phase";
        registry.register("moves_under_way", help, under_way);
        let help = "Moves of guests that this host has closed as leader, by how they ended";
        registry.register("moves_ended", help, self.ended.clone());
        let help = "What this host has copied to others";
        registry.register_with_unit("copied", help, Unit::Bytes, self.copied.clone());
    }
}

/// A stable word for an error.
fn code(error: &CoordinatorError) -> &'static str {
    match error {
        CoordinatorError::Unreachable(_) => "unreachable",
        CoordinatorError::NoLeader(_) => "no-leader",
        CoordinatorError::NoSpace(_) => "no-space",
        CoordinatorError::Denied(_) => "denied",
        CoordinatorError::Compacted(_) => "compacted",
        CoordinatorError::LeaseGone => "lease-gone",
        CoordinatorError::OtherCluster { .. } => "other-cluster",
        CoordinatorError::Protocol(_) => "protocol",
    }
}
