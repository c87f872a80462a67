//! Records as the bytes of a row: JSON, compressed with Zstandard.
//!
//! Idea: a tick is some hundred bytes of JSON per guest, most of it names and repeated values, which
//! the fastest level of Zstandard takes out at little cost. Any tool can undo it (`zstd -d`).
//! Cost: `benches/journal.rs`; the figures are in `docs/decisions/0005-journal.md`.
//! Limits: [`BODY_BYTES_MAX`] of JSON per row, so that a damaged row cannot fill memory.

use std::io::{self, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of JSON in a row: a hundred thousand guests.
pub(crate) const BODY_BYTES_MAX: usize = 128 << 20;

/// On rows like these level 1 is also the smallest of the cheap ones: 10.5 KB of 118 KB, against 10.8
/// at level 2, 10.9 at level 3 and 13.9 at level −1.
const LEVEL: i32 = 1;

/// Writes records into bytes; keeps its buffers.
pub(crate) struct Encoder {
    compressor: zstd::bulk::Compressor<'static>,
    json: Vec<u8>,
    body: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> io::Result<Encoder> {
        let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
        // Four bytes a row tell damage on the disk from a fault in a reader.
        compressor.include_checksum(true)?;
        Ok(Encoder { compressor, json: Vec::new(), body: Vec::new() })
    }

    /// The bytes of `record`, valid until the next call.
    pub(crate) fn encode(&mut self, record: &impl Serialize) -> io::Result<&[u8]> {
        self.json.clear();
        serde_json::to_writer(&mut self.json, record)?;
        if self.json.len() > BODY_BYTES_MAX {
            return Err(io::Error::other(format!(
                "a record of {} bytes: expected at most {BODY_BYTES_MAX}",
                self.json.len()
            )));
        }
        self.body.clear();
        self.body.reserve(zstd::zstd_safe::compress_bound(self.json.len()));
        self.compressor.compress_to_buffer(&self.json, &mut self.body)?;
        Ok(&self.body)
    }
}

/// The record in `body`; the error says what is wrong with it.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let mut json = Vec::new();
    zstd::stream::read::Decoder::with_buffer(body)
        .and_then(|decoder| decoder.take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut json))
        .map_err(|e| format!("its compression does not undo: {e}"))?;
    if json.len() > BODY_BYTES_MAX {
        return Err(format!("longer than {BODY_BYTES_MAX} bytes"));
    }
    serde_json::from_slice(&json).map_err(|e| format!("its JSON is not a record known here: {e}"))
}
