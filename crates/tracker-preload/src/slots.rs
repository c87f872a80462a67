//! Which memory may be revoked now.
//!
//! `MADV_DONTNEED` on an address that the hypervisor has unmapped and reused would destroy data. So
//! each tracked region has a slot. A thread enters the slot while it revokes; before the hypervisor
//! unmaps or maps over memory (see [`crate::unmap`]), the slot is closed, and the hypervisor waits
//! for the threads inside. A thread stays inside for one batch at most. Entering never blocks, so
//! the thread that answers faults may enter too.
//!
//! The hypervisor's thread may have any priority, and a thread inside may be stopped for good. So
//! the wait sleeps, which leaves the processor to the thread inside, and ends after [`WAIT_MAX`].
//! Then the caller must keep the addresses from being reused, and the session ends
//! ([`Slots::is_late`]).
//!
//! Each slot also records whether the tracker has registered its memory. Before Linux 6.17,
//! unregistering removes the registration of *any* userfaultfd of the process, and the hypervisor
//! uses its own for snapshots and post-copy migration. So only memory registered by the tracker is
//! unregistered, once.
//!
//! Cost: two atomic additions per batch; a system call by the last thread to leave, if somebody
//! waits. Source: futex(2).
//! Limits: system calls that bypass the C library are not seen; QEMU makes no such calls for
//! memory.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use ballast_tracker_proto::REGIONS_MAX;
use rustix::event::Timespec;
use rustix::thread::futex;

use crate::kernel::Extent;

/// Empty.
const FREE: u32 = 0;
/// Being set up: its memory may not be revoked yet.
const CLAIMED: u32 = 1;
/// Its memory may be revoked.
const OPEN: u32 = 2;
/// Its memory is unmapped, or about to be.
const CLOSED: u32 = 3;
/// Free once no thread is inside.
const DRAINING: u32 = 4;

/// Longest wait of the hypervisor for threads inside; less than a second with what follows it.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(900);

/// The slots of this process.
pub(crate) static SLOTS: Slots = Slots::new();

/// A slot for each region.
pub(crate) struct Slots {
    slots: [Slot; REGIONS_MAX],
    /// Slots that are not free. While it is 0, unmapping needs no further checks.
    taken: AtomicU32,
    /// Whether the hypervisor has waited in vain.
    is_late: AtomicBool,
}

struct Slot {
    state: AtomicU32,
    is_watched: AtomicBool,
    /// Threads inside; a futex.
    inside: AtomicU32,
    /// Threads that sleep until nobody is inside.
    waiting: AtomicU32,
    start: AtomicU64,
    len: AtomicU64,
    first_page: AtomicU64,
}

/// The memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackedMemory {
    pub(crate) extent: Extent,
    /// The number of the first page.
    pub(crate) first_page: u64,
}

/// A thread's presence inside a slot. While it lives, the slot's addresses are the region's or
/// unused.
pub(crate) struct SlotGuard<'a> {
    slot: &'a Slot,
}

