//! XDR: how libvirt writes values into messages.
//!
//! Idea: whole numbers of 4 or 8 bytes, the highest byte first; texts with their length before and
//! zeros up to a multiple of 4 behind. Cost: O(bytes); texts are borrowed.
//! Source: RFC 4506. Limits: the types that libvirt's calls need; a text is at most as long as the
//! message that it is in.

use std::str;

/// Why bytes are not what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum XdrError {
    /// The message ends too early.
    #[error("it ends in the middle of {0}")]
    Short(&'static str),
    /// A text that is not UTF-8.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// More items than are allowed.
    #[error("an array of {0} items where at most {1} are allowed")]
    TooMany(u32, u32),
    /// An unknown variant of a union.
    #[error("a value of type {0}, which is unknown")]
    UnknownType(i32),
}

/// Writes values.
#[derive(Clone, Debug, Default)]
pub(crate) struct XdrWriter(Vec<u8>);

impl XdrWriter {
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Bytes whose number both sides know, a multiple of 4.
    pub(crate) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self = self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend(text.as_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XdrReader<'a>(&'a [u8]);

impl<'a> XdrReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        XdrReader(bytes)
    }

    pub(crate) fn fixed<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], XdrError> {
        let (value, rest) = self.0.split_first_chunk().ok_or(XdrError::Short(what))?;
        self.0 = rest;
        Ok(*value)
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, XdrError> {
        Ok(u32::from_be_bytes(self.fixed(what)?))
    }

    pub(crate) fn i32(&mut self, what: &'static str) -> Result<i32, XdrError> {
        Ok(i32::from_be_bytes(self.fixed(what)?))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, XdrError> {
        Ok(u64::from_be_bytes(self.fixed(what)?))
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, XdrError> {
        let len = self.u32(what)? as usize;
        let padded = len.checked_next_multiple_of(4).ok_or(XdrError::Short(what))?;
        let (text, rest) = self.0.split_at_checked(padded).ok_or(XdrError::Short(what))?;
        self.0 = rest;
        str::from_utf8(&text[..len]).map_err(|_| XdrError::NotUtf8(what))
    }

    /// A text that may be missing.
    pub(crate) fn optional_text(
        &mut self,
        what: &'static str,
    ) -> Result<Option<&'a str>, XdrError> {
        match self.u32(what)? {
            0 => Ok(None),
            _ => self.text(what).map(Some),
        }
    }

    /// The number of items that follow, at most `most`.
    pub(crate) fn count(&mut self, what: &'static str, most: u32) -> Result<u32, XdrError> {
        let count = self.u32(what)?;
        if count > most { Err(XdrError::TooMany(count, most)) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(number: u32, signed: i32, wide: u64, text: String) {
            let bytes = XdrWriter::default().text(&text).u32(number).i32(signed).u64(wide).done();
            prop_assert_eq!(bytes.len() % 4, 0);
            let mut reader = XdrReader::new(&bytes);
            prop_assert_eq!(reader.text("text"), Ok(text.as_str()));
            prop_assert_eq!(reader.u32("number"), Ok(number));
            prop_assert_eq!(reader.i32("signed"), Ok(signed));
            prop_assert_eq!(reader.u64("wide"), Ok(wide));
            prop_assert_eq!(reader.u32("more"), Err(XdrError::Short("more")));
        }

        #[test]
        fn rubbish_is_refused_without_a_panic(bytes: Vec<u8>) {
            let mut reader = XdrReader::new(&bytes);
            while reader.optional_text("text").is_ok() {}
            let _ = reader.count("things", 3);
        }
    }

    #[test]
    fn a_length_beyond_the_message_is_refused() {
        for len in [9, 0x7fff_ffff, u32::MAX] {
            let bytes = XdrWriter::default().u32(len).u64(0).done();
            assert_eq!(XdrReader::new(&bytes).text("name"), Err(XdrError::Short("name")));
        }
        assert_eq!(XdrReader::new(&[0, 0, 0, 4]).count("domains", 3), Err(XdrError::TooMany(4, 3)));
        let bytes = XdrWriter::default().u32(1).fixed(&[0xff, 0, 0, 0]).done();
        assert_eq!(XdrReader::new(&bytes).text("name"), Err(XdrError::NotUtf8("name")));
    }
}
