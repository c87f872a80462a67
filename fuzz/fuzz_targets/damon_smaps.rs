//! Huge pages of guest memory in smaps: any text gives a ratio.
#![no_main]

use ballast_damon::HugeShare;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let text = String::from_utf8_lossy(text);
    let regions = [0x1000..0x9000, 0xa000..u64::MAX];
    for count in 0..=regions.len() {
        assert!((0.0..=1.0).contains(&HugeShare::of(&text, &regions[..count]).ratio()));
    }
});
