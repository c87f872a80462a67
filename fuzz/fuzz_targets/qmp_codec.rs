//! The QMP decoder: any bytes, in any pieces, within bounded memory and without a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ballast_qmp::codec::fuzz_decode(bytes);
});
