//! What is remembered of one guest from tick to tick.
//!
//! Limits: of a tick's decisions, only the goal is stored here before the plan is checked.

use ballast_actuation::hotplug::Actuator;
use ballast_actuation::paging::{OVERHEAD, ResidentCap};
use ballast_actuation::rates::{OrdersInForce, Rates};
use ballast_actuation::thrash::ThrashDetector;
use ballast_estimate::Estimator;
use ballast_guard::{ComplianceLog, Goal, Holding, OwnerWatch};
use ballast_model::{Bounds, Bytes, GuestSample, Timestamp};

use crate::Settings;
use crate::identity::Identity;

/// One guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestState {
    /// Its use and its demand.
    pub(crate) estimator: Estimator,
    /// Which process it is.
    pub(crate) identity: Identity,
    /// What it claims to hold, and what the host sees of that.
    pub(crate) holding: Holding,
    /// The last known bounds, whether or not the guest can reach them.
    pub(crate) bounds: Option<Bounds>,
    /// Since when it has held more than its entitlement without answering for it.
    pub(crate) beyond_since: Option<Timestamp>,
    /// What it was asked for, and whether it complies.
    pub(crate) log: ComplianceLog,
    /// Its goal by the last decision; `None`: that decision did not cover it.
    pub(crate) goal: Option<Goal>,
    /// Its need at the last decision that covered it.
    pub(crate) needed: Option<Bytes>,
    /// Number of its last request that a decision took into account.
    pub(crate) request: Option<u64>,
    /// The cap on its process.
    pub(crate) resident_cap: ResidentCap,
    /// Whether something else moves its balloon.
    pub(crate) owner: OwnerWatch,
    /// Plugs memory in and out; `None`: the guest has no device for that.
    pub(crate) actuator: Option<Box<Actuator>>,
    /// How fast memory was taken from it.
    pub(crate) rates: Rates,
    /// What taking that memory cost it.
    pub(crate) thrash: ThrashDetector,
}

impl GuestState {
    /// Takes in a sample. `usable`: its figures may be acted on. `is_held`: nothing is moved at
    /// all. Returns whether the guest thrashes with what it was left.
    pub(crate) fn observe(
        &mut self,
        sample: &GuestSample,
        usable: bool,
        is_held: bool,
        now: Timestamp,
        settings: &Settings,
    ) -> bool {
        self.estimator.observe(sample, now, settings.probing);
        self.identify(sample);
        let was_seen = self.holding.in_use().is_some();
        self.holding.observe(sample, now);
        if !was_seen && self.holding.in_use().is_some() && self.log.granted().is_none() {
            // Decisions that rest on the guest's word alone are made anew before it is granted
            // anything.
            self.goal = None;
        }
        self.owner.observe(sample, &self.log, is_held, now);
        self.log.observe(sample, &self.holding, usable, is_held, now, &settings.guard);
        // While nothing is moved, a mechanism that stands still is not slow.
        let in_force = match is_held {
            true => OrdersInForce::default(),
            false => {
                OrdersInForce { target: self.log.promised(), cap: self.resident_cap.in_force() }
            }
        };
        self.rates.observe(now, sample, in_force);
        self.thrash.observe(now, sample, &settings.thrash).is_some()
    }

    /// The cap on the process of a guest that owes memory.
    pub(crate) fn cap(&self) -> Option<Bytes> {
        cap_of(self.resident_cap, || self.log.asked().or(self.log.entitlement()))
    }
}

/// The cap on the process of a guest that owes memory, which follows what is `asked`. Memory taken
/// from the richest guests has no such cap: the host keeps it and grants it to no guest.
pub(crate) fn cap_of(cap: ResidentCap, asked: impl FnOnce() -> Option<Bytes>) -> Option<Bytes> {
    Some(cap.in_force()?.max(asked()?.saturating_add(OVERHEAD).page_ceil()))
}
