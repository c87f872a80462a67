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
