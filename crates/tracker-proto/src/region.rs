//! A region: a piece of guest memory to track, as the daemon names it.
//!
//! The daemon reads from `/proc/PID/maps` which files hold guest memory. It names a file by device
//! and inode, and the part by offset and length; the tracker finds the addresses in its own
//! mappings. The daemon numbers the pages, so that those of several regions do not overlap.
//!
//! Limits: [`REGIONS_MAX`] regions; whole pages; names of printable ASCII.

use std::fmt;

use thiserror::Error;

use crate::granule::{Granule, PAGE_SIZE};

/// Most regions: boot memory, and more plugged pieces than a mainboard has slots.
pub const REGIONS_MAX: usize = 64;
/// Page numbers are below this: 52 bits fit a ring entry.
pub const PAGES_MAX: u64 = 1 << 52;

/// A region's name, for people: that of its memory backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionName {
    bytes: [u8; RegionName::LEN_MAX],
    len: u8,
}

impl RegionName {
    /// Longest name, in bytes.
    pub const LEN_MAX: usize = 63;

    /// Makes a name: truncates `name`, and replaces characters other than printable ASCII by `?`.
    pub fn new(name: &str) -> RegionName {
        let mut bytes = [0; RegionName::LEN_MAX];
        let mut len = 0_u8;
        for (place, letter) in bytes.iter_mut().zip(name.chars()) {
            *place = u8::try_from(letter).ok().filter(|byte| is_printable(*byte)).unwrap_or(b'?');
            len += 1;
        }
        RegionName { bytes, len }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    pub(crate) fn from_bytes(name: &[u8]) -> Option<RegionName> {
        let mut bytes = [0; RegionName::LEN_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let len = u8::try_from(name.len()).ok()?;
        name.iter().all(|byte| is_printable(*byte)).then_some(RegionName { bytes, len })
    }
}

fn is_printable(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// The region's number, below [`REGIONS_MAX`].
    pub id: u8,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// The file's inode.
    pub inode: u64,
    /// Offset in the file, in bytes: whole pages.
    pub offset: u64,
    /// Length in bytes: whole pages, at least one.
    pub len: u64,
    /// The number of the first page: a multiple of [`Granule::PAGES_MAX`].
    pub first_page: u64,
    /// The region's name.
    pub name: RegionName,
}

/// Why a region is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegionError {
    /// The number is too large.
    #[error("region number {0}: expected less than {REGIONS_MAX}")]
    Id(u8),
    /// Not whole pages, no pages, or beyond the largest file.
    #[error("{len} bytes at offset {offset}: expected whole pages, at least one")]
    Extent {
        /// The offset.
        offset: u64,
        /// The length.
        len: u64,
    },
    /// The first page is not aligned to the largest granule, or the last is out of range.
    #[error("first page {0}: expected a multiple of 1024, and the last below 2^52")]
    FirstPage(u64),
    /// The name is invalid.
    #[error("a region name that is too long or not printable ASCII")]
    Name,
}

impl RegionSpec {
    /// The number of pages.
    pub const fn pages(&self) -> u64 {
        self.len / PAGE_SIZE
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), RegionError> {
        let RegionSpec { id, offset, len, first_page, .. } = *self;
        if usize::from(id) >= REGIONS_MAX {
            return Err(RegionError::Id(id));
        }
        let is_whole = offset % PAGE_SIZE == 0 && len % PAGE_SIZE == 0 && len > 0;
        let end = offset.checked_add(len);
        if !is_whole || end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(RegionError::Extent { offset, len });
        }
        let end = first_page.checked_add(self.pages());
        let is_aligned = first_page % u64::from(Granule::PAGES_MAX) == 0;
        if !is_aligned || end.is_none_or(|end| end > PAGES_MAX) {
            return Err(RegionError::FirstPage(first_page));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> RegionSpec {
        RegionSpec {
            id: 1,
            device: (0, 1),
            inode: 7,
            offset: 4096,
            len: 1 << 30,
            first_page: 2048,
            name: RegionName::new("ram"),
        }
    }

    #[test]
    fn every_field_is_checked() {
        let good = region();
        assert_eq!((good.validate(), good.pages()), (Ok(()), 262_144));
        let bad = [
            (RegionSpec { id: 64, ..good }, RegionError::Id(64)),
            (RegionSpec { len: 0, ..good }, RegionError::Extent { offset: 4096, len: 0 }),
            (RegionSpec { len: 4097, ..good }, RegionError::Extent { offset: 4096, len: 4097 }),
            (RegionSpec { offset: 1, ..good }, RegionError::Extent { offset: 1, len: 1 << 30 }),
            (
                RegionSpec { offset: u64::MAX - 4095, ..good },
                RegionError::Extent { offset: u64::MAX - 4095, len: 1 << 30 },
            ),
            (RegionSpec { first_page: 1, ..good }, RegionError::FirstPage(1)),
            (RegionSpec { first_page: PAGES_MAX, ..good }, RegionError::FirstPage(PAGES_MAX)),
        ];
        for (region, error) in bad {
            assert_eq!(region.validate(), Err(error));
        }
        let last = RegionSpec { first_page: PAGES_MAX - 262_144, ..good };
        assert_eq!(last.validate(), Ok(()));
    }

    #[test]
    fn names_are_truncated_and_sanitized() {
        assert_eq!(RegionName::new("pc.ram").as_str(), "pc.ram");
        assert_eq!(RegionName::new("a\nb\u{e9}").as_str(), "a?b?");
        assert_eq!(RegionName::new(&"x".repeat(100)).as_str().len(), 63);
        assert_eq!(RegionName::from_bytes(b"a\n"), None);
        assert_eq!(RegionName::from_bytes(&[b'x'; 64]), None);
        assert_eq!(format!("{:?}", RegionName::from_bytes(b"ram").unwrap()), "\"ram\"");
    }
}
