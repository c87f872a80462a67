//! Finds guest memory among the mappings of a process.
//!
//! Idea: the caller gives the addresses if it knows them. Otherwise guest memory is every large
//! writable mapping of memory: private without a file, or of a file in memory. Guest memory may be
//! mapped in several pieces, for instance of different protection; the sizes of adjacent mappings
//! of the same file are added up.
//!
//! Limits: by size alone, the hypervisor's own large buffers pass for guest memory, and so do small
//! ones directly beside it; that costs time, not data.

use std::collections::BTreeMap;

use ballast_model::Bytes;

use crate::error::ReclaimError;
use crate::maps::Mapping;
use crate::ranges::{AddressRange, RangeSet};

/// How to find guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestRam {
    /// Every writable mapping of memory of at least this size.
    AtLeast(Bytes),
    /// The mapped parts of these addresses.
    At(RangeSet),
}

/// A region of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRegion {
    /// Addresses in the process.
    pub range: AddressRange,
    /// Whether it is shared file memory, as opposed to private memory.
    pub is_shared: bool,
    /// Major and minor number of the file's device; `(0, 0)` without a file.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The mapping that contains it, the name of its file in `/proc/PID/map_files`.
    pub(crate) mapping: AddressRange,
}

impl GuestRegion {
    /// The addresses of `len` bytes of file `inode` from `offset` on, as far as they lie in this
    /// region.
    pub fn addresses(
        &self,
        device: (u32, u32),
        inode: u64,
        offset: u64,
        len: Bytes,
    ) -> AddressRange {
        if inode == 0 || (device, inode) != (self.device, self.inode) {
            return AddressRange::new(0, 0);
        }
        let address = |at: u64| {
            let inside = at.clamp(self.offset, self.offset.saturating_add(self.range.len().get()));
            self.range.start() + (inside - self.offset)
        };
        AddressRange::new(address(offset), address(offset.saturating_add(len.get())))
    }
}

/// Finds the guest memory among the mappings of process `pid`, lowest first.
///
/// # Errors
/// [`ReclaimError::NoGuestMemory`].
pub(crate) fn find_regions(
    pid: u32,
    maps: &[Mapping<'_>],
    ram: &GuestRam,
) -> Result<Vec<GuestRegion>, ReclaimError> {
    let region = |mapping: &Mapping<'_>, range: AddressRange| GuestRegion {
        range,
        is_shared: mapping.is_shared,
        device: mapping.device,
        inode: mapping.inode,
        offset: mapping.offset.saturating_add(range.start() - mapping.range.start()),
        mapping: mapping.range,
    };
    let mut found = Vec::new();
    match ram {
        GuestRam::At(set) => {
            for mapping in maps {
                found.extend(set.within(mapping.range).map(|range| region(mapping, range)));
            }
        }
        GuestRam::AtLeast(min) => {
            let memory: Vec<_> = maps.iter().filter(|mapping| is_memory(mapping)).collect();
            for run in memory.chunk_by(|a, b| is_adjacent(a, b)) {
                if run.iter().map(|mapping| mapping.range.len()).sum::<Bytes>() >= *min {
                    found.extend(run.iter().map(|mapping| region(mapping, mapping.range)));
                }
            }
        }
    }
    if found.is_empty() {
        let expected = match ram {
            GuestRam::At(set) => format!("some of the {} at the given addresses", set.len()),
            GuestRam::AtLeast(min) => format!("writable memory of at least {min}"),
        };
        return Err(ReclaimError::NoGuestMemory { pid, expected });
    }
    Ok(found)
}

/// The total length of the files that hold regions. Each file counts once, up to the end of its
/// last mapped part, even if it is mapped in pieces, twice, or privately.
pub(crate) fn in_files(regions: &[GuestRegion]) -> Bytes {
    let mut ends: BTreeMap<((u32, u32), u64), Bytes> = BTreeMap::new();
    for region in regions.iter().filter(|region| region.inode != 0) {
        let end = Bytes::new(region.offset).saturating_add(region.range.len());
        let known = ends.entry((region.device, region.inode)).or_default();
        *known = end.max(*known);
    }
    ends.into_values().fold(Bytes::ZERO, Bytes::saturating_add)
}

fn is_memory(mapping: &Mapping<'_>) -> bool {
    let is_special = mapping.path.starts_with(b"[") && !mapping.path.starts_with(b"[anon");
    let is_huge = [&b"/anon_hugepage"[..], b"/dev/hugepages/"]
        .iter()
        .any(|prefix| mapping.path.starts_with(prefix));
    mapping.is_writable && !is_special && !is_huge
}

