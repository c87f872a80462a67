//! Lackey's output: any bytes, in any pieces, give the same references and the same fault.
#![no_main]

use ballast_trace::Format;
use ballast_trace::fuzz::{input, pieces_do_not_show};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((options, piece_bytes, trace)) = input(bytes) {
        pieces_do_not_show(Format::Lackey, &options, trace, piece_bytes);
    }
});
