//! What the kernel's limits on guests' processes leave for grants.
//!
//! Idea: a limit on a cgroup leaves a room that all guests below it share; NUMA nodes leave one to
//! all guests that are bound to them. As with the host's memory, what guests were promised and have
//! not filled yet is taken off first, and then some for their hypervisors. What guests lack is cut
//! to their rooms, those with few guests first, before the host's memory is allocated: so grants of
//! one tick fit each room together.
//!
//! Cost: O(1) per guest without a limit, else O(log n) per guest and limit. Limits: limits growth
//! alone. A guest that already holds more than its limit allows keeps it.

use std::collections::BTreeMap;

use ballast_model::{Bytes, GuestSample, MemoryRoom};

use crate::Lack;
use crate::allocate_grants::share_out;

/// Kept for each hypervisor in a room: its own need grows, and is known only where its guest's
/// memory is shared.
const HYPERVISOR_KEPT: Bytes = Bytes::mib(64);

/// What the kernel needs itself for memory that is filled, as a divisor: page tables, those of the
/// process and those of KVM, are a 256th with pages of 4 KiB.
const KERNEL_PART: u64 = 128;

/// All rooms in one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms<'a> {
    by_name: BTreeMap<&'a str, Room<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Room<'a> {
    limit: &'a MemoryRoom,
    /// What can be granted.
    left: Bytes,
    /// Its guests' places.
    places: Vec<usize>,
}

