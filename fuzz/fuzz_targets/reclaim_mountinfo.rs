//! Mounts of cgroups: any bytes are rejected or give absolute paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(mounts) = ballast_reclaim::parse_mountinfo(text) {
        let lines = text.split(|&byte| byte == b'\n').count();
        assert!(mounts.len() <= lines && mounts.iter().all(|mount| mount.point.has_root()));
    }
});
