//! Mappings of a process: any bytes are rejected or parse, and parsed mappings survive a round
//! trip.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(maps) = ballast_reclaim::parse_maps(text) else { return };
    let mut again = Vec::new();
    for it in &maps {
        assert!(!it.range.is_empty());
        let write = if it.is_writable { 'w' } else { '-' };
        let shared = if it.is_shared { 's' } else { 'p' };
        let (start, end, (major, minor)) = (it.range.start(), it.range.end(), it.device);
        let line = format!(
            "{start:x}-{end:x} r{write}x{shared} {:x} {major:x}:{minor:x} {} ",
            it.offset, it.inode
        );
        again.extend_from_slice(line.as_bytes());
        again.extend_from_slice(it.path);
        again.push(b'\n');
    }
    assert_eq!(ballast_reclaim::parse_maps(&again), Ok(maps));
});
