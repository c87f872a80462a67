//! A hypervisor's `maps` and `smaps` as the tracker reads them: any text gives files of guest
//! memory that it contains, each once and no longer than its mappings, and a sum of referenced
//! memory that adds up.
#![no_main]

use std::collections::BTreeSet;

use ballast_tracker::{memory_files, parse_referenced};
use ballast_tracker_proto::Mapping;

const PATHS: [&str; 2] = ["/dev/shm/ram", "/dev/hugepages"];

libfuzzer_sys::fuzz_target!(|text: &str| {
    let files = memory_files(text, &PATHS);
    let mappings: Vec<_> = text.lines().filter_map(Mapping::parse).collect();
    let places: BTreeSet<_> = files.iter().map(|file| (file.device, file.inode)).collect();
    assert_eq!(places.len(), files.len(), "a file twice");
    assert!(files.is_sorted());
    for file in &files {
        let is_of =
            |mapping: &&Mapping<'_>| (mapping.device, mapping.inode) == (file.device, file.inode);
        assert!(mappings.iter().filter(is_of).any(|mapping| !mapping.path.is_empty()), "{file:?}");
        let lengths = mappings.iter().filter(is_of).map(|mapping| mapping.len);
        assert!(file.len <= lengths.fold(0, u64::saturating_add), "{file:?}");
    }
    // Without paths, only the files that QEMU itself names remain.
    assert!(memory_files(text, &[]).len() <= files.len());

    let once = parse_referenced(text, &PATHS);
    assert_eq!(once % 1024, if once == u64::MAX { 1023 } else { 0 });
    let twice = parse_referenced(&format!("{text}\n{text}"), &PATHS);
    // The first lines of the second copy may belong to the last mapping of the first.
    assert!(twice >= once.saturating_mul(2), "{twice} of twice {once}");
});
