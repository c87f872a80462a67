//! Whether grants fit what the kernel's limits leave to guests' processes.
//!
//! Idea: a limit leaves a room to all guests below it. What a guest may hold and its process does
//! not occupy yet fills the room without a grant; grants and raised caps must fit the rest.
//! Cost: O(1) per guest without a limit, else O(log n) per guest and limit. Limits: keeps nothing
//! for hypervisors; a plan that does is better than it must be.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestId};

use super::{ActionGrant, Check, Violation};

/// What is taken from one room.
#[derive(Default)]
struct RoomUsage<'a> {
    left: Bytes,
    limit: Bytes,
    unfilled: Bytes,
    granted: Bytes,
    /// A guest that is granted some of it.
    guest: Option<&'a GuestId>,
}

impl Check<'_> {
    /// Faults of all grants together, room by room. `given` is what each action grants.
    pub(super) fn rooms(&self, given: &[ActionGrant], found: &mut Vec<Violation>) {
        let (checker, samples) = (self.checker, self.snapshot.guests());
        if samples.iter().all(|sample| sample.rooms.is_empty()) {
            return;
        }
        let mut granted = vec![Bytes::ZERO; samples.len()];
        for (action, given) in self.plan.actions.iter().zip(given) {
            if let Some(place) = checker.guests.index_of(&action.guest) {
                granted[place] = granted[place].saturating_add(given.new);
            }
        }
        for (place, freed) in self.promises.iter().filter_map(|it| self.freed_by_cap(it)) {
            granted[place] = granted[place].saturating_add(freed);
        }
        let mut rooms: BTreeMap<&str, RoomUsage<'_>> = BTreeMap::new();
        let mut promises = self.promises.iter().peekable();
        for ((memory, sample), granted) in checker.guests.values().zip(samples).zip(granted) {
            let kept = promises.next_if(|it| it.guest == sample.id).and_then(|it| it.cap);
            let own = memory.committed(sample, kept.is_some(), self.rules.stale_after);
            let hypervisor = sample.overhead.unwrap_or_default();
            let occupied = sample.resident.map_or(Bytes::ZERO, |it| it.value);
            let unfilled = own.saturating_sub(occupied.saturating_sub(hypervisor));
            for room in &sample.rooms {
                let usage = rooms.entry(&room.by).or_default();
                (usage.left, usage.limit) = (room.left, room.limit);
                usage.unfilled = usage.unfilled.saturating_add(unfilled);
                usage.granted = usage.granted.saturating_add(granted);
                if granted > Bytes::ZERO {
                    usage.guest = Some(&sample.id);
                }
            }
        }
        for (by, RoomUsage { left, limit, unfilled, granted, guest }) in rooms {
            let free = left.saturating_sub(unfilled);
            if let Some(guest) = guest.filter(|_| granted > free) {
                let (guest, by) = (guest.clone(), by.to_owned());
                found.push(Violation::BeyondRoom { guest, by, limit, granted, free });
            }
        }
    }
}
