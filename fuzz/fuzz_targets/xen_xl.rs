//! The output of `xl list` and `xl info`, and `/proc` of dom0.
#![no_main]

use ballast_xen::{parse_dom0_stats, parse_kib, parse_xl_info, parse_xl_list};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = parse_xl_info(data);
    let _ = parse_xl_list(data);
    let _ = parse_dom0_stats(data, data);
    let _ = parse_kib(data);
});
