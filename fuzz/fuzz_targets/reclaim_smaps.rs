//! What a process's mappings add up to: any bytes are refused, or read, and twice the text is twice the sum.
#![no_main]

use ballast_model::Bytes;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(once) = ballast_reclaim::parse_totals(text) else { return };
    let twice = ballast_reclaim::parse_totals(&[text, b"\n", text].concat()).unwrap();
    let double = |bytes: Bytes| bytes.saturating_add(bytes);
    assert_eq!((twice.resident, twice.swapped), (double(once.resident), double(once.swapped)));
});
