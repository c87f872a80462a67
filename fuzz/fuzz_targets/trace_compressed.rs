//! Traces that may be compressed: any bytes, however the stream gives them, read the same or fail.
#![no_main]

use ballast_trace::Format;
use ballast_trace::fuzz::{input, reading_is_the_same};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((mut options, piece_bytes, stream)) = input(bytes) {
        // Bytes that are one reference each eight show best what was decompressed.
        options.column = None;
        options.format = Some(Format::U64);
        reading_is_the_same(&options, stream, piece_bytes);
    }
});
