//! Slots over time, and how many of those below a given one are in use.
//!
//! Idea: every reference takes the next slot, and a bit says whether a slot is still the latest one
//! of its tag. The rank of a slot, which is the number of such bits below it, is a sum of five
//! numbers: the bits below it in its own word, and for each of four levels the count of bits before
//! its unit within the unit above.
//!
//! | level | entry | counts the bits | entries a line | a line covers |
//! |---|---|---|---|---|
//! | word | 64-bit map | | | 64 slots |
//! | 1 | `u16` a word | before the word in the line | 32 | 2^11 slots |
//! | 2 | `u16` a line of level 1 | before it in the line | 32 | 2^16 |
//! | 3 | `u32` a line of level 2 | before it in the line | 16 | 2^20 |
//! | 4 | `u32` a line of level 3 | before it, in all | 16 | 2^24, then on to the next |
//!
//! A line is one cache line, so clearing a bit means, for each level, adding one constant line (0
//! up to the entry, −1 after it), which vectors do at once. Taking a slot only sets its bit:
//! entries to the right of the newest slot are undefined until the newest slot reaches them
//! ([`Slots::enter`]).
//!
//! Cost: 1/8 + 1/32 + 1/1024 + … bytes for each slot. Limits: 2^32 − 64 slots. Beyond 2^24 slots a
//! cleared bit touches one line of level 4 for every 2^24 slots after it.

use std::ops::Range;

/// Log2 of the number of slots in a 64-bit word.
pub(super) const WORD_SHIFT: u32 = 6;
/// Log2 of the number of slots in a line of level 1.
pub(super) const LINE1_SHIFT: u32 = 11;
/// Log2 of the number of slots in a line of level 2.
pub(super) const LINE2_SHIFT: u32 = 16;
/// Log2 of the number of slots in a line of level 3.
pub(super) const LINE3_SHIFT: u32 = 20;
/// Log2 of the number of slots in a line of level 4.
pub(super) const LINE4_SHIFT: u32 = 24;

/// The least number of slots, in 3 KiB: 3,840 live tags make the window grow. With fewer tags than
/// that the slots are renumbered once in 12,000 references, which costs very little.
pub(super) const CAPACITY_MIN: usize = 1 << 14;
/// The greatest number of slots: the last word of the 32-bit range is left out, so that `capacity`
/// fits into 32 bits.
pub(super) const CAPACITY_MAX: usize = (1 << 32) - 64;

/// A cache line of 32 small counts.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line16(pub(super) [u16; 32]);

/// A cache line of 16 counts.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line32(pub(super) [u32; 16]);

/// Row `n` is 0 before entry `n` and −1 from there on. The table begins with an unused row of −1;
/// otherwise the compiler would know that entry 0 is always 0, and shift its vectors off the line
/// by one.
static AFTER16: [Line16; 33] = {
    let mut rows = [Line16([0; 32]); 33];
    let mut n = 0;
    while n < 33 {
        let mut entry = n;
        while entry < 32 {
            rows[n].0[entry] = u16::MAX;
            entry += 1;
        }
        n += 1;
    }
    rows
};

/// The same for lines of 16.
static AFTER32: [Line32; 17] = {
    let mut rows = [Line32([0; 16]); 17];
    let mut n = 0;
    while n < 17 {
        let mut entry = n;
        while entry < 16 {
            rows[n].0[entry] = u32::MAX;
            entry += 1;
        }
        n += 1;
    }
    rows
};

// Counts are changed in a copy; otherwise the compiler, which does not know that the rows are
// elsewhere in memory, would not use vectors.
impl Line16 {
    /// Subtracts 1 from every entry after `entry` (modulo 32).
    #[inline(always)]
    pub(super) fn take_one_after(&mut self, entry: usize) {
        let after = &AFTER16[(entry & 31) + 1];
        let mut counts = self.0;
        for (count, after) in counts.iter_mut().zip(&after.0) {
            *count = count.wrapping_add(*after);
        }
        self.0 = counts;
    }

