//! Granules that keep their permission, first in first out.
//!
//! Idea: with a hot set, a granule that was touched keeps its permission until so many others were
//! touched after it; then it is revoked and its next touch is seen again (MEB §3.4). How many is the
//! daemon's decision. The queue is an array of the greatest size, made beforehand: nothing here
//! allocates.
//!
//! Cost: O(1) a trap. Memory: 8 bytes for each granule that ever was in it, 8 MiB at most.
//! Limits: counted in granules; MEB counts pages, which is the same at one page a granule.

/// Most granules in a hot set: 4 GiB of single pages.
pub(crate) const HOT_MAX: usize = 1 << 20;

/// A granule of the hot set: its slot, and where in it its first page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hot {
    /// Below 2^8.
    pub(crate) slot: usize,
    /// In pages, from the beginning of the slot: below 2^52.
    pub(crate) first: u64,
}

/// The queue.
pub(crate) struct HotSet {
    /// Packed: slot in the top byte.
    queue: Box<[u64]>,
    head: usize,
    len: usize,
}

impl HotSet {
    pub(crate) fn new(granules_max: usize) -> HotSet {
        // Zeroed memory, of which the system gives only what is written to.
        HotSet { queue: vec![0; granules_max.max(1)].into_boxed_slice(), head: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Enters a granule; `false` if there is no room, until others have left.
    pub(crate) fn push(&mut self, hot: Hot) -> bool {
        if self.len == self.queue.len() {
            return false;
        }
        let place = (self.head + self.len) % self.queue.len();
        self.queue[place] = (hot.slot as u64) << 56 | hot.first;
        self.len += 1;
        true
    }

    /// The granule that entered first leaves, while there are more than `granules`.
    pub(crate) fn pop_above(&mut self, granules: usize) -> Option<Hot> {
        if self.len <= granules {
            return None;
        }
        let packed = self.queue[self.head];
        self.head = (self.head + 1) % self.queue.len();
        self.len -= 1;
        Some(Hot { slot: (packed >> 56) as usize, first: packed & ((1 << 56) - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(first: u64) -> Hot {
        Hot { slot: 63, first }
    }

    #[test]
    fn first_in_first_out_round_and_round() {
        let mut set = HotSet::new(4);
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
    fn a_full_one_takes_nothing() {
        let mut set = HotSet::new(2);
        let last = Hot { slot: 1, first: (1 << 52) - 1 };
        assert!(set.push(hot(1)) && set.push(last) && !set.push(hot(3)));
        assert_eq!(set.pop_above(1), Some(hot(1)));
        assert_eq!(set.pop_above(0), Some(last));
    }
}
