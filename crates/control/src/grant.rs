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
    /// Whether the operator has paused acting.
    pub(crate) paused: bool,
    /// What is left once all guests got theirs, as far as memory may be plugged in.
    pub(crate) spare: Bytes,
}

impl Granting<'_> {
    /// What the guest at a place is asked, and why.
    pub(crate) fn to(&self, place: usize, guest: &GuestTick<'_>) -> Grant {
        if self.paused {
            return Grant::hold(Held::Paused);
        }
        let GuestState { log, goal, .. } = &*guest.state;
        let new = self.new.get(place).copied().unwrap_or_default();
        Grant::new(&guest.assessment, log, goal.as_ref(), new, self.budget, self.guard)
    }
}