    /// Subtracts `many` from every entry after `entry` (modulo 32).
    #[inline(always)]
    pub(super) fn take_after(&mut self, entry: usize, many: u32) {
        let after = &AFTER16[(entry & 31) + 1];
        let mut counts = self.0;
        for (count, after) in counts.iter_mut().zip(&after.0) {
            *count = count.wrapping_sub(*after & many as u16);
        }
        self.0 = counts;
    }
}

impl Line32 {
    /// Subtracts 1 from every entry after `entry` (modulo 16).
    #[inline(always)]
    pub(super) fn take_one_after(&mut self, entry: usize) {
        let after = &AFTER32[(entry & 15) + 1];
        let mut counts = self.0;
        for (count, after) in counts.iter_mut().zip(&after.0) {
            *count = count.wrapping_add(*after);
        }
        self.0 = counts;
    }

    /// Subtracts `many` from every entry after `entry` (modulo 16).
    #[inline(always)]
    pub(super) fn take_after(&mut self, entry: usize, many: u32) {
        let after = &AFTER32[(entry & 15) + 1];
        let mut counts = self.0;
        for (count, after) in counts.iter_mut().zip(&after.0) {
            *count = count.wrapping_sub(*after & many);
        }
        self.0 = counts;
    }

    /// Subtracts `many` from every entry.
    #[inline(always)]
    pub(super) fn take_all(&mut self, many: u32) {
        self.0 = self.0.map(|count| count.wrapping_sub(many));
    }
}

/// The slots and their counts. Every array has the length that `capacity` needs.
#[derive(Clone, Debug)]
pub(super) struct Window {
    capacity: usize,
    words: Vec<u64>,
    level1: Vec<Line16>,
    level2: Vec<Line16>,
    level3: Vec<Line32>,
    level4: Vec<Line32>,
}

impl Window {
    /// A window of `capacity` slots (a multiple of 64), with the slots in `taken` in use.
    pub(super) fn new(capacity: usize, taken: Range<usize>) -> Self {
        assert!(capacity.is_multiple_of(64) && capacity <= CAPACITY_MAX);
        let lines = |shift: u32| capacity.div_ceil(1 << shift);
        let mut window = Self {
            capacity,
            words: vec![0; capacity >> WORD_SHIFT],
            level1: vec![Line16([0; 32]); lines(LINE1_SHIFT)],
            level2: vec![Line16([0; 32]); lines(LINE2_SHIFT)],
            level3: vec![Line32([0; 16]); lines(LINE3_SHIFT)],
            level4: vec![Line32([0; 16]); lines(LINE4_SHIFT)],
        };
        window.fill(taken);
        window
    }

    /// The number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Starts again with the slots in `taken` in use.
    pub(super) fn restart(&mut self, taken: Range<usize>) {
        self.words.fill(0);
        self.fill(taken);
    }

    fn fill(&mut self, taken: Range<usize>) {
        assert!(taken.end <= self.capacity && taken.start <= taken.end);
        let mut slots = self.slots();
        for start in (0..taken.end).step_by(1 << WORD_SHIFT) {
            let below = start.saturating_sub(taken.start);
            slots.enter(start, below as u32);
            // The bits of the word from `from` up to `rest` are in use.
            let from = taken.start.saturating_sub(start);
            let rest = taken.end - start;
            let after = if rest < 64 { u64::MAX << rest } else { 0 };
            let before = if from < 64 { !(u64::MAX << from) } else { u64::MAX };
            slots.words[start >> WORD_SHIFT] = !before & !after;
        }
    }

    /// The number of bits that are set below `slot`, which must be in use.
    #[inline(always)]
    pub(super) fn rank(&self, slot: usize) -> u32 {
        let own = self.words[slot >> WORD_SHIFT] & ((1 << (slot & 63)) - 1);
        own.count_ones()
            + u32::from(self.level1[slot >> LINE1_SHIFT].0[(slot >> WORD_SHIFT) & 31])
            + u32::from(self.level2[slot >> LINE2_SHIFT].0[(slot >> LINE1_SHIFT) & 31])
            + self.level3[slot >> LINE3_SHIFT].0[(slot >> LINE2_SHIFT) & 15]
            + self.level4[slot >> LINE4_SHIFT].0[(slot >> LINE3_SHIFT) & 15]
    }