impl SlotGuard<'_> {
    /// The slot's memory, which does not change while this lives.
    pub(crate) fn tracked(&self) -> TrackedMemory {
        let first_page = self.slot.first_page.load(Acquire);
        TrackedMemory { extent: self.slot.extent(), first_page }
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        // Either the waiting thread sees that no thread is inside, or this thread sees that one
        // waits.
        if self.slot.inside.fetch_sub(1, SeqCst) == 1 && self.slot.waiting.load(SeqCst) > 0 {
            // Fails for invalid addresses only.
            let _ = futex::wake(&self.slot.inside, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            state: AtomicU32::new(FREE),
            is_watched: AtomicBool::new(false),
            inside: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            start: AtomicU64::new(0),
            len: AtomicU64::new(0),
            first_page: AtomicU64::new(0),
        }
    }

    fn extent(&self) -> Extent {
        Extent::new(self.start.load(Acquire), self.len.load(Acquire))
    }

    /// Lets no further thread in until the slot is claimed for another region.
    fn close(&self) {
        let close = |state| self.state.compare_exchange(state, CLOSED, SeqCst, SeqCst);
        let _ = close(OPEN).or_else(|_| close(CLAIMED));
    }

    /// Waits until no thread is inside, or until `end`; returns whether there is none.
    fn wait_until_empty(&self, end: Instant) -> bool {
        self.waiting.fetch_add(1, SeqCst);
        let is_empty = loop {
            let inside = self.inside.load(SeqCst);
            let left = end.saturating_duration_since(Instant::now());
            if inside == 0 || left.is_zero() {
                break inside == 0;
            }
            let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            // Whatever ends the sleep, `inside` is read again.
            let _ = futex::wait(&self.inside, futex::Flags::PRIVATE, inside, Some(&left));
        };
        self.waiting.fetch_sub(1, SeqCst);
        is_empty
    }
}

impl Slots {
    const fn new() -> Slots {
        Slots {
            slots: [const { Slot::new() }; REGIONS_MAX],
            taken: AtomicU32::new(0),
            is_late: AtomicBool::new(false),
        }
    }

    /// Claims a slot for memory that is to be checked; call [`Self::open`] or [`Self::free`] next.
    /// `None` if all slots are taken.
    pub(crate) fn claim(&self, tracked: TrackedMemory) -> Option<usize> {
        let is_free = |slot: &Slot| match slot.state.load(SeqCst) {
            FREE => true,
            DRAINING => slot.inside.load(SeqCst) == 0,
            _ => false,
        };
        let index = self.slots.iter().position(is_free)?;
        let slot = &self.slots[index];
        if slot.state.load(SeqCst) == FREE {
            self.taken.fetch_add(1, SeqCst);
        }
        slot.start.store(tracked.extent.start, Release);
        slot.len.store(tracked.extent.len, Release);
        slot.first_page.store(tracked.first_page, Release);
        slot.is_watched.store(false, SeqCst);
        slot.state.store(CLAIMED, SeqCst);
        Some(index)
    }

    /// Allows revoking a slot's memory; `false` if it was unmapped since the slot was claimed.
    pub(crate) fn open(&self, index: usize) -> bool {
        let state = &self.slots[index].state;
        state.compare_exchange(CLAIMED, OPEN, SeqCst, SeqCst).is_ok()
    }

    /// Frees a slot, at once or as soon as no thread is inside.
    pub(crate) fn free(&self, index: usize) {
        let slot = &self.slots[index];
        slot.close();
        if slot.state.load(SeqCst) == FREE {
            return;
        }
        if slot.inside.load(SeqCst) > 0 {
            slot.state.store(DRAINING, SeqCst);
        } else {
            slot.state.store(FREE, SeqCst);
            self.taken.fetch_sub(1, SeqCst);
        }
    }

    /// Resets all slots, in a child process.
    pub(crate) fn reset(&self) {
        for slot in &self.slots {
            slot.state.store(FREE, SeqCst);
            slot.is_watched.store(false, SeqCst);
            slot.inside.store(0, SeqCst);
            slot.waiting.store(0, SeqCst);
        }
        self.taken.store(0, SeqCst);
        self.is_late.store(false, SeqCst);
    }

