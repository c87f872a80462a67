//! Sampled tags in LRU order, with their positions; tags can be removed.
//!
//! Idea: each tag's latest reference has a slot; slots are used in order, and a bit says which are
//! in use. A tag's position is the number of bits at and after its slot, counted by words of 64
//! bits with a Fenwick tree over their counts. When the slots run out, tags move in order to the
//! first ones; if more than half of the slots are in use, their number doubles.
//!
//! Cost: O(log n) for each reference. Memory: 30 to 70 bytes for each tag.
//! Source: Bennett and Kruskal 1975 (bits over time), Olken 1981 (counts over them); Fenwick 1994.

use hashbrown::HashMap;

/// The first number of slots; it doubles whenever more than half of them are in use.
const SLOTS_MIN: usize = 1024;

/// Tags in order of their latest reference.
#[derive(Clone, Debug)]
pub(crate) struct RankWindow {
    slots: HashMap<u64, u32>,
    /// By slot: its tag.
    tags: Vec<u64>,
    in_use: Vec<u64>,
    /// A Fenwick tree over the number of bits in each word of `in_use`.
    sums: Vec<u32>,
    next: usize,
}

impl RankWindow {
    pub(crate) fn new() -> Self {
        Self {
            slots: HashMap::new(),
            tags: vec![0; SLOTS_MIN],
            in_use: vec![0; SLOTS_MIN / 64],
            sums: vec![0; SLOTS_MIN / 64 + 1],
            next: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// References `tag`; returns its previous position, from 1, or `None` if it is new.
    pub(crate) fn reference(&mut self, tag: u64) -> Option<u32> {
        if self.next == self.tags.len() {
            self.move_up();
        }
        let slot = self.next;
        let position = match self.slots.insert(tag, slot as u32) {
            None => None,
            Some(before) => {
                let position = self.slots.len() as u32 - self.in_use_before(before as usize);
                self.clear(before as usize);
                Some(position)
            }
        };
        self.tags[slot] = tag;
        self.set(slot);
        self.next += 1;
        position
    }

    /// Removes `tag`.
    pub(crate) fn remove(&mut self, tag: u64) {
        if let Some(slot) = self.slots.remove(&tag) {
            self.clear(slot as usize);
        }
    }

    /// The tags, most recently referenced first.
    pub(crate) fn order(&self) -> Vec<u64> {
        let mut order: Vec<u64> = self.in_order().collect();
        order.reverse();
        order
    }

    /// The memory that it occupies on the heap, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let words = (self.tags.capacity() + self.in_use.capacity()) * size_of::<u64>();
        (words + self.sums.capacity() * size_of::<u32>() + self.slots.allocation_size()) as u64
    }

    fn in_order(&self) -> impl Iterator<Item = u64> + '_ {
        let is_used = |slot: &usize| self.in_use[slot / 64] >> (slot % 64) & 1 == 1;
        (0..self.next).filter(is_used).map(|slot| self.tags[slot])
    }

    fn move_up(&mut self) {
        let order: Vec<u64> = self.in_order().collect();
        let mut slots = self.tags.len();
        if order.len() * 2 > slots {
            slots *= 2;
            self.tags.resize(slots, 0);
        }
        self.in_use = vec![0; slots / 64];
        self.sums = vec![0; slots / 64 + 1];
        self.next = order.len();
        for (slot, tag) in order.into_iter().enumerate() {
            self.tags[slot] = tag;
            self.slots.insert(tag, slot as u32);
            self.set(slot);
        }
    }

    fn set(&mut self, slot: usize) {
        self.in_use[slot / 64] |= 1 << (slot % 64);
        self.change(slot / 64, 1);
    }

    fn clear(&mut self, slot: usize) {
        self.in_use[slot / 64] &= !(1 << (slot % 64));
        self.change(slot / 64, u32::MAX);
    }

    fn change(&mut self, word: usize, by: u32) {
        let mut at = word + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    fn in_use_before(&self, slot: usize) -> u32 {
        let mut count = (self.in_use[slot / 64] & ((1 << (slot % 64)) - 1)).count_ones();
        let mut at = slot / 64;
        while at > 0 {
            count += self.sums[at];
            at &= at - 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_those_in_a_list(
            steps in prop::collection::vec((0..900_u64, prop::bool::weighted(0.1)), 0..5000),
        ) {
            let (mut window, mut list) = (RankWindow::new(), Vec::new());
            for (tag, is_removed) in steps {
                let at = list.iter().position(|&other| other == tag);
                at.map(|at| list.remove(at));
                if is_removed {
                    window.remove(tag);
                } else {
                    prop_assert_eq!(window.reference(tag), at.map(|at| at as u32 + 1));
                    list.insert(0, tag);
                }
                prop_assert_eq!(window.len(), list.len());
            }
            prop_assert_eq!(&window.order(), &list);
        }
    }
}
