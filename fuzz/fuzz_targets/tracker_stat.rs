//! `stat` and `status` of a hypervisor's threads, whose names the hypervisor chooses: any bytes are
//! refused or give figures, and no name changes the figures.
#![no_main]

use ballast_tracker::{parse_stat, parse_status, parse_thread_stat};

/// More processors than any kernel supports.
const PROCESSORS_MAX: usize = 1024;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = parse_status(bytes);
    if let Some((minor, major)) = parse_stat(bytes) {
        let end = bytes.iter().rposition(|&byte| byte == b')').expect("the name ends");
        let renamed = [b"1 (a) (b) S 9)", &bytes[end + 1..]].concat();
        assert_eq!(parse_stat(&renamed), Some((minor, major)));
    }
    let Ok(line) = std::str::from_utf8(bytes) else { return };
    if let Some(thread) = parse_thread_stat(line) {
        assert!(thread.cpu < PROCESSORS_MAX, "{thread:?}");
        let (_, rest) = line.rsplit_once(") ").expect("the name ends");
        let renamed = parse_thread_stat(&format!("1 (a) (b) {rest}")).expect("the same fields");
        assert_eq!((renamed.ticks, renamed.cpu), (thread.ticks, thread.cpu));
        assert_eq!(renamed.name, "a) (b");
    }
});
