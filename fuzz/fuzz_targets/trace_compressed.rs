//! Traces that may be compressed: any bytes, in any pieces, give the same references or fail.
#![no_main]

use ballast_trace::Format;
use ballast_trace::fuzz::{input, reading_is_the_same};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((mut options, piece_bytes, stream)) = input(bytes) {
        // With one reference per eight bytes, differences in the decompressed bytes show best.
        options.column = None;
        options.format = Some(Format::U64);
        reading_is_the_same(&options, stream, piece_bytes);
    }
});
