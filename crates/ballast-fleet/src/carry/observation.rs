//! What a host's daemon and notes say of a guest that is being moved.
//!
//! Idea: the daemon says what it has promised; notes have what it does not know.
//! Limits: a daemon that does not answer counts as keeping its promises.

use ballast_api::StatusReply;
use ballast_fleet_move::{Promise, SHRINK_TOLERANCE, Shrink};
use ballast_model::{Bytes, GuestId};

use super::note::Note;

/// What this host has promised to an arriving guest.
pub(super) fn promise(guest: &GuestId, note: &Note, status: Option<&StatusReply>) -> Promise {
    let Some(noted) = note.reserved else { return Promise::Nothing };
    if note.is_refused {
        return Promise::Refused;
    }
    // Without an answer the reservation counts as made, but not as free yet.
    let unknown = Promise::Reserved { size: Bytes::new(noted), is_ready: false };
    let Some(status) = status else { return unknown };
    if let Some(it) = status.reservations.iter().find(|it| it.guest == guest.as_str()) {
        // Whoever starts guests may have reserved more for it since: what was asked for is a part.
        let size = it.size_bytes.min(noted);
        return Promise::Reserved { size: Bytes::new(size), is_ready: it.free_bytes >= size };
    }
    match status.guests.iter().any(|it| it.guest == guest.as_str()) {
        true => Promise::Entitled,
        false => Promise::Nothing,
    }
}

/// The guest's allocation here, as far as the daemon knows it.
pub(super) fn holds(guest: &GuestId, status: Option<&StatusReply>) -> Option<Bytes> {
    let view = status?.guests.iter().find(|it| it.guest == guest.as_str())?;
    view.allocation_bytes.map(Bytes::new)
}

/// The shrinking that this host has asked of a leaving guest, which holds `holds`.
pub(super) fn shrink(note: &Note, holds: Option<Bytes>) -> Option<Shrink> {
    let to = Bytes::new(note.shrink?.to_bytes);
    Some(Shrink { to, is_done: holds.is_some_and(|it| it <= to.saturating_add(SHRINK_TOLERANCE)) })
}

#[cfg(test)]
mod tests {
    use ballast_api::ReservationView;

    use super::*;
    use crate::tests::FakeDaemon;

    #[test]
    fn a_larger_reservation_has_what_was_asked_for() {
        let guest: GuestId = "cache".parse().unwrap();
        let mut note = Note::default();
        note.reserved = Some(7);
        for (size_bytes, free_bytes, size, is_ready) in
            [(7, 6, 7, false), (7, 7, 7, true), (9, 6, 7, false), (9, 7, 7, true), (5, 5, 5, true)]
        {
            let mut status = FakeDaemon::new(64, &[]).reply();
            let guest_name = guest.to_string();
            let view = ReservationView { guest: guest_name, size_bytes, free_bytes, ends_in_ms: 1 };
            status.reservations = vec![view];
            let size = Bytes::new(size);
            let expected = Promise::Reserved { size, is_ready };
            assert_eq!(promise(&guest, &note, Some(&status)), expected, "{size_bytes}");
        }
    }
}
