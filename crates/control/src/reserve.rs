//! Memory kept free for guests that are about to start.
//!
//! Idea: reserved memory is left out of the division, so guests give it up as they would to one
//! another, and none of them is granted any of it. When the guest appears, the reservation ends and
//! counts as what the guest was granted. This also holds while an empty hypervisor waits for a
//! guest to move in.
//! Cost: O(reservations) a tick.
//! Limits: a guest whose process is unknown gets no promise; its reservation stays until it
//! expires. Where not all reservations are free, those first by name are served first.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestId, Handover, LeftGuest, Reservation, Snapshot, Timestamp};

/// All reservations in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    by_name: BTreeMap<GuestId, Reservation>,
}

impl Reservations {
    pub(crate) fn set(&mut self, reservation: Reservation) {
        self.by_name.insert(reservation.guest.clone(), reservation);
    }

    pub(crate) fn end(&mut self, guest: &GuestId) {
        self.by_name.remove(guest);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Reservation> {
        self.by_name.values()
    }

    /// Sum of all reservations.
    pub(crate) fn sum(&self) -> Bytes {
        self.all().fold(Bytes::ZERO, |sum, it| sum.saturating_add(it.size))
    }

    /// Ends reservations that have expired by `now`, and those of guests that appear in `snapshot`.
    /// Returns these guests with what their reservations promised them.
    pub(crate) fn arrivals(&mut self, snapshot: &Snapshot, now: Timestamp) -> Vec<LeftGuest> {
        let mut arrivals = Vec::new();
        self.by_name.retain(|guest, reservation| {
            let process = snapshot.guest(guest).and_then(|sample| sample.process);
            arrivals.extend(process.map(|process| LeftGuest {
                process,
                held: None,
                target: Some(reservation.size.page_floor()),
                regret: None,
                handover: Handover::nothing(guest.clone()),
            }));
            process.is_none() && reservation.until > now
        });
        arrivals
    }

    /// The reservations, when `kept_free` of their sum is free.
    pub(crate) fn with(&self, mut kept_free: Bytes) -> Vec<Reservation> {
        let mut reservations: Vec<Reservation> = self.all().cloned().collect();
        for reservation in &mut reservations {
            reservation.free = reservation.size.min(kept_free);
            kept_free = kept_free.saturating_sub(reservation.free);
        }
        reservations
    }
}
