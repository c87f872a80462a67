//! The cgroups of a process: any bytes are rejected or give absolute paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(groups) = ballast_reclaim::parse_proc_cgroup(text) {
        assert!([groups.memory, groups.unified].iter().flatten().all(|path| path.has_root()));
    }
});