impl<'a> Rooms<'a> {
    /// The rooms of guests in the order of the snapshot, each with what it is committed.
    pub fn new(guests: impl Iterator<Item = (&'a GuestSample, Bytes)>) -> Rooms<'a> {
        let mut by_name: BTreeMap<&str, Room<'a>> = BTreeMap::new();
        let mut taken: BTreeMap<&str, Bytes> = BTreeMap::new();
        for (place, (sample, committed)) in guests.enumerate() {
            for limit in &sample.rooms {
                let new = || Room { limit, left: limit.left, places: Vec::new() };
                let room = by_name.entry(&limit.by).or_insert_with(new);
                room.left = room.left.min(limit.left);
                room.places.push(place);
                let kept = unfilled(sample, committed).saturating_add(HYPERVISOR_KEPT);
                let taken = taken.entry(&limit.by).or_default();
                *taken = taken.saturating_add(kept);
            }
        }
        for (name, room) in &mut by_name {
            let fillable = room.left.saturating_sub(room.left.fraction(1, KERNEL_PART));
            room.left = fillable.saturating_sub(taken[name]).page_floor();
        }
        Rooms { by_name }
    }

    /// Cuts what guests lack so that it fits all rooms. For each guest that then lacks less, by its
    /// place: the limit that leaves it least.
    pub fn cut(&self, lacks: &mut [Lack]) -> BTreeMap<usize, &'a MemoryRoom> {
        let mut rooms: Vec<&Room<'a>> = self.by_name.values().collect();
        rooms.sort_by_key(|room| room.places.len());
        let mut cut = BTreeMap::new();
        for room in rooms {
            let of_room: Vec<Lack> = room.places.iter().map(|&place| lacks[place]).collect();
            let shares = share_out(&of_room, room.left.to_pages());
            for (&place, pages) in room.places.iter().zip(shares) {
                let lack = &mut lacks[place];
                if pages < lack.pages {
                    *lack = Lack { pages, to_floor: lack.to_floor.min(pages) };
                    cut.insert(place, room.limit);
                }
            }
        }
        cut
    }

    /// What a guest can be granted; no limit: all there is.
    pub fn left(&self, sample: &GuestSample) -> Bytes {
        let rooms = sample.rooms.iter().filter_map(|limit| self.by_name.get(limit.by.as_str()));
        rooms.map(|room| room.left).min().unwrap_or(Bytes::MAX)
    }

    /// A guest is granted `amount`.
    pub fn take(&mut self, sample: &GuestSample, amount: Bytes) {
        for limit in &sample.rooms {
            if let Some(room) = self.by_name.get_mut(limit.by.as_str()) {
                room.left = room.left.saturating_sub(amount);
            }
        }
    }
}

/// What a guest was promised and has not filled, as far as the host sees. The hypervisor's own
/// memory counts as filled where it is not known.
fn unfilled(sample: &GuestSample, committed: Bytes) -> Bytes {
    let occupied = sample.resident.map_or(Bytes::ZERO, |size| size.value);
    committed.saturating_sub(occupied.saturating_sub(sample.overhead.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use ballast_model::{LinkState, Measured};
    use proptest::prelude::*;

    use super::*;

    /// A guest that holds 1 GiB, has filled `filled` of it, and has these limits, all in MiB.
    fn guest(name: usize, filled: u64, limits: &[(&str, u64)]) -> GuestSample {
        let room = |(by, left): &(&str, u64)| MemoryRoom {
            by: (*by).to_owned(),
            limit: Bytes::gib(64),
            left: Bytes::mib(*left),
        };
        GuestSample {
            resident: Some(Measured::fresh(Bytes::mib(filled + 40))),
            overhead: Some(Bytes::mib(40)),
            rooms: limits.iter().map(room).collect(),
            ..GuestSample::unknown(format!("g{name:02}").parse().unwrap(), LinkState::Up)
        }
    }

    fn rooms(guests: &[GuestSample]) -> Rooms<'_> {
        Rooms::new(guests.iter().map(|guest| (guest, Bytes::gib(1))))
    }

    fn lacks(mib: &[u64]) -> Vec<Lack> {
        mib.iter().map(|mib| Lack { pages: Bytes::mib(*mib).to_pages(), to_floor: 0 }).collect()
    }

    fn in_mib(lacks: &[Lack]) -> Vec<u64> {
        lacks.iter().map(|lack| Bytes::pages(lack.pages).get() >> 20).collect()
    }

    #[test]
    fn promised_memory_that_is_not_filled_takes_room() {
        // 1280 MiB less a 128th, 64 MiB for the hypervisor, and what is not filled.
        for (filled, left) in [(1024, 1206), (824, 1006), (0, 182), (2000, 1206)] {
            let guests = [guest(0, filled, &[("slice", 1280)])];
            assert_eq!(rooms(&guests).left(&guests[0]), Bytes::mib(left), "{filled}");
        }
        let unseen = GuestSample { resident: None, ..guest(0, 0, &[("slice", 1280)]) };
        assert_eq!(rooms(std::slice::from_ref(&unseen)).left(&unseen), Bytes::mib(182));
    }

    #[test]
    fn guests_share_a_room_and_the_narrowest_is_named() {
        let guests = [
            guest(0, 1024, &[("slice/a", 164), ("slice", 768)]),
            guest(1, 1024, &[("slice", 768)]),
            guest(2, 1024, &[]),
        ];
        let rooms = rooms(&guests);
        let mut lacks = lacks(&[500, 1000, 300]);
        let cut = rooms.cut(&mut lacks);
        // `a` has 164 MiB less a 128th and 64 MiB; both have 768 MiB less a 128th and twice 64 MiB.
        assert_eq!(in_mib(&lacks), [56, 577, 300]);
        let files: Vec<(usize, &str)> = cut.iter().map(|(at, it)| (*at, it.by.as_str())).collect();
        assert_eq!(files, [(0, "slice"), (1, "slice")]);
        assert_eq!(rooms.left(&guests[2]), Bytes::MAX);
    }

    #[test]
    fn floors_come_first_in_a_room() {
        let guests = [guest(0, 1024, &[("slice", 512)]), guest(1, 1024, &[("slice", 512)])];
        let mut lacks = lacks(&[1000, 300]);
        lacks[1].to_floor = lacks[1].pages;
        rooms(&guests).cut(&mut lacks);
        assert_eq!(in_mib(&lacks), [80, 300]);
    }

    #[test]
    fn what_is_taken_is_not_left_to_others() {
        let guests =
            [guest(0, 1024, &[("a", 2000), ("slice", 512)]), guest(1, 1024, &[("slice", 512)])];
        let mut rooms = rooms(&guests);
        rooms.take(&guests[0], Bytes::mib(300));
        assert_eq!(rooms.left(&guests[1]), Bytes::mib(80));
        rooms.take(&guests[1], Bytes::mib(300));
        assert_eq!(rooms.left(&guests[0]), Bytes::ZERO);
    }

    proptest! {
        /// The oracle adds up each room guest by guest.
        #[test]
        fn lacks_fit_all_rooms_and_are_cut_only_for_them(
            drawn in prop::collection::vec(
                (0..1025u64, prop::collection::btree_set(0..4usize, 0..4), 0..4000u64, 0..4000u64),
                1..12,
            ),
            left in prop::array::uniform4(0..20_000u64),
        ) {
            const FILES: [&str; 4] = ["a", "a/b", "a/c", "d"];
            let mut guests = Vec::new();
            let mut lacks = Vec::new();
            for (at, (filled, of, pages, to_floor)) in drawn.iter().enumerate() {
                let limits: Vec<_> = of.iter().map(|&it| (FILES[it], left[it])).collect();
                guests.push(guest(at, *filled, &limits));
                lacks.push(Lack { pages: pages * 256, to_floor: (*to_floor).min(*pages) * 256 });
            }
            let before = lacks.clone();
            let rooms = rooms(&guests);
            let cut = rooms.cut(&mut lacks);
            for (at, file) in FILES.iter().enumerate() {
                let (mut granted, mut unfilled, mut lacked) = (0, 0, 0);
                for (place, guest) in guests.iter().enumerate() {
                    if guest.rooms.iter().any(|it| it.by == *file) {
                        granted += lacks[place].pages / 256;
                        lacked += before[place].pages / 256;
                        unfilled += 1024 - drawn[place].0.min(1024) + 64;
                    }
                }
                let fillable = left[at] - left[at].div_ceil(128);
                let room = fillable.saturating_sub(unfilled);
                prop_assert!(granted <= room + 1, "{file}: {granted} of {room}");
                let is_blamed = cut.values().any(|it| it.by == *file);
                prop_assert!(!is_blamed || lacked + 1 > room, "{file}: {lacked} of {room}");
            }
            for (place, (lack, before)) in lacks.iter().zip(&before).enumerate() {
                prop_assert!(lack.to_floor <= lack.pages && lack.pages <= before.pages);
                prop_assert_eq!(cut.contains_key(&place), lack.pages < before.pages);
            }
        }
    }
}
