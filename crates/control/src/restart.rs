//! State handed over to the next controller and taken over from the last one.
//!
//! Idea: the last daemon's promises hold until this one carries out a plan. A guest takes over its
//! promise as soon as it appears, even if its process is still unknown. It takes over the rest
//! (cap, plugging, thrash history) once its process is seen to be the same. Another process under
//! the same name is another guest and starts without a history.
//!
//! Cost: nothing once all guests were seen. Limits: state that is not handed over starts anew:
//! estimates, phases of plugging, rates, and how long a release has been under way.

use std::collections::BTreeMap;
use std::time::Duration;

use ballast_actuation::hotplug::Actuator;
use ballast_actuation::paging::ResidentCap;
use ballast_actuation::thrash::ThrashDetector;
use ballast_model::{
    Bytes, GuestId, GuestSample, Handover, LeftGuest, LinkState, PerGuest, Snapshot, Thrashed,
    Timestamp,
};

use crate::identity::Identity;
use crate::state::GuestState;

/// Guests that have not appeared by then are forgotten.
const APPEARS_WITHIN: Duration = Duration::from_secs(60);

/// Guests of the last daemon that have not appeared yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftGuests {
    guests: BTreeMap<GuestId, LeftGuest>,
    until: Option<Timestamp>,
}

impl LeftGuests {
    pub(crate) fn new(guests: Vec<LeftGuest>) -> LeftGuests {
        let by_name = |left: LeftGuest| (left.handover.guest.clone(), left);
        LeftGuests { guests: guests.into_iter().map(by_name).collect(), until: None }
    }

    /// Gives guests that appear in `snapshot` what they were promised. `states` is aligned with it.
    pub(crate) fn join(&mut self, states: &mut PerGuest<GuestState>, snapshot: &Snapshot) {
        if self.guests.is_empty() {
            return;
        }
        let now = snapshot.taken_at;
        if now > *self.until.get_or_insert(now + APPEARS_WITHIN) {
            self.guests.clear();
        }
        for (state, sample) in states.values_mut().zip(snapshot.guests()) {
            let Some(left) = self.guests.remove(&sample.id) else { continue };
            if sample.process.is_none_or(|process| process == left.process) {
                state.restore(left, now);
            }
        }
    }
}

impl GuestState {
    /// The guest was promised what `left` says; the rest of that waits until its process is seen.
    pub(crate) fn restore(&mut self, left: LeftGuest, now: Timestamp) {
        self.log.restore(&left, now);
        self.holding.restore(left.held, now);
        self.identity.process = Some(left.process);
        self.identity.left = Some(Box::new(left));
    }

    /// Notes which process the guest is. A different process is a different guest.
    pub(crate) fn identify(&mut self, sample: &GuestSample) {
        let before = self.identity.process;
        if sample.process.is_some() && before.is_some() && sample.process != before {
            let estimator = std::mem::take(&mut self.estimator);
            *self = GuestState { estimator, ..GuestState::default() };
        }
        self.identity.process = sample.process.or(before);
        self.identity.lacks_process = sample.process.is_none();
        self.identity.lacks_allocation = sample.allocation.is_none();
        self.take_over(sample);
    }

    /// Takes over what the last daemon left for the guest, once it is certain to be the same.
    fn take_over(&mut self, sample: &GuestSample) {
        let Some(left) = &mut self.identity.left else { return };
        if sample.link != LinkState::Up {
            // As with any broken link: its being stuck and its cap start anew.
            (left.handover.stuck, left.handover.resident_cap) = (None, None);
            return;
        }
        let Handover { transient_grant, resident_cap, stuck, thrashed, .. } = left.handover;
        if sample.process.is_none() || transient_grant > Bytes::ZERO && sample.hotplug.is_none() {
            return;
        }
        self.thrash = ThrashDetector::restored(thrashed, left.regret);
        // Unless another target was sent meanwhile.
        if self.log.target() == left.target {
            self.resident_cap = ResidentCap::restored(resident_cap);
            if let Some(stuck) = stuck {
                self.log.restore_stuck(stuck);
            }
            if let (Some(target), true) = (left.target, transient_grant > Bytes::ZERO) {
                let actuator = Actuator::restored(target, transient_grant, sample);
                self.actuator = Some(Box::new(actuator));
            }
        }
        self.identity.left = None;
    }

    /// Takes in where the guest thrashed on another host.
    pub(crate) fn carry(&mut self, thrashed: Thrashed) {
        self.thrash.carry(thrashed);
        // The guest came through a reservation that is still to be taken over, and would overwrite
        // this.
        if let Some(left) = &mut self.identity.left {
            left.handover.thrashed = Some(thrashed);
        }
    }

    /// Where the guest thrashed last.
    pub(crate) fn thrashed(&self) -> Option<Thrashed> {
        match &self.identity.left {
            Some(left) => left.handover.thrashed,
            None => self.thrash.thrashed(),
        }
    }

    /// What the next daemon needs to know of the guest besides its target.
    pub(crate) fn handover(&self, guest: &GuestId) -> Handover {
        let Identity { process, lacks_process, lacks_allocation, left } = &self.identity;
        if let Some(left) = left {
            let held = self.log.last_seen();
            return Handover { process: *process, held, ..left.handover.clone() };
        }
        let mut handover = Handover {
            process: process.filter(|_| *lacks_process),
            held: self.log.last_seen().filter(|_| *lacks_allocation),
            resident_cap: self.cap(),
            thrashed: self.thrash.thrashed(),
            ..Handover::nothing(guest.clone())
        };
        self.log.hand_over(&mut handover);
        handover
    }
}
