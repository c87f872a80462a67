//! What a lab guest sends: any bytes, in any pieces, within bounded memory and without a panic.
#![no_main]

use ballast_lab_guest::line::{LineReader, decode};
use ballast_lab_guest::protocol::FromGuest;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut reader = LineReader::default();
    for piece in bytes.chunks(7) {
        reader.push(piece);
        while let Some(line) = reader.next_line() {
            if let Ok(line) = line {
                let _ = decode::<FromGuest>(&line);
            }
        }
    }
});
