//! Which blocks leave when memory is short.
//!
//! Idea: the inactive lists are scanned from their old ends. A block referenced since it was last
//! looked at goes round once more, and at the second time becomes active; one that was not leaves.
//! Source: Linux 6.1, `shrink_inactive_list`, `folio_check_references`, `get_scan_count`.
//! Cost: amortised O(1) an eviction; each block is looked at three times at most.

use super::{Memory, Place, REFERENCED, SEEN, SLOT};
use crate::lru::List;

/// Pages written to swap with one request (`SWAP_CLUSTER_MAX`).
const SWAP_OUT_CLUSTER: u64 = 32;

impl Memory {
    /// Evicts until `until` is free or nothing can be evicted. Returns the time it takes.
    pub(super) fn reclaim(&mut self, until: u64) -> u64 {
        let mut written = 0;
        while self.free() < until {
            match self.evict() {
                Some(true) => written += self.pages,
                Some(false) => {}
                None => break,
            }
        }
        self.counters.swap_out_pages += written;
        match self.swap {
            Some(swap) => self.wait(swap.ns(written.div_ceil(SWAP_OUT_CLUSTER), written)),
            None => 0,
        }
    }

    /// Evicts one block; says whether it had to be written. `None`: there is none.
    fn evict(&mut self) -> Option<bool> {
        let anon = self.lru.len(List::ActiveAnon) + self.lru.len(List::InactiveAnon);
        let file = self.lru.len(List::ActiveFile) + self.lru.len(List::InactiveFile);
        let swappable = self.slots < self.slots_most;
        let of_anon = match (anon > 0 && swappable, file > 0) {
            (false, false) => return None,
            (anon_only, false) => anon_only,
            (false, true) => false,
            (true, true) => self.is_turn_of_anon(anon, file),
        };
        let (active, inactive) = match of_anon {
            true => (List::ActiveAnon, List::InactiveAnon),
            false => (List::ActiveFile, List::InactiveFile),
        };
        // Each block is looked at three times at most before it can be evicted.
        for _ in 0..3 * (anon + file) + 3 {
            self.deactivate(active, inactive);
            let at = self.lru.pop_oldest(inactive)?;
            self.counters.scanned_pages += self.pages;
            let block = &mut self.blocks[at as usize];
            if block.flags & REFERENCED != 0 {
                let again = block.flags & SEEN != 0;
                block.flags = (block.flags & !REFERENCED) ^ SEEN;
                let list = if again { active } else { inactive };
                block.place = Place::On(list);
                self.lru.push(list, at);
                continue;
            }
            return Some(self.evict_block(at));
        }
        None
    }

    fn evict_block(&mut self, at: u32) -> bool {
        self.left(at);
        self.counters.reclaimed_pages += self.pages;
        self.evictions = self.evictions.wrapping_add(1);
        let file = self.regions[usize::from(self.blocks[at as usize].region)].file;
        let block = &mut self.blocks[at as usize];
        block.place = Place::Out;
        block.evicted_at = self.evictions;
        let in_swap = block.flags & SLOT != 0;
        block.flags = if file { 0 } else { SLOT };
        if !file && !in_swap {
            self.slots += 1;
        }
        !file && !in_swap
    }

    /// Makes active blocks inactive while they outnumber the inactive ones too far.
    fn deactivate(&mut self, active: List, inactive: List) {
        let gib = self.allocation >> 30;
        let ratio = (10 * gib).isqrt().max(1);
        while self.lru.len(inactive) * ratio < self.lru.len(active) {
            let Some(at) = self.lru.pop_oldest(active) else { return };
            self.blocks[at as usize].flags &= !(REFERENCED | SEEN);
            self.blocks[at as usize].place = Place::On(inactive);
            self.lru.push(inactive, at);
        }
        if self.lru.len(inactive) == 0
            && let Some(at) = self.lru.pop_oldest(active)
        {
            self.blocks[at as usize].flags &= !(REFERENCED | SEEN);
            self.blocks[at as usize].place = Place::On(inactive);
            self.lru.push(inactive, at);
        }
    }

