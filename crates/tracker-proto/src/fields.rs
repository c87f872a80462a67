//! Little-endian fields of fixed size in a packet.
//!
//! The writer fills an array that holds the longest message; the reader reports packets that end
//! too early. Neither allocates.

use crate::wire_error::WireError;

/// Longest message, in bytes.
pub const MESSAGE_MAX: usize = 256;

/// Appends fields, one call after the other.
pub(crate) struct FieldWriter {
    bytes: [u8; MESSAGE_MAX],
    len: usize,
}

impl FieldWriter {
    pub(crate) fn new() -> FieldWriter {
        FieldWriter { bytes: [0; MESSAGE_MAX], len: 0 }
    }

    /// Drops fields that do not fit; a test encodes the longest message of each kind.
    pub(crate) fn put(mut self, bytes: &[u8]) -> FieldWriter {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        self
    }

    pub(crate) fn u8(self, value: u8) -> FieldWriter {
        self.put(&[value])
    }

    pub(crate) fn u16(self, value: u16) -> FieldWriter {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> FieldWriter {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> FieldWriter {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn finish(self) -> ([u8; MESSAGE_MAX], usize) {
        (self.bytes, self.len)
    }
}

/// Takes fields off the front.
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> FieldReader<'a> {
        FieldReader { rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(WireError::TooShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::TooShort)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::TooLong { by: self.rest.len() }) }
    }
}