    /// Enters a slot that is not open yet, so that closing it waits.
    pub(crate) fn hold(&self, index: usize) -> SlotGuard<'_> {
        let slot = &self.slots[index];
        slot.inside.fetch_add(1, SeqCst);
        SlotGuard { slot }
    }

    /// Enters a slot; `None` if its memory may not be revoked.
    pub(crate) fn enter(&self, index: usize) -> Option<SlotGuard<'_>> {
        let inside = (index < REGIONS_MAX).then(|| self.hold(index))?;
        // Checked after entering: either closing waits for this thread, or this thread sees it
        // closed. An open slot with a thread inside is never claimed for other memory.
        (inside.slot.state.load(SeqCst) == OPEN).then_some(inside)
    }

    /// Enters the slot that contains `address`.
    pub(crate) fn enter_at(&self, address: u64) -> Option<(usize, SlotGuard<'_>)> {
        let has = |slot: &Slot| slot.state.load(Acquire) == OPEN && slot.extent().has(address);
        let index = self.slots.iter().position(has)?;
        // The slot may have been reused since.
        let inside = self.enter(index).filter(|inside| inside.tracked().extent.has(address))?;
        Some((index, inside))
    }

    /// Whether the slot's memory was unmapped.
    pub(crate) fn is_closed(&self, index: usize) -> bool {
        self.slots.get(index).is_none_or(|slot| slot.state.load(SeqCst) == CLOSED)
    }

    /// The memory of a slot, open or not.
    pub(crate) fn extent(&self, index: usize) -> Extent {
        self.slots.get(index).map_or(Extent::default(), Slot::extent)
    }

    /// Records that a slot's memory is registered; the caller is inside. Not if the hypervisor has
    /// stopped waiting: it may have registered the memory itself since. Closing the tracker's
    /// userfaultfd then unregisters only what the tracker registered.
    pub(crate) fn set_watched(&self, index: usize) {
        self.slots[index].is_watched.store(true, SeqCst);
        if self.is_late() {
            self.slots[index].is_watched.store(false, SeqCst);
        }
    }

    /// The memory of a slot, if it is registered. The caller must unregister it; later calls return
    /// `None`.
    pub(crate) fn take_watched(&self, index: usize) -> Option<Extent> {
        let slot = self.slots.get(index)?;
        slot.is_watched.swap(false, SeqCst).then(|| slot.extent())
    }

    /// [`Self::take_watched`] for all open slots.
    pub(crate) fn take_all_watched(&self) -> impl Iterator<Item = Extent> {
        let is_open = |index: &usize| self.slots[*index].state.load(SeqCst) == OPEN;
        (0..REGIONS_MAX).filter(is_open).filter_map(|index| self.take_watched(index))
    }

    /// Closes the slots that overlap `ranges`, which are about to be unmapped or mapped over, and
    /// waits for threads inside, for [`WAIT_MAX`] in all. If it returns `false`, a thread is still
    /// inside, and the addresses must not get other private contents.
    pub(crate) fn about_to_unmap(&self, ranges: &[Extent]) -> bool {
        let mut end = None;
        let mut is_empty = true;
        for index in ranges.iter().flat_map(|range| self.overlapping(*range)) {
            is_empty &= self.close_and_wait(index, *end.get_or_insert_with(|| self.wait_end()));
        }
        is_empty
    }

    /// Closes the slots that overlap `range`, waits for threads inside for [`WAIT_MAX`], and calls
    /// `unregister` for their memory if it is registered, or may be because a thread is still
    /// inside.
    pub(crate) fn close(&self, range: Extent, unregister: impl Fn(Extent)) {
        let mut end = None;
        for index in self.overlapping(range) {
            let end = *end.get_or_insert_with(|| self.wait_end());
            let is_empty = self.close_and_wait(index, end);
            let watched = self.take_watched(index);
            if let Some(extent) = watched.or_else(|| (!is_empty).then(|| self.extent(index))) {
                unregister(extent);
            }
        }
    }

    fn close_and_wait(&self, index: usize, end: Instant) -> bool {
        let slot = &self.slots[index];
        slot.close();
        let is_empty = slot.wait_until_empty(end);
        if !is_empty {
            self.is_late.store(true, SeqCst);
        }
        is_empty
    }

    /// The end of a wait that begins now. After one wait in vain there are no further waits.
    fn wait_end(&self) -> Instant {
        let wait = if self.is_late() { Duration::ZERO } else { WAIT_MAX };
        Instant::now() + wait
    }

    /// Whether the hypervisor has waited in vain for a thread inside a slot.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(SeqCst)
    }

    /// Lets the hypervisor wait again; no thread is inside a slot.
    pub(crate) fn forget_lateness(&self) {
        self.is_late.store(false, SeqCst);
    }

    fn overlapping(&self, range: Extent) -> impl Iterator<Item = usize> {
        let overlaps = move |index: &usize| {
            let slot = &self.slots[*index];
            slot.state.load(SeqCst) != FREE && slot.extent().overlaps(range)
        };
        let count = if self.taken.load(SeqCst) == 0 { 0 } else { REGIONS_MAX };
        (0..count).filter(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    fn tracked(start: u64, len: u64) -> TrackedMemory {
        TrackedMemory { extent: Extent::new(start, len), first_page: 1024 }
    }

    #[test]
    fn reset_slots_make_nobody_wait() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        assert!(slots.open(index));
        // A thread of the parent stays inside.
        std::mem::forget(slots.enter(index));
        slots.set_watched(index);
        slots.reset();
        assert!(slots.about_to_unmap(&[Extent::new(0x1000, 0x1000)]));
        slots.free(index);
        assert_eq!((slots.taken.load(SeqCst), slots.take_watched(index)), (0, None));
        assert_eq!(slots.claim(tracked(0x1000, 0x3000)), Some(0));
    }

    #[test]
    fn slots_go_from_claimed_to_open_to_free() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        assert!(slots.enter(index).is_none() && slots.enter_at(0x1000).is_none());
        assert!(slots.open(index));
        assert_eq!(slots.enter(index).unwrap().tracked(), tracked(0x1000, 0x3000));
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
    fn slots_of_unmapped_memory_cannot_be_entered() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        let beside = slots.claim(tracked(0x4000, 0x1000)).unwrap();
        assert!(slots.open(index) && slots.open(beside));
        assert!(slots.about_to_unmap(&[Extent::new(0x3000, 0x1000)]));
        assert!(slots.is_closed(index) && slots.enter(index).is_none());
        assert!(slots.enter(beside).is_some());
        // Also between claiming and opening.
        slots.free(index);
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        assert!(slots.about_to_unmap(&[Extent::new(0, u64::MAX)]));
        assert!(!slots.open(index));
    }

    #[test]
    fn a_slot_with_a_thread_inside_is_not_reused() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x3000)).unwrap();
        assert!(slots.open(index));
        let inside = slots.enter(index).unwrap();
        slots.free(index);
        assert_eq!(inside.tracked(), tracked(0x1000, 0x3000));
        assert!(slots.enter(index).is_none());
        assert_eq!(slots.claim(tracked(0x5000, 0x1000)), Some(index + 1));
        assert_eq!(
            slots.overlapping(Extent::new(0x1000, 1)).count(),
            1,
            "its memory is waited for"
        );
        drop(inside);
        assert_eq!(slots.claim(tracked(0x6000, 0x1000)), Some(index));
        slots.free(index);
        slots.free(index + 1);
        slots.free(index);
        assert_eq!(slots.taken.load(SeqCst), 0);
    }

    #[test]
    fn the_number_of_slots_is_bounded() {
        let slots = Slots::new();
        for _ in 0..REGIONS_MAX {
            assert!(slots.claim(tracked(0x1000, 0x1000)).is_some());
        }
        assert_eq!(slots.claim(tracked(0x1000, 0x1000)), None);
        assert!(slots.enter(REGIONS_MAX).is_none());
    }

    #[test]
    fn unmapping_waits_for_threads_inside() {
        let slots = Slots::new();
        let index = slots.claim(tracked(0x1000, 0x1000)).unwrap();
        assert!(slots.open(index));
        let has_left = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let inside = slots.enter(index).unwrap();
            let unmapping = scope.spawn(|| {
                assert!(slots.about_to_unmap(&[Extent::new(0x1000, 1)]));
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