    /// Anonymous memory and page cache take turns in proportion to their sizes times `swappiness`
    /// and what it lacks to 200.
    fn is_turn_of_anon(&mut self, anon: u64, file: u64) -> bool {
        let swappiness = u64::from(self.kernel.swappiness);
        let of_anon = anon * swappiness;
        let all = of_anon + file * 200u64.saturating_sub(swappiness);
        self.turn += of_anon;
        let turn = self.turn >= all && of_anon > 0;
        if turn {
            self.turn = (self.turn - all).min(all);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ballast_model::{Bytes, PAGE_SIZE};

    use super::*;
    use crate::memory::OutOfMemory;
    use crate::{Disk, GuestSpec, Kernel, Pattern, Swap};

    const PAGE: Bytes = Bytes::new(PAGE_SIZE);

    /// A guest with room for `room` pages and no watermarks, one region of 8 anonymous pages and one
    /// of 8 pages of a file, and swap for 4.
    fn memory(room: u64) -> Memory {
        let size = PAGE.fraction(8, 1);
        let kernel = Kernel {
            uncounted: Bytes::ZERO,
            unreclaimable: Bytes::ZERO,
            watermark_low: Bytes::ZERO,
            watermark_high: Bytes::ZERO,
            ..Kernel::default()
        };
        let spec = GuestSpec {
            kernel,
            swap: Some(Swap::new(PAGE.fraction(4, 1), Disk::SSD)),
            ..GuestSpec::new("g".parse().unwrap(), Bytes::gib(1))
        }
        .with(Duration::ZERO, Pattern::Constant { size })
        .with(Duration::ZERO, Pattern::FileRandom { size });
        let mut memory = Memory::new(&spec, PAGE, PAGE.fraction(room, 1), None);
        memory.resize(0, size);
        memory.resize(1, size);
        memory
    }

    /// Touches blocks of a region; which of them waited.
    fn touch(memory: &mut Memory, region: usize, blocks: &[u32]) -> Vec<u32> {
        let mut waited = Vec::new();
        for &at in blocks {
            let before = memory.counters.major_faults;
            memory.touch(region, at, region == 0, false).unwrap();
            if memory.counters.major_faults > before {
                waited.push(at);
            }
        }
        waited
    }

    /// By hand, room for three: 0, 1 and 2 are touched first, 3 needs room. All three have been
    /// referenced, so each goes round once; then 0 is the oldest, and leaves. Coming back it puts 1
    /// out, not 3, which was never looked at.
    #[test]
    fn the_oldest_that_was_not_touched_again_leaves() {
        let mut memory = memory(3);
        assert_eq!(touch(&mut memory, 0, &[0, 1, 2, 3]), []);
        assert_eq!(memory.swap_used(), PAGE);
        assert_eq!(memory.counters.swap_out_pages, 1);
        assert_eq!(touch(&mut memory, 0, &[1, 2, 3]), []);
        assert_eq!(touch(&mut memory, 0, &[0]), [0]);
        assert_eq!(memory.counters.swap_in_pages, 1);
    }

    /// A page of a file costs a read and no write, and is known again when it comes back.
    #[test]
    fn pages_of_files_are_dropped_and_refaulted() {
        let mut memory = memory(2);
        assert_eq!(touch(&mut memory, 1, &[0, 1, 2]), [0, 1, 2]);
        assert_eq!(memory.counters.refaulted_file_pages, 0);
        assert_eq!(touch(&mut memory, 1, &[0]), [0]);
        assert_eq!(memory.counters.refaulted_file_pages, 1);
        assert_eq!(memory.counters.swap_out_pages, 0);
    }

    /// What was written to swap and not changed since needs no second writing.
    #[test]
    fn a_clean_page_is_written_once() {
        let mut memory = memory(1);
        touch(&mut memory, 0, &[0, 1]);
        assert_eq!(memory.counters.swap_out_pages, 1);
        memory.touch(0, 0, false, false).unwrap(); // read back, 1 goes out
        assert_eq!(memory.counters.swap_out_pages, 2);
        touch(&mut memory, 0, &[1]); // 0 is still in swap as it was
        assert_eq!(memory.counters.swap_out_pages, 2);
        memory.touch(0, 0, true, false).unwrap(); // 1 was changed, and goes out once more
        assert_eq!(memory.counters.swap_out_pages, 3);
    }

    #[test]
    fn with_swap_full_nothing_is_left_to_evict() {
        let mut memory = memory(2);
        touch(&mut memory, 0, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(memory.swap_used(), PAGE.fraction(4, 1));
        assert_eq!(memory.touch(0, 6, true, false), Err(OutOfMemory));
        // What is given back makes room in memory and in swap.
        memory.resize(0, PAGE.fraction(3, 1));
        assert!(memory.swap_used() <= PAGE.fraction(3, 1));
        assert_eq!(memory.swap_used().get() + memory.used().get(), 3 * PAGE_SIZE);
    }

    /// A balloon gets what can be reclaimed, and no more.
    #[test]
    fn a_balloon_takes_by_swapping() {
        let mut memory = memory(6);
        touch(&mut memory, 0, &[0, 1, 2, 3, 4, 5]);
        let (given, waited) = memory.inflate(3 * PAGE_SIZE);
        assert_eq!((given, memory.swap_used()), (3 * PAGE_SIZE, PAGE.fraction(3, 1)));
        assert!(waited > 0);
        assert_eq!(memory.inflate(3 * PAGE_SIZE).0, PAGE_SIZE);
        assert_eq!(memory.allocation(), PAGE.fraction(2, 1));
    }
}
