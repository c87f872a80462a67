//! Grant: what each guest is asked for, once it is known how much new memory it gets.

use std::collections::BTreeMap;

use ballast_guard::{Grant, GuardSettings, Rooms};
use ballast_model::{Budget, Bytes, HoldReason, MemoryRoom};

use crate::state::GuestState;
use crate::tick::GuestTick;

/// The grants of all guests in one tick.
#[derive(Debug)]
pub(crate) struct Granting<'a> {
    /// New memory, in the order of the snapshot.
    pub(crate) new: Vec<Bytes>,
    /// By a guest's place: the limit on its process that leaves it less than it lacks.
    pub(crate) narrow: BTreeMap<usize, &'a MemoryRoom>,
    /// What is left in the rooms of guests after all grants.
    pub(crate) rooms: Rooms<'a>,
    pub(crate) budget: Budget,
    pub(crate) guard: &'a GuardSettings,
    /// Why nothing at all is moved, if so.
    pub(crate) held: Option<HoldReason>,
    /// What is left after all grants, as far as memory may be plugged in.
    pub(crate) spare: Bytes,
}

impl Granting<'_> {
    /// What the guest at a place is asked for, and why.
    pub(crate) fn grant_to(&self, place: usize, guest: &GuestTick<'_>) -> Grant {
        if let Some(held) = self.held(guest) {
            return Grant::hold(held);
        }
        let GuestState { log, goal, .. } = &*guest.state;
        let new = self.new.get(place).copied().unwrap_or_default();
        let narrow = self.narrow.get(&place).copied();
        Grant::new(&guest.assessment, log, goal.as_ref(), new, narrow, self.budget, self.guard)
    }

    /// Why a guest is left alone because all are. In observe mode, a guest that would be left alone
    /// anyway keeps its own reason, because that is what the operator wants to learn.
    fn held(&self, guest: &GuestTick<'_>) -> Option<HoldReason> {
        match (self.held.as_ref()?, &guest.assessment.verdict) {
            (HoldReason::Observing, Err(own)) if guest.estimate().is_none() => Some(own.clone()),
            (held, _) => Some(held.clone()),
        }
    }
}
