//! A rival: a mark at each page's latest reference, counted by a Fenwick tree.
//!
//! Idea: each reference has a slot. A page's latest slot is marked, and its distance is the number
//! of marks from there on. When the slots run out, the marked ones are renumbered, and the window
//! doubles if more than a quarter of it is marked.
//!
//! Source: Bennett and Kruskal 1975; the tree is Fenwick's, 1994. Cost: three walks of O(log n) for
//! each reference; 4 bytes for each page number and 8 for each slot; there are at least four slots
//! for each page.

use super::rival::Distances;

/// The first number of slots.
const SLOTS_MIN: usize = 1 << 12;

/// No slot, no page.
const NONE: u32 = u32::MAX;

/// Marks on a window of slots.
pub(super) struct Fenwick {
    /// By page number: its latest slot.
    last: Vec<u32>,
    /// By slot: its page.
    pages: Vec<u32>,
    /// From 1: the number of marks in the slots that end here; how many slots that covers is given
    /// by the lowest bit of the index.
    sums: Vec<u32>,
    now: usize,
    live: u32,
}

impl Fenwick {
    /// Without marks; for page numbers below `numbers`.
    pub(super) fn new(numbers: u64) -> Self {
        Self {
            last: vec![NONE; numbers as usize],
            pages: vec![NONE; SLOTS_MIN],
            sums: vec![0; SLOTS_MIN + 1],
            now: 0,
            live: 0,
        }
    }

    /// Renumbers the marked slots from 0.
    fn renumber(&mut self) {
        let old = std::mem::take(&mut self.pages);
        let slots = if self.live as usize > old.len() / 4 { old.len() * 2 } else { old.len() };
        self.pages = vec![NONE; slots];
        self.now = 0;
        for (slot, &page) in old.iter().enumerate() {
            if self.last[page as usize] == slot as u32 {
                self.last[page as usize] = self.now as u32;
                self.pages[self.now] = page;
                self.now += 1;
            }
        }
        // Every slot adds itself to the next longer range that ends at or after it: O(n) in all.
        self.sums = vec![0; slots + 1];
        self.sums[1..=self.now].fill(1);
        for at in 1..slots {
            let above = at + (at & at.wrapping_neg());
            if above <= slots {
                self.sums[above] += self.sums[at];
            }
        }
    }
}

impl Distances for Fenwick {
    #[inline]
    fn touch(&mut self, page: u64) -> u32 {
        if self.now == self.pages.len() {
            self.renumber();
        }
        let slot = self.last[page as usize];
        self.last[page as usize] = self.now as u32;
        self.pages[self.now] = page as u32;
        self.now += 1;
        let sums = self.sums.as_mut_slice();
        let mut distance = 0;
        if slot == NONE {
            self.live += 1;
        } else {
            // Counts the marks up to and including the slot, then removes its own.
            let (mut at, mut older) = (slot as usize, 0);
            while at > 0 {
                older += sums[at];
                at &= at - 1;
            }
            distance = self.live - older;
            at = slot as usize + 1;
            while at < sums.len() {
                sums[at] -= 1;
                at += at & at.wrapping_neg();
            }
        }
        let mut at = self.now;
        while at < sums.len() {
            sums[at] += 1;
            at += at & at.wrapping_neg();
        }
        distance
    }

    fn pages(&self) -> u64 {
        self.live.into()
    }

    fn memory_bytes(&self) -> u64 {
        (4 * (self.last.capacity() + self.pages.capacity() + self.sums.capacity())) as u64
    }
}