fn is_adjacent(a: &Mapping<'_>, b: &Mapping<'_>) -> bool {
    let kind = |it: &Mapping<'_>| (it.is_shared, it.device, it.inode);
    a.range.end() == b.range.start() && kind(a) == kind(b)
}

#[cfg(test)]
mod tests {
    use ballast_model::PAGE_SIZE;

    use super::*;
    use crate::maps::parse_maps;

    const MAPS: &[u8] = b"\
10000000-10400000 rw-p 00000000 00:00 0                          [heap]
20000000-20200000 rw-s 00000000 00:01 7                          /memfd:ram (deleted)
20200000-20400000 rw-s 00200000 00:01 7                          /memfd:ram (deleted)
20400000-20600000 rw-s 00000000 00:01 8                          /memfd:other (deleted)
30000000-30400000 rw-p 00000000 00:00 0 
30400000-30800000 r--p 00000000 00:00 0 
40000000-40400000 rw-s 00000000 00:0f 9                          /anon_hugepage (deleted)
50000000-50400000 rw-p 00000000 00:00 0                          [anon:ram]
";

    fn starts(ram: &GuestRam) -> Vec<u64> {
        let found = find_regions(1, &parse_maps(MAPS).unwrap(), ram).unwrap();
        found.iter().map(|region| region.range.start()).collect()
    }

    #[test]
    fn guest_memory_is_found_by_size_even_in_pieces() {
        let found = starts(&GuestRam::AtLeast(Bytes::mib(4)));
        assert_eq!(found, [0x2000_0000, 0x2020_0000, 0x3000_0000, 0x5000_0000]);
        assert_eq!(starts(&GuestRam::AtLeast(Bytes::mib(2))).len(), 5);
        let none = find_regions(1, &parse_maps(MAPS).unwrap(), &GuestRam::AtLeast(Bytes::gib(1)));
        let message = none.unwrap_err().to_string();
        assert!(message.contains("expected writable memory of at least 1GiB"), "{message}");
    }

    #[test]
    fn files_count_once_and_private_memory_not_at_all() {
        let maps = b"\
10000000-10400000 rw-p 00000000 00:00 0 
20000000-20200000 rw-s 00000000 00:01 7                          /memfd:ram (deleted)
20200000-20400000 rw-s 00200000 00:01 7                          /memfd:ram (deleted)
30000000-30400000 rw-s 00000000 00:01 7                          /memfd:ram (deleted)
40000000-40200000 rw-p 00000000 00:01 8                          /memfd:copied (deleted)
";
        let least = GuestRam::AtLeast(Bytes::mib(2));
        let found = find_regions(1, &parse_maps(maps).unwrap(), &least).unwrap();
        assert_eq!(in_files(&found), Bytes::mib(6));
        assert_eq!(in_files(&found[..1]), Bytes::ZERO);
    }

    #[test]
    fn given_addresses_count_as_far_as_they_are_mapped() {
        let given = RangeSet::from_iter([
            AddressRange::new(0x2010_0000, 0x2030_0000),
            AddressRange::new(0x6000_0000, 0x7000_0000),
        ]);
        let found = find_regions(1, &parse_maps(MAPS).unwrap(), &GuestRam::At(given)).unwrap();
        let starts_ends_offsets: Vec<_> =
            found.iter().map(|it| (it.range.start(), it.range.end(), it.offset)).collect();
        let expected =
            [(0x2010_0000, 0x2020_0000, 0x10_0000), (0x2020_0000, 0x2030_0000, 0x20_0000)];
        assert_eq!(starts_ends_offsets, expected);
        assert_eq!(found[0].mapping, AddressRange::new(0x2000_0000, 0x2020_0000));
        let none = GuestRam::At(RangeSet::default());
        assert_eq!(find_regions(1, &[], &none).unwrap_err().code(), "no-guest-memory");
    }

    #[test]
    fn file_offsets_translate_to_addresses() {
        let maps = parse_maps(MAPS).unwrap();
        let found = find_regions(1, &maps, &GuestRam::AtLeast(Bytes::mib(4))).unwrap();
        let at = |offset, len| found[1].addresses((0, 1), 7, offset, Bytes::new(len));
        assert_eq!(at(0x20_0000, PAGE_SIZE), AddressRange::new(0x2020_0000, 0x2020_1000));
        assert_eq!(at(0x1f_f000, 2 * PAGE_SIZE), AddressRange::new(0x2020_0000, 0x2020_1000));
        assert!(at(0, PAGE_SIZE).is_empty() && at(0x40_0000, PAGE_SIZE).is_empty());
        assert_eq!(at(0, u64::MAX), found[1].range);
        assert!(found[1].addresses((0, 1), 8, 0, Bytes::MAX).is_empty());
        assert!(found[2].addresses((0, 0), 0, 0, Bytes::MAX).is_empty());
    }
}
