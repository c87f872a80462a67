//! The virtual pages that a virtual processor has touched in this interval.
//!
//! Idea: nearly every access is to a page that was recorded recently. A table of virtual pages per
//! processor, which needs no lock, detects this before the physical address is looked up. The table
//! is flushed when an interval starts and by the instructions that flush a TLB ([`flushes`]), so
//! that the record is as exact as without it. With a trace, only the page of the previous access
//! counts as recorded, because the trace omits exactly such accesses.
//!
//! Cost: O(1), some 1 ns; 512 KiB per processor. Source: Intel SDM volume 3A, 4.10.4. Limits:
//! tables for [`VCPUS`] processors; accesses of others are always looked up.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of processors with a table; lab guests have one processor.
pub(crate) const VCPUS: usize = 4;
/// Pages per table, a power of two: 256 MiB, more than most guests touch in an interval.
const ENTRIES: usize = 1 << 16;
/// Bits of a virtual page number: addresses have 57 bits, including the upper half.
const PAGE_BITS: u32 = 45;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
/// Number of generations before a table is cleared.
const GENERATIONS: u64 = 1 << (64 - PAGE_BITS);
/// No page.
const NONE: u64 = u64::MAX;

/// The table of one processor, which only its thread writes; atomics because it is in a static.
pub(crate) struct RecentPages {
    interval: AtomicU32,
    /// The virtual page of the previous access.
    latest: AtomicU64,
    /// From 1; entries of other generations are empty.
    generation: AtomicU64,
    /// Number of accesses not recorded yet.
    accesses: AtomicU64,
    /// Generation and page of each entry.
    entries: [AtomicU64; ENTRIES],
}

impl RecentPages {
    pub(crate) const fn new() -> RecentPages {
        RecentPages {
            interval: AtomicU32::new(0),
            latest: AtomicU64::new(NONE),
            generation: AtomicU64::new(1),
            accesses: AtomicU64::new(0),
            entries: [const { AtomicU64::new(0) }; ENTRIES],
        }
    }

