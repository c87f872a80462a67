//! Which memory may be revoked now.
//!
//! Idea: revoking memory that is not a guest's would be a disaster: `MADV_DONTNEED` on an address that
//! the hypervisor has unmapped and its allocator taken wipes data. So every piece of tracked memory has a
//! slot, a thread is *inside* the slot while it revokes, and before the hypervisor unmaps or maps over
//! memory (see [`crate::unmap`]) the slot is closed and those inside are waited for. What is inside
//! takes a bounded time, one batch, and getting inside never waits: the thread that answers faults
//! may go there.
//!
//! Each slot also says whether its memory is registered by the tracker. Before Linux 6.17 unregistering takes away
//! what *any* userfaultfd of the process has registered, and the hypervisor has its own for snapshots and
//! post-copy migration: so only what is said to be registered here is ever unregistered, and by one thread.
//!
//! Cost: two atomic additions a batch.
//! Limits: system calls that the hypervisor makes past the C library are not seen; QEMU makes none of
//! these.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use ballast_track_wire::REGIONS_MAX;

use crate::kernel::Extent;

/// Nothing is there.
const FREE: u32 = 0;
/// Being looked at: nothing may be revoked yet.
const CLAIMED: u32 = 1;
/// May be revoked.
const OPEN: u32 = 2;
/// Unmapped, or about to be.
const CLOSED: u32 = 3;

/// The slots of this process.
pub(crate) static SLOTS: Slots = Slots::new();

/// A slot for each region.
pub(crate) struct Slots {
    slots: [Slot; REGIONS_MAX],
    /// Slots that are not free; unmapping anything looks no further while there are none.
    taken: AtomicU32,
}

struct Slot {
    state: AtomicU32,
    is_watched: AtomicBool,
    inside: AtomicU32,
    start: AtomicU64,
    len: AtomicU64,
    first_page: AtomicU64,
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    pub(crate) extent: Extent,
    /// The number of its first page.
    pub(crate) first_page: u64,
}

/// Being inside a slot: while this is there, its memory stays mapped.
pub(crate) struct Inside<'a> {
    slot: &'a Slot,
    pub(crate) tracked: Tracked,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.slot.inside.fetch_sub(1, SeqCst);
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            state: AtomicU32::new(FREE),
            is_watched: AtomicBool::new(false),
            inside: AtomicU32::new(0),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            first_page: AtomicU64::new(0),
        }
    }

    fn extent(&self) -> Extent {
        Extent::new(self.start.load(Acquire), self.len.load(Acquire))
    }

    /// No new thread gets inside; waits for those that are.
    fn close_and_wait(&self) {
        let close = |state| self.state.compare_exchange(state, CLOSED, SeqCst, SeqCst);
        if close(OPEN).is_ok() || close(CLAIMED).is_ok() || self.state.load(SeqCst) == CLOSED {
            while self.inside.load(SeqCst) > 0 {
                std::thread::yield_now();
            }
        }
    }
}

impl Slots {
    const fn new() -> Slots {
        Slots { slots: [const { Slot::new() }; REGIONS_MAX], taken: AtomicU32::new(0) }
    }

    /// Takes a slot for memory that is to be looked at; [`Self::open`] follows, or [`Self::free`].
    /// `None` if all are taken.
    pub(crate) fn claim(&self, tracked: Tracked) -> Option<usize> {
        let is_free = |slot: &Slot| slot.state.load(SeqCst) == FREE;
        let index = self.slots.iter().position(is_free)?;
        let slot = &self.slots[index];
        slot.start.store(tracked.extent.start, Release);
        slot.len.store(tracked.extent.len, Release);
        slot.first_page.store(tracked.first_page, Release);
        slot.is_watched.store(false, SeqCst);
        self.taken.fetch_add(1, SeqCst);
        slot.state.store(CLAIMED, SeqCst);
        Some(index)
    }

    /// The memory of a slot may be revoked; `false` if it was unmapped since it was claimed.
    pub(crate) fn open(&self, index: usize) -> bool {
        let state = &self.slots[index].state;
        state.compare_exchange(CLAIMED, OPEN, SeqCst, SeqCst).is_ok()
    }

    /// Nobody needs the slot any more; waits for threads inside.
    pub(crate) fn free(&self, index: usize) {
        let slot = &self.slots[index];
        slot.close_and_wait();
        if slot.state.swap(FREE, SeqCst) != FREE {
            self.taken.fetch_sub(1, SeqCst);
        }
    }

    /// In a child, of which nothing is tracked and nobody is inside.
    pub(crate) fn forget_all(&self) {
        for slot in &self.slots {
            slot.state.store(FREE, SeqCst);
            slot.is_watched.store(false, SeqCst);
            slot.inside.store(0, SeqCst);
        }
        self.taken.store(0, SeqCst);
    }

