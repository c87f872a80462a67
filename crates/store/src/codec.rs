//! Encodes rows as JSON compressed with Zstandard.
//!
//! Idea: JSON of a tick is mostly names and repeated values, which Zstandard removes cheaply. Any
//! tool can decode it (`zstd -d`). Cost: `benches/journal.rs`; figures in
//! `docs/decisions/0005-journal.md`. Limits: [`BODY_BYTES_MAX`] of JSON per row, so a damaged row
//! cannot exhaust memory.

use std::io::{self, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest JSON of a row, in bytes: enough for a hundred thousand guests.
pub(crate) const BODY_BYTES_MAX: usize = 128 << 20;

/// Level 1 compresses these rows best among the cheap levels: 118 KB to 10.5 KB, against 10.8 KB at
/// level 2, 10.9 KB at level 3 and 13.9 KB at level −1.
const LEVEL: i32 = 1;

/// Encodes rows; reuses its buffers.
pub(crate) struct Encoder {
    compressor: zstd::bulk::Compressor<'static>,
    json: Vec<u8>,
    body: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> io::Result<Encoder> {
        let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
        // Four bytes per row, to tell disk damage from a bug of the reader.
        compressor.include_checksum(true)?;
        Ok(Encoder { compressor, json: Vec::new(), body: Vec::new() })
    }

    /// The encoded `record`, valid until the next call.
    pub(crate) fn encode(&mut self, record: &impl Serialize) -> io::Result<&[u8]> {
        self.json.clear();
        serde_json::to_writer(&mut self.json, record)?;
        self.compress()
    }

    /// The compressed `bytes`, valid until the next call.
    pub(crate) fn encode_bytes(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        self.json.clear();
        self.json.extend_from_slice(bytes);
        self.compress()
    }

    fn compress(&mut self) -> io::Result<&[u8]> {
        if self.json.len() > BODY_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the row has {} bytes: expected at most {BODY_BYTES_MAX}",
                self.json.len()
            )));
        }
        self.body.clear();
        self.body.reserve(zstd::zstd_safe::compress_bound(self.json.len()));
        self.compressor.compress_to_buffer(&self.json, &mut self.body)?;
        Ok(&self.body)
    }
}

/// Decodes `body`; the error says what is wrong with it.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(&decode_bytes(body)?).map_err(|e| format!("its JSON does not fit: {e}"))
}

/// The bytes that were compressed to `body`; the error says what is wrong with it.
pub(crate) fn decode_bytes(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut json = Vec::new();
    zstd::stream::read::Decoder::with_buffer(body)
        .and_then(|decoder| decoder.take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut json))
        .map_err(|e| format!("cannot decompress it: {e}"))?;
    if json.len() > BODY_BYTES_MAX {
        return Err(format!("it is longer than {BODY_BYTES_MAX} bytes"));
    }
    Ok(json)
}