    /// Whether an access to virtual `page` needs no record; if so, it is counted. `all`: checks the
    /// whole table, else the previous access only.
    #[inline]
    pub(crate) fn has(&self, page: u64, interval: u32, all: bool) -> bool {
        if interval != self.interval.load(Ordering::Relaxed) {
            return false;
        }
        let is_known = page == self.latest.load(Ordering::Relaxed)
            || all && self.entry(page).load(Ordering::Relaxed) == self.tag(page);
        if is_known {
            self.latest.store(page, Ordering::Relaxed);
            self.accesses.store(self.accesses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        is_known
    }

    /// Records that `page` was recorded in `interval`.
    pub(crate) fn add(&self, page: u64, interval: u32) {
        if self.interval.swap(interval, Ordering::Relaxed) != interval {
            self.flush();
        }
        self.latest.store(page, Ordering::Relaxed);
        self.entry(page).store(self.tag(page), Ordering::Relaxed);
    }

    /// Forgets all pages.
    pub(crate) fn flush(&self) {
        self.latest.store(NONE, Ordering::Relaxed);
        let next = self.generation.load(Ordering::Relaxed) + 1;
        if next < GENERATIONS {
            self.generation.store(next, Ordering::Relaxed);
            return;
        }
        self.entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
        self.generation.store(1, Ordering::Relaxed);
    }

    /// Takes the number of accesses counted since the last call.
    pub(crate) fn take_accesses(&self) -> u64 {
        self.accesses.swap(0, Ordering::Relaxed)
    }

    fn entry(&self, page: u64) -> &AtomicU64 {
        &self.entries[page as usize % ENTRIES]
    }

    fn tag(&self, page: u64) -> u64 {
        self.generation.load(Ordering::Relaxed) << PAGE_BITS | page & PAGE_MASK
    }
}

/// Whether an instruction flushes a TLB: it writes a control register (`0F 22`), or it is `INVLPG`
/// (`0F 01 /7` of memory) or `INVPCID` (`0F 38 82`).
pub(crate) fn flushes(code: &[u8]) -> bool {
    const PREFIXES: [u8; 11] = [0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3];
    let is_prefix = |byte: &u8| PREFIXES.contains(byte) || (0x40..0x50).contains(byte);
    let first = code.iter().position(|byte| !is_prefix(byte)).unwrap_or(code.len());
    match code[first..] {
        [0x0F, 0x22, ..] | [0x0F, 0x38, 0x82, ..] => true,
        [0x0F, 0x01, operand, ..] => operand >> 3 & 7 == 7 && operand >> 6 != 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::recorder::Recorder;
    use crate::recorder::tests::MemorySink;

    #[test]
    fn flushing_instructions_are_recognized() {
        for (code, expected) in [
            (&[0x0F, 0x22, 0xD8][..], true),               // mov cr3, rax
            (&[0x41, 0x0F, 0x22, 0xDC], true),             // mov cr3, r12
            (&[0x0F, 0x20, 0xD8], false),                  // mov rax, cr3
            (&[0x0F, 0x01, 0x38], true),                   // invlpg [rax]
            (&[0x0F, 0x01, 0xF8], false),                  // swapgs
            (&[0x0F, 0x01, 0x10], false),                  // lgdt [rax]
            (&[0x66, 0x0F, 0x38, 0x82, 0x04, 0x24], true), // invpcid rax, [rsp]
            (&[0x48, 0x89, 0x07], false),                  // mov [rdi], rax
            (&[0x66], false),
            (&[], false),
        ] {
            assert_eq!(flushes(code), expected, "{code:x?}");
        }
    }

    #[test]
    fn cleared_table_is_empty() {
        let known = Box::new(RecentPages::new());
        known.add(7, 0);
        for _ in 0..GENERATIONS {
            known.flush();
            assert!(!known.has(7, 0, true));
        }
        known.add(7, 0);
        assert!(
            known.has(7, 0, true) && !known.has(7, 1, true) && !known.has(7 + (1 << 16), 0, true)
        );
    }

    /// An event of a guest with one processor.
    #[derive(Clone, Debug)]
    enum Event {
        Access(u64),
        /// A virtual page is mapped to another physical page, followed by a flush.
        Map(u64, u64),
        Interval,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let page = || prop_oneof![0..6_u64, Just(1 << 16), Just((1 << 52) - 3)];
        let event = prop_oneof![
            12 => page().prop_map(Event::Access),
            1 => (page(), 0..9_u64).prop_map(|(page, to)| Event::Map(page, to)),
            1 => Just(Event::Interval),
        ];
        prop::collection::vec(event, 0..300)
    }

    proptest! {
        #[test]
        fn filtered_record_equals_the_full_record(events in events(), trace: bool) {
            let known = Box::new(RecentPages::new());
            let (mut fast, mut slow) = (MemorySink::default(), MemorySink::default());
            let mut by_table = Recorder::new(&mut fast, trace);
            let mut by_all = Recorder::new(&mut slow, trace);
            let mut map = std::collections::BTreeMap::new();
            let mut interval = 0;
            for event in events {
                match event {
                    Event::Interval => interval += 1,
                    Event::Map(page, to) => {
                        map.insert(page, to);
                        known.flush();
                    }
                    Event::Access(page) => {
                        let physical = map.get(&page).copied().unwrap_or(page % 1000);
                        by_all.access(physical, interval);
                        if !known.has(page, interval, !trace) {
                            by_table.count(known.take_accesses());
                            by_table.access(physical, interval);
                            known.add(page, interval);
                        }
                    }
                }
            }
            by_table.count(known.take_accesses());
            by_table.advance(interval + 1);
            by_all.advance(interval + 1);
            drop((by_table, by_all));
            prop_assert_eq!(fast.rows, slow.rows);
            prop_assert_eq!(fast.trace, slow.trace);
        }
    }
}