    /// Gets inside a slot that is not open yet: whoever closes it waits.
    pub(crate) fn hold(&self, index: usize) -> Inside<'_> {
        let slot = &self.slots[index];
        slot.inside.fetch_add(1, SeqCst);
        let first_page = slot.first_page.load(Acquire);
        Inside { slot, tracked: Tracked { extent: slot.extent(), first_page } }
    }

    /// Gets inside a slot; `None` if its memory may not be revoked.
    pub(crate) fn enter(&self, index: usize) -> Option<Inside<'_>> {
        let inside = (index < REGIONS_MAX).then(|| self.hold(index))?;
        // After having been counted, so that whoever closes it waits, or this sees it closed.
        (inside.slot.state.load(SeqCst) == OPEN).then_some(inside)
    }

    /// Gets inside the slot that has `address`.
    pub(crate) fn enter_at(&self, address: u64) -> Option<(usize, Inside<'_>)> {
        let has = |slot: &Slot| slot.state.load(Acquire) == OPEN && slot.extent().has(address);
        let index = self.slots.iter().position(has)?;
        // It may be another's by now.
        let inside = self.enter(index).filter(|inside| inside.tracked.extent.has(address))?;
        Some((index, inside))
    }

    /// Whether the slot's memory was unmapped.
    pub(crate) fn is_closed(&self, index: usize) -> bool {
        self.slots.get(index).is_none_or(|slot| slot.state.load(SeqCst) == CLOSED)
    }

    /// What is in a slot, open or not.
    pub(crate) fn extent(&self, index: usize) -> Extent {
        self.slots.get(index).map_or(Extent::default(), Slot::extent)
    }

    /// A slot's memory was registered.
    pub(crate) fn set_watched(&self, index: usize) {
        self.slots[index].is_watched.store(true, SeqCst);
    }

    /// The memory of a slot, if it is registered: whoever gets it unregisters it, and nobody else does.
    pub(crate) fn take_watched(&self, index: usize) -> Option<Extent> {
        let slot = self.slots.get(index)?;
        slot.is_watched.swap(false, SeqCst).then(|| slot.extent())
    }

    /// That of all that may be revoked.
    pub(crate) fn take_all_watched(&self) -> impl Iterator<Item = Extent> {
        let is_open = |index: &usize| self.slots[*index].state.load(SeqCst) == OPEN;
        (0..REGIONS_MAX).filter(is_open).filter_map(|index| self.take_watched(index))
    }

    /// `range` is about to be unmapped or mapped over: closes the slots it touches, and waits for those
    /// inside.
    pub(crate) fn about_to_unmap(&self, range: Extent) {
        for index in self.touched_by(range) {
            self.slots[index].close_and_wait();
        }
    }

    /// Closes the slots that `range` touches, waits for those inside, and has what is registered of them
    /// unregistered.
    pub(crate) fn close(&self, range: Extent, unregister: impl Fn(Extent)) {
        for index in self.touched_by(range) {
            self.slots[index].close_and_wait();
            if let Some(extent) = self.take_watched(index) {
                unregister(extent);
            }
        }
    }

    fn touched_by(&self, range: Extent) -> impl Iterator<Item = usize> {
        let is_touched = move |index: &usize| {
            let slot = &self.slots[*index];
            slot.state.load(SeqCst) != FREE && slot.extent().overlaps(range)
        };
        let some = if self.taken.load(SeqCst) == 0 { 0 } else { REGIONS_MAX };
        (0..some).filter(is_touched)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    fn tracked(start: u64, len: u64) -> Tracked {
        Tracked { extent: Extent::new(start, len), first_page: 1024 }
    }

    #[test]
    fn a_child_waits_for_nobody() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        assert!(slots.open(index));
        // Whoever is inside is a thread of the parent.
        std::mem::forget(slots.enter(index));
        slots.set_watched(index);
        slots.forget_all();
        slots.about_to_unmap(Extent::new(0x1000, 0x1000));
        slots.free(index);
        assert_eq!((slots.taken.load(SeqCst), slots.take_watched(index)), (0, None));
        assert_eq!(slots.claim(tracked(0x1000, 0x3000)), Some(0));
    }

    #[test]
    fn from_claimed_to_free() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        assert!(slots.enter(index).is_none() && slots.enter_at(0x1000).is_none());
        assert!(slots.open(index));
        assert_eq!(slots.enter(index).unwrap().tracked, tracked(0x1000, 0x3000));
        assert_eq!(slots.enter_at(0x3fff).unwrap().0, index);
        assert!(slots.enter_at(0x4000).is_none());
        assert_eq!(slots.take_all_watched().count(), 0, "nothing is registered");
        slots.set_watched(index);
        assert_eq!(slots.take_all_watched().collect::<Vec<_>>(), [Extent::new(0x1000, 0x3000)]);
        assert_eq!(slots.take_watched(index), None, "once");
        slots.free(index);
        assert!(slots.enter(index).is_none() && !slots.is_closed(index));
        slots.free(index);
        assert_eq!(slots.taken.load(SeqCst), 0);
    }

    #[test]
    fn what_is_unmapped_cannot_be_entered() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        let beside = slots.claim(tracked(0x4000, 0x1000)).unwrap();
        assert!(slots.open(index) && slots.open(beside));
        slots.about_to_unmap(Extent::new(0x3000, 0x1000));
        assert!(slots.is_closed(index) && slots.enter(index).is_none());
        assert!(slots.enter(beside).is_some());
        // Between being claimed and being opened too.
        slots.free(index);
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        slots.about_to_unmap(Extent::new(0, u64::MAX));
        assert!(!slots.open(index));
    }

    #[test]
    fn there_are_so_many() {
        let slots = Slots::new();
        for _ in 0..REGIONS_MAX {
            assert!(slots.claim(tracked(0x1000, 0x1000)).is_some());
        }
        assert_eq!(slots.claim(tracked(0x1000, 0x1000)), None);
        assert!(slots.enter(REGIONS_MAX).is_none());
    }

    #[test]
    fn unmapping_waits_for_who_is_inside() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x1000)).unwrap();
        assert!(slots.open(index));
        let has_left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let inside = slots.enter(index).unwrap();
            let unmapping = scope.spawn(|| {
                slots.about_to_unmap(Extent::new(0x1000, 1));
                has_left.load(SeqCst)
            });
            while !slots.is_closed(index) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(5));
            has_left.store(true, SeqCst);
            drop(inside);
            assert!(unmapping.join().unwrap());
        });
    }
}
