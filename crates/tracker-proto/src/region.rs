//! A piece of guest memory to be tracked, as the daemon names it.
//!
//! Idea: the daemon learns from the hypervisor which memory backends a guest has, and from
//! `/proc/PID/maps` which file each is; it names the file by device and inode, and the part by offset
//! and length. The tracker looks that up in its own mappings: it is never told an address. Pages are
//! numbered by the daemon, so that those of several regions do not overlap.
//!
//! Limits: [`REGIONS_MAX`] regions; whole pages; names of printable ASCII.

use std::fmt;

use thiserror::Error;

use crate::granule::{Granule, PAGE_SIZE};

/// Most regions at a time: boot memory, and more hotplugged pieces than fit on a mainboard.
pub const REGIONS_MAX: usize = 64;
/// Page numbers are below this: 52 bits, which an entry of the ring has room for.
pub const PAGES_MAX: u64 = 1 << 52;

/// What a region is called, for people: the name of its memory backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RegionName {
    bytes: [u8; RegionName::LEN_MAX],
    len: u8,
}

impl RegionName {
    /// Longest name, in bytes.
    pub const LEN_MAX: usize = 63;

    /// The name; what is too long is cut off, and what is no printable ASCII becomes `?`.
    pub fn new(name: &str) -> RegionName {
        let mut bytes = [0; RegionName::LEN_MAX];
        let mut len = 0_u8;
        for (place, letter) in bytes.iter_mut().zip(name.chars()) {
            *place = u8::try_from(letter).ok().filter(|byte| is_printable(*byte)).unwrap_or(b'?');
            len += 1;
        }
        RegionName { bytes, len }
    }

    /// The name.
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
    /// Its number, below [`REGIONS_MAX`].
    pub id: u8,
    /// Major and minor number of the device its file is on.
    pub device: (u32, u32),
    /// The file.
    pub inode: u64,
    /// Where in the file it begins, in bytes: whole pages.
    pub offset: u64,
    /// How long it is, in bytes: whole pages, at least one.
    pub len: u64,
    /// The number of its first page: a multiple of [`Granule::PAGES_MAX`].
    pub first_page: u64,
    /// What it is called.
    pub name: RegionName,
}

/// Why figures are no region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegionError {
    /// The number is too great.
    #[error("region number {0}: expected less than {REGIONS_MAX}")]
    Id(u8),
    /// Not whole pages, or none, or beyond what a file can be.
    #[error("{len} bytes at offset {offset}: expected whole pages, at least one")]
    Extent {
        /// Its offset.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// The first page is not where a granule of any size begins, or the last is out of range.
    #[error("first page {0}: expected a multiple of 1024, and the last below 2^52")]
    FirstPage(u64),
    /// The name is none.
    #[error("a region's name that is too long or no printable ASCII")]
    Name,
}

impl RegionSpec {
    /// Its number of pages.
    pub const fn pages(&self) -> u64 {
        self.len / PAGE_SIZE
    }

    /// Checks every figure.
    ///
    /// # Errors
    /// Names the first that is out of range.
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
    fn each_figure_is_checked() {
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
    fn names_are_cut_and_cleaned() {
        assert_eq!(RegionName::new("pc.ram").as_str(), "pc.ram");
        assert_eq!(RegionName::new("a\nb\u{e9}").as_str(), "a?b?");
        assert_eq!(RegionName::new(&"x".repeat(100)).as_str().len(), 63);
        assert_eq!(RegionName::from_bytes(b"a\n"), None);
        assert_eq!(RegionName::from_bytes(&[b'x'; 64]), None);
        assert_eq!(format!("{:?}", RegionName::from_bytes(b"ram").unwrap()), "\"ram\"");
    }
}
