//! Traces in binary: any bytes, in any pieces, give the same references and the same fault.
#![no_main]

use ballast_trace::Format;
use ballast_trace::fuzz::{input, pieces_do_not_show};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((mut options, piece_bytes, trace)) = input(bytes) {
        options.column = None;
        for format in [Format::U64, Format::OracleGeneral] {
            pieces_do_not_show(format, &options, trace, piece_bytes);
        }
    }
});
