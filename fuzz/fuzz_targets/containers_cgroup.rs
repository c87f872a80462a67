//! The texts of a cgroup's files and of the configuration's patterns, and notes that the owner of a
//! cgroup can forge.
#![no_main]

use ballast_containers::{
    CgroupPattern, Note, cgroup2_mount, parse_amount, parse_memory_stat, parse_stalled,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    for why in [parse_amount(text).err(), parse_memory_stat(text).err(), parse_stalled(text).err()]
        .into_iter()
        .flatten()
    {
        assert!(why.len() < 1024 && !why.contains(char::is_control), "{why:?}");
    }
    let _ = Note::parse(text);
    if let Ok(text) = std::str::from_utf8(text) {
        let _ = (text.parse::<CgroupPattern>(), cgroup2_mount(text));
    }
});
