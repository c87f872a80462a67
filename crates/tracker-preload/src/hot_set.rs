//! The hot set: granules that keep their permission, first in first out.
//!
//! With a hot set, a touched granule keeps its permission until a number of other granules were
//! touched after it; then it is revoked and its next touch is seen again (MEB §3.4). The daemon
//! sets the number. The queue is an array of the largest size, so nothing here allocates.
//!
//! Cost: O(1) per trap. Memory: 8 bytes per granule that ever was in the queue, at most 8 MiB.
//! Limits: counts granules; MEB counts pages, which is the same with one page per granule.

/// Most granules in a hot set: 4 GiB of single pages.
pub(crate) const HOT_MAX: usize = 1 << 20;

/// A granule of the hot set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HotGranule {
    /// The granule's slot: below 2^8.
    pub(crate) slot: usize,
    /// The granule's first page, counted from the start of the slot: below 2^52.
    pub(crate) first: u64,
}

/// The hot set, as a ring buffer.
pub(crate) struct HotQueue {
    /// Packed granules: the slot in the top byte.
    queue: Box<[u64]>,
    head: usize,
    len: usize,
}

impl HotQueue {
    pub(crate) fn new(granules_max: usize) -> HotQueue {
        // The system allocates zeroed pages only when they are written.
        HotQueue { queue: vec![0; granules_max.max(1)].into_boxed_slice(), head: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a granule; `false` if there is no room.
    pub(crate) fn push(&mut self, hot: HotGranule) -> bool {
        if self.len == self.queue.len() {
            return false;
        }
        let place = (self.head + self.len) % self.queue.len();
        self.queue[place] = (hot.slot as u64) << 56 | hot.first;
        self.len += 1;
        true
    }

    /// Removes the oldest granule, if there are more than `granules`.
    pub(crate) fn pop_above(&mut self, granules: usize) -> Option<HotGranule> {
        if self.len <= granules {
            return None;
        }
        let packed = self.queue[self.head];
        self.head = (self.head + 1) % self.queue.len();
        self.len -= 1;
        Some(HotGranule { slot: (packed >> 56) as usize, first: packed & ((1 << 56) - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(first: u64) -> HotGranule {
        HotGranule { slot: 63, first }
    }

    #[test]
    fn granules_leave_in_order_of_entry() {
        let mut set = HotQueue::new(4);
        for first in 0..100 {
            assert!(set.push(hot(first)));
            let left = set.pop_above(3);
            assert_eq!(left, first.checked_sub(3).map(hot));
        }
        assert_eq!((set.len(), set.pop_above(0)), (3, Some(hot(97))));
        set.clear();
        assert_eq!(set.pop_above(0), None);
    }

    #[test]
    fn a_full_queue_refuses_granules() {
        let mut set = HotQueue::new(2);
        let last = HotGranule { slot: 1, first: (1 << 52) - 1 };
        assert!(set.push(hot(1)) && set.push(last) && !set.push(hot(3)));
        assert_eq!(set.pop_above(1), Some(hot(1)));
        assert_eq!(set.pop_above(0), Some(last));
    }
}
