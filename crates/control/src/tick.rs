//! One tick: what each phase found for each guest.
//!
//! Idea: a guest has one [`GuestTick`], which holds what is known of it, and one
//! [`GuestActuation`], which holds what is done about it. No phase changes the part of an earlier
//! one. At the end, both become the guest's line in the plan and the state changes that follow once
//! the plan is carried out.

use ballast_actuation::hotplug::{Actuation, Actuator};
use ballast_actuation::paging::{Page, ResidentCap};
use ballast_guard::{Assessment, Grant, Rooms, Totals};
use ballast_model::{
    Budget, Bytes, Estimate, GuestLimits, GuestSample, HoldReason, MemoryRequest, Note, Snapshot,
};

use crate::state::GuestState;

/// A guest after `observe`.
#[derive(Debug)]
pub(crate) struct ObservedGuest<'a> {
    pub(crate) sample: &'a GuestSample,
    pub(crate) limits: &'a GuestLimits,
    pub(crate) state: &'a mut GuestState,
    /// Whether it may be moved; whether it has a demand is not considered yet.
    pub(crate) verdict: Result<(), HoldReason>,
    /// Whether it thrashes with what it was left.
    pub(crate) thrashes: bool,
}

/// All guests after `assess`.
#[derive(Debug)]
pub(crate) struct Tick<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// In the order of the snapshot.
    pub(crate) guests: Vec<GuestTick<'a>>,
    pub(crate) totals: Totals,
    /// What limits on guests' processes leave for grants.
    pub(crate) rooms: Rooms<'a>,
    /// Whether a guest thrashes with what it was left.
    pub(crate) thrashes: bool,
    /// Whether a guest thrashed recently enough that it may get back what it held.
    pub(crate) has_thrashed: bool,
    /// The memory there is to divide.
    pub(crate) budget: Budget,
    /// How much of the reserved memory is free.
    pub(crate) kept_free: Bytes,
    /// Notes that concern the host as a whole.
    pub(crate) notes: Vec<Note>,
}

/// One guest in one tick.
#[derive(Debug)]
pub(crate) struct GuestTick<'a> {
    pub(crate) sample: &'a GuestSample,
    pub(crate) limits: &'a GuestLimits,
    /// Its state. Only `bound` changes this before the plan is carried out.
    pub(crate) state: &'a mut GuestState,
    /// By `assess`: what is known of it.
    pub(crate) assessment: Assessment,
}

/// What is done about one guest in one tick.
#[derive(Debug)]
pub(crate) struct GuestActuation {
    /// By `grant`: what it is asked for, and why.
    pub(crate) grant: Grant,
    /// By `actuate`: the order to balloon and plugged memory for that.
    pub(crate) actuated: Actuated,
    /// By `page`: the cap on its process; `None`: unchanged.
    pub(crate) paged: Option<Paged>,
}

/// An order to balloon and plugged memory.
#[derive(Debug, Default)]
pub(crate) struct Actuated {
    pub(crate) order: Actuation,
    /// The guest's actuator once the order is carried out; `None`: unchanged.
    pub(crate) next: Option<NextActuator>,
}

/// What a guest's actuator becomes.
#[derive(Debug)]
pub(crate) struct NextActuator(pub(crate) Option<Box<Actuator>>);

impl NextActuator {
    /// What the guest is then promised beyond its target.
    pub(crate) fn transient_grant(&self) -> Bytes {
        self.0.as_ref().map_or(Bytes::ZERO, |actuator| actuator.transient_grant())
    }
}

/// The cap on a guest's process from now on, and what is paged for it.
#[derive(Debug)]
pub(crate) struct Paged {
    pub(crate) cap: ResidentCap,
    pub(crate) page: Option<Page>,
}

impl GuestTick<'_> {
    /// Its estimate, if it takes part in the division of memory.
    pub(crate) fn estimate(&self) -> Option<&Estimate> {
        self.state.estimator.last_estimate().filter(|_| self.assessment.has_part)
    }

    /// Its last request, unless it is left alone.
    pub(crate) fn request(&self) -> Option<MemoryRequest> {
        self.estimate().filter(|_| self.assessment.verdict.is_ok())?.signals.request
    }
}
