//! The generations of a cgroup's pages, as debugfs's `lru_gen` lists them.
#![no_main]

use std::path::Path;

use ballast_reclaim::parse_generations;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let found = parse_generations(text, Path::new("/vm"));
    if let Err(why) = &found {
        assert!(why.starts_with("line "), "{why}");
    }
    // Lines of another cgroup do not count, whatever their text.
    let mut after = text.to_vec();
    after.extend_from_slice(b"\nmemcg 1 /other\n node 0\n rubbish\n");
    assert_eq!(parse_generations(&after, Path::new("/vm")), found);
});
