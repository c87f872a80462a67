//! The choice of blocks to evict.
//!
//! Idea: the inactive lists are scanned from their tails. A block referenced since its last scan
//! returns to the head, and becomes active at the second scan; an unreferenced block is evicted.
//! Source: Linux 6.1, `shrink_inactive_list`, `folio_check_references`, `get_scan_count`.
//! Cost: amortised O(1) per eviction; each block is scanned at most three times.

use super::{BlockLocation, Memory, REFERENCED, REFERENCED_ONCE, SLOT};
use crate::lru::List;
use crate::scenario::Swap;

impl Memory {
    /// Evicts until `until` is free or nothing can be evicted. Returns the time taken.
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
            Some(swap) => self.wait(swap.ns(written.div_ceil(Swap::WRITE_PAGES), written)),
            None => 0,
        }
    }

    /// Evicts one block and returns whether it was written; `None` if no block can be evicted.
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
        // Each block is scanned at most three times before it can be evicted.
        for _ in 0..3 * (anon + file) + 3 {
            self.deactivate(active, inactive);
            let at = self.lru.pop_oldest(inactive)?;
            self.counters.scanned_pages += self.pages;
            let block = &mut self.blocks[at as usize];
            if block.flags & REFERENCED != 0 {
                let again = block.flags & REFERENCED_ONCE != 0;
                block.flags = (block.flags & !REFERENCED) ^ REFERENCED_ONCE;
                let list = if again { active } else { inactive };
                block.location = BlockLocation::On(list);
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
        block.location = BlockLocation::Out;
        block.evicted_at = self.evictions;
        let in_swap = block.flags & SLOT != 0;
        block.flags = if file { 0 } else { SLOT };
        if !file && !in_swap {
            self.slots += 1;
        }
        !file && !in_swap
    }

    /// Deactivates blocks while they outnumber the inactive ones too far.
    fn deactivate(&mut self, active: List, inactive: List) {
        let gib = self.allocation >> 30;
        let ratio = (10 * gib).isqrt().max(1);
        while self.lru.len(inactive) * ratio < self.lru.len(active) {
            let Some(at) = self.lru.pop_oldest(active) else { return };
            self.blocks[at as usize].flags &= !(REFERENCED | REFERENCED_ONCE);
            self.blocks[at as usize].location = BlockLocation::On(inactive);
            self.lru.push(inactive, at);
        }
        if self.lru.len(inactive) == 0
            && let Some(at) = self.lru.pop_oldest(active)
        {
            self.blocks[at as usize].flags &= !(REFERENCED | REFERENCED_ONCE);
            self.blocks[at as usize].location = BlockLocation::On(inactive);
            self.lru.push(inactive, at);
        }
    }

    /// Whether to scan anonymous memory next. It and the page cache are scanned in proportion to
    /// their sizes times `swappiness` and `200 − swappiness`.
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

    /// A guest with room for `room` pages and no watermarks, one region of 8 anonymous pages and
    /// one of 8 pages of a file, and swap for 4.
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

    /// Touches blocks of a region; returns which of them waited.
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

    /// By hand, room for three: 0, 1 and 2 are touched first, 3 needs room. All three are
    /// referenced, so each goes around once; then 0 is the oldest and is evicted. When it returns,
    /// 1 is evicted, not 3, which was never scanned.
    #[test]
    fn oldest_unreferenced_block_is_evicted() {
        let mut memory = memory(3);
        assert!(touch(&mut memory, 0, &[0, 1, 2, 3]).is_empty());
        assert_eq!(memory.swap_used(), PAGE);
        assert_eq!(memory.counters.swap_out_pages, 1);
        assert!(touch(&mut memory, 0, &[1, 2, 3]).is_empty());
        assert_eq!(touch(&mut memory, 0, &[0]), [0]);
        assert_eq!(memory.counters.swap_in_pages, 1);
    }

    /// A file page costs a read and no write, and its refault is recognized.
    #[test]
    fn file_pages_are_dropped_and_refaulted() {
        let mut memory = memory(2);
        assert_eq!(touch(&mut memory, 1, &[0, 1, 2]), [0, 1, 2]);
        assert_eq!(memory.counters.refaulted_file_pages, 0);
        assert_eq!(touch(&mut memory, 1, &[0]), [0]);
        assert_eq!(memory.counters.refaulted_file_pages, 1);
        assert_eq!(memory.counters.swap_out_pages, 0);
    }

    /// A page unchanged since it was written to swap is not written again.
    #[test]
    fn clean_page_is_written_to_swap_once() {
        let mut memory = memory(1);
        touch(&mut memory, 0, &[0, 1]);
        assert_eq!(memory.counters.swap_out_pages, 1);
        memory.touch(0, 0, false, false).unwrap(); // read back, 1 is evicted
        assert_eq!(memory.counters.swap_out_pages, 2);
        touch(&mut memory, 0, &[1]); // 0 is unchanged in swap
        assert_eq!(memory.counters.swap_out_pages, 2);
        memory.touch(0, 0, true, false).unwrap(); // 1 was changed and is written again
        assert_eq!(memory.counters.swap_out_pages, 3);
    }

    #[test]
    fn full_swap_leaves_nothing_to_evict() {
        let mut memory = memory(2);
        touch(&mut memory, 0, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(memory.swap_used(), PAGE.fraction(4, 1));
        assert_eq!(memory.touch(0, 6, true, false), Err(OutOfMemory));
        // Freed blocks make room in memory and in swap.
        memory.resize(0, PAGE.fraction(3, 1));
        assert!(memory.swap_used() <= PAGE.fraction(3, 1));
        assert_eq!(memory.swap_used().get() + memory.used().get(), 3 * PAGE_SIZE);
    }

    /// A balloon gets at most what can be reclaimed.
    #[test]
    fn balloon_inflates_by_swapping() {
        let mut memory = memory(6);
        touch(&mut memory, 0, &[0, 1, 2, 3, 4, 5]);
        let (given, waited) = memory.inflate(3 * PAGE_SIZE);
        assert_eq!((given, memory.swap_used()), (3 * PAGE_SIZE, PAGE.fraction(3, 1)));
        assert!(waited > 0);
        assert_eq!(memory.inflate(3 * PAGE_SIZE).0, PAGE_SIZE);
        assert_eq!(memory.allocation(), PAGE.fraction(2, 1));
    }
}