    /// The arrays.
    pub(super) fn slots(&mut self) -> Slots<'_> {
        Slots {
            words: &mut self.words,
            level1: &mut self.level1,
            level2: &mut self.level2,
            level3: &mut self.level3,
            level4: &mut self.level4,
        }
    }

    /// The memory of the arrays, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let lines = [&self.level1, &self.level2].map(Vec::capacity).iter().sum::<usize>()
            + [&self.level3, &self.level4].map(Vec::capacity).iter().sum::<usize>();
        (self.words.capacity() * 8 + lines * 64) as u64
    }
}

/// The arrays of a [`Window`], each with the length that its capacity needs. They are borrowed
/// separately, so that a loop keeps their addresses in registers.
pub(super) struct Slots<'a> {
    pub(super) words: &'a mut [u64],
    pub(super) level1: &'a mut [Line16],
    pub(super) level2: &'a mut [Line16],
    pub(super) level3: &'a mut [Line32],
    pub(super) level4: &'a mut [Line32],
}

impl Slots<'_> {
    /// Sets the entries of the word that begins with `slot` when the newest slot reaches it;
    /// `below` bits are set below it.
    #[inline(always)]
    pub(super) fn enter(&mut self, slot: usize, below: u32) {
        let begins = |shift: u32| slot.trailing_zeros() >= shift || slot == 0;
        let entry4 = &mut self.level4[slot >> LINE4_SHIFT].0[(slot >> LINE3_SHIFT) & 15];
        if begins(LINE3_SHIFT) {
            *entry4 = below;
        }
        let before = *entry4;
        let entry3 = &mut self.level3[slot >> LINE3_SHIFT].0[(slot >> LINE2_SHIFT) & 15];
        if begins(LINE2_SHIFT) {
            *entry3 = below - before;
        }
        let before = before + *entry3;
        let entry2 = &mut self.level2[slot >> LINE2_SHIFT].0[(slot >> LINE1_SHIFT) & 31];
        if begins(LINE1_SHIFT) {
            *entry2 = (below - before) as u16;
        }
        let before = before + u32::from(*entry2);
        let entry1 = &mut self.level1[slot >> LINE1_SHIFT].0[(slot >> WORD_SHIFT) & 31];
        *entry1 = (below - before) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_window_just_made_are_the_slots_before() {
        for (capacity, taken) in [
            (4096, 0..0),
            (4096, 65..65),
            (4096, 65..66),
            (4096, 65..128),
            (4096, 65..129),
            (4096, 1..4096),
            (8192, 65..8191),
        ] {
            let window = Window::new(capacity, taken.clone());
            for (slot, rank) in taken.clone().zip(0..) {
                assert_eq!(window.rank(slot), rank, "{slot} of {taken:?}");
            }
            let set = window.words.iter().map(|word| word.count_ones()).sum::<u32>();
            assert_eq!(set as usize, taken.len());
        }
        let window = Window::new(1 << 25, 65..(1 << 24) + 70_000);
        for slot in (65..(1 << 24) + 70_000).step_by(997) {
            assert_eq!(window.rank(slot), slot as u32 - 65);
        }
    }

    #[test]
    fn a_line_loses_only_what_comes_after() {
        for entry in 0..32 {
            let mut line = Line16([7; 32]);
            line.take_one_after(entry);
            line.take_after(entry, 3);
            for (at, &count) in line.0.iter().enumerate() {
                assert_eq!(count, if at > entry { 3 } else { 7 });
            }
        }
        for entry in 0..16 {
            let mut line = Line32([7; 16]);
            line.take_one_after(entry);
            line.take_after(entry, 3);
            line.take_all(2);
            for (at, &count) in line.0.iter().enumerate() {
                assert_eq!(count, if at > entry { 1 } else { 5 });
            }
        }
    }

    #[test]
    fn restarting_forgets() {
        let mut window = Window::new(4096, 1..4000);
        window.restart(65..165);
        assert_eq!(window.rank(164), 99);
        assert_eq!(window.words.iter().map(|word| word.count_ones()).sum::<u32>(), 100);
    }
}
