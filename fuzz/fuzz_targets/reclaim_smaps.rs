//! Totals over smaps: any bytes parse or are rejected, and doubling the text doubles the totals.
#![no_main]

use ballast_model::Bytes;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(once) = ballast_reclaim::parse_smaps(text) else { return };
    let twice = ballast_reclaim::parse_smaps(&[text, b"\n", text].concat()).unwrap();
    let double = |bytes: Bytes| bytes.saturating_add(bytes);
    assert_eq!((twice.resident, twice.swapped), (double(once.resident), double(once.swapped)));
});
