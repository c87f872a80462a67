//! The groups of a process: any bytes are refused, or give paths that begin at a root.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(groups) = ballast_reclaim::parse_own_groups(text) {
        assert!([groups.memory, groups.unified].iter().flatten().all(|path| path.has_root()));
    }
});
