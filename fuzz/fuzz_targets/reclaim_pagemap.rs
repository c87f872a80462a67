//! A process's `pagemap`: any bytes give one entry per whole word, and the runs of pages are
//! exactly the pages that match.
#![no_main]

use ballast_model::PAGE_SIZE;
use ballast_reclaim::{PagemapEntry, parse_pagemap, runs};

/// Address of the first page.
const START: u64 = 0x7f00_0000_0000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let entries: Vec<PagemapEntry> = parse_pagemap(bytes).collect();
    assert_eq!(entries.len(), bytes.len() / 8);
    for matches in [PagemapEntry::is_present, PagemapEntry::is_swapped] {
        let found: Vec<_> = runs(START, &entries, matches).collect();
        for two in found.windows(2) {
            assert!(two[0].end() < two[1].start(), "{two:?} could be one");
        }
        let mut pages =
            found.iter().flat_map(|run| (run.start()..run.end()).step_by(PAGE_SIZE as usize));
        for (place, entry) in entries.iter().enumerate() {
            if matches(entry) {
                assert_eq!(pages.next(), Some(START + place as u64 * PAGE_SIZE));
            }
        }
        assert_eq!(pages.next(), None);
    }
});
