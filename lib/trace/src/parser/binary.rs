//! Records of a fixed size with a little-endian u64 in each: plain numbers, and libCacheSim's.
//!
//! Cost: whole records are read where they are; only a divided one is copied together in a buffer.
//! Source: libCacheSim, `oracleGeneral`: `struct { uint32_t clock_time; uint64_t obj_id; uint32_t
//! obj_size; int64_t next_access_vtime; }`, packed.
//! Limits: any 8 or 24 bytes are a valid record, so only a last record cut short can be bad.

use super::{BLOCK_REFERENCES, Tolerance};
use crate::{Fault, Position};

const RECORD_BYTES_MAX: usize = 24;

pub(super) struct Records {
    /// Bytes of a record, and the offset of the reference in it.
    size: usize,
    at: usize,
    /// The bytes received so far of an incomplete record.
    part: [u8; RECORD_BYTES_MAX],
    part_len: usize,
    whole: u64,
}

impl Records {
    pub(super) fn u64() -> Records {
        Records::new(8, 0)
    }

    pub(super) fn oracle_general() -> Records {
        Records::new(24, 4)
    }

    fn new(size: usize, at: usize) -> Records {
        Records { size, at, part: [0; RECORD_BYTES_MAX], part_len: 0, whole: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u64>) -> usize {
        let before = out.len();
        let mut taken = 0;
        if self.part_len > 0 && before < BLOCK_REFERENCES {
            taken = bytes.len().min(self.size - self.part_len);
            self.keep(&bytes[..taken]);
            if self.part_len == self.size {
                out.push(value(&self.part[self.at..]));
                self.part_len = 0;
            }
        }
        let room = BLOCK_REFERENCES.saturating_sub(out.len());
        let rest = &bytes[taken..];
        let whole = &rest[..rest.len().min(room.saturating_mul(self.size)) / self.size * self.size];
        // The sizes are constants in each arm, so that the compiler makes this a copy instead of a
        // loop.
        match self.size {
            8 => out.extend(whole.as_chunks::<8>().0.iter().map(|it| u64::from_le_bytes(*it))),
            _ => out.extend(whole.as_chunks::<24>().0.iter().map(|it| value(&it[4..]))),
        }
        taken += whole.len();
        if out.len() < BLOCK_REFERENCES && taken < bytes.len() {
            self.keep(&bytes[taken..]);
            taken = bytes.len();
        }
        self.whole += (out.len() - before) as u64;
        taken
    }

    pub(super) fn finish(&mut self, tolerance: &mut Tolerance) -> Result<(), Fault> {
        match std::mem::take(&mut self.part_len) {
            0 => Ok(()),
            left => tolerance.bad(|| Fault::BadRecord {
                position: Position::Record(self.whole + 1),
                found: format!("{left} bytes at the end"),
                expected: format!("a record of {} bytes", self.size),
            }),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.part[self.part_len..][..bytes.len()].copy_from_slice(bytes);
        self.part_len += bytes.len();
    }
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("a record has eight bytes from there"))
}
