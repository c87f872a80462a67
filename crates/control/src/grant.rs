//! Grant: what each guest is asked, once it is known how much new memory it gets.

use ballast_guard::{Grant, GuardSettings};
use ballast_model::{Budget, Bytes, Held};

use crate::state::GuestState;
use crate::tick::GuestTick;

/// What all guests are granted.
#[derive(Debug)]
pub(crate) struct Granting<'a> {
    /// New memory, in the order of the snapshot.
    pub(crate) new: Vec<Bytes>,
    pub(crate) budget: Budget,
    pub(crate) guard: &'a GuardSettings,
    /// Why nothing is moved at all, if so.
    pub(crate) held: Option<Held>,
    /// What is left once all guests got theirs, as far as memory may be plugged in.
    pub(crate) spare: Bytes,
}

impl Granting<'_> {
    /// What the guest at a place is asked, and why.
    pub(crate) fn to(&self, place: usize, guest: &GuestTick<'_>) -> Grant {
        if let Some(held) = self.held(guest) {
            return Grant::hold(held);
        }
        let GuestState { log, goal, .. } = &*guest.state;
        let new = self.new.get(place).copied().unwrap_or_default();
        Grant::new(&guest.assessment, log, goal.as_ref(), new, self.budget, self.guard)
    }

    /// Why a guest is left alone because all are. Who looks before he leaps wants to hear which
    /// guests would not be moved anyway; who paused knows.
    fn held(&self, guest: &GuestTick<'_>) -> Option<Held> {
        match (self.held.as_ref()?, &guest.assessment.verdict) {
            (Held::Observing, Err(own)) if guest.estimate().is_none() => Some(own.clone()),
            (held, _) => Some(held.clone()),
        }
    }
}
