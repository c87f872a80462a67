//! Which of a process's mappings are guest memory.
//!
//! Idea: whoever knows the addresses tells them. Where nobody does, guest memory is what can be written to, is large,
//! and is memory: private without a file, or a file in memory. A guest's memory may be mapped in pieces (of
//! different protection, say); how large it is, neighbouring pieces of the same say together.
//!
//! Limits: told by size alone, a hypervisor's own large buffers pass as guest memory, and small ones that happen to lie
//! right beside it; that costs time, not data.

use ballast_model::Bytes;

use crate::maps::Mapping;
use crate::{AddressRange, RangeSet, Refusal};

/// How guest memory is told from the rest of a hypervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestRam {
    /// Every mapping of at least this size that can be written to and is memory.
    AtLeast(Bytes),
    /// What is mapped of exactly these addresses.
    At(RangeSet),
}

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where in the process.
    pub range: AddressRange,
    /// Whether it is a file's memory, and not the process's own.
    pub is_shared: bool,
    /// Major and minor number of the file's device; `(0, 0)` where there is none.
    pub device: (u32, u32),
    /// The file; 0 where there is none.
    pub inode: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The whole mapping that it is a part of, by which `/proc` names it.
    pub(crate) mapping: AddressRange,
}

impl Region {
    /// Where the part of file `inode` from `offset` on, `len` long, is in this region; empty where it is not.
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

/// The guest memory among the mappings of process `pid`, lowest first.
///
/// # Errors
/// [`Refusal::NoGuestMemory`].
pub(crate) fn regions(
    pid: u32,
    maps: &[Mapping<'_>],
    ram: &GuestRam,
) -> Result<Vec<Region>, Refusal> {
    let region = |mapping: &Mapping<'_>, range: AddressRange| Region {
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
            for run in memory.chunk_by(|a, b| is_followed_by(a, b)) {
                if run.iter().map(|mapping| mapping.range.len()).sum::<Bytes>() >= *min {
                    found.extend(run.iter().map(|mapping| region(mapping, mapping.range)));
                }
            }
        }
    }
    if found.is_empty() {
        let expected = match ram {
            GuestRam::At(set) => format!("one of the {} told", set.len()),
            GuestRam::AtLeast(min) => format!("memory it may write to, of at least {min}"),
        };
        return Err(Refusal::NoGuestMemory { pid, expected });
    }
    Ok(found)
}

fn is_memory(mapping: &Mapping<'_>) -> bool {
    let is_special = mapping.path.starts_with(b"[") && !mapping.path.starts_with(b"[anon");
    let is_huge = [&b"/anon_hugepage"[..], b"/dev/hugepages/"]
        .iter()
        .any(|prefix| mapping.path.starts_with(prefix));
    mapping.is_writable && !is_special && !is_huge
}

fn is_followed_by(a: &Mapping<'_>, b: &Mapping<'_>) -> bool {
    let same = |it: &Mapping<'_>| (it.is_shared, it.device, it.inode);
    a.range.end() == b.range.start() && same(a) == same(b)
}

#[cfg(test)]
mod tests {
    use ballast_model::PAGE_SIZE;

    use super::*;
    use crate::parse_maps;

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
        let found = regions(1, &parse_maps(MAPS).unwrap(), ram).unwrap();
        found.iter().map(|region| region.range.start()).collect()
    }

    #[test]
    fn large_memory_is_found_by_its_size_in_pieces_too() {
        let found = starts(&GuestRam::AtLeast(Bytes::mib(4)));
        assert_eq!(found, [0x2000_0000, 0x2020_0000, 0x3000_0000, 0x5000_0000]);
        assert_eq!(starts(&GuestRam::AtLeast(Bytes::mib(2))).len(), 5);
        let none = regions(1, &parse_maps(MAPS).unwrap(), &GuestRam::AtLeast(Bytes::gib(1)));
        let told = none.unwrap_err().to_string();
        assert!(told.contains("expected memory it may write to, of at least 1GiB"), "{told}");
    }

    #[test]
    fn addresses_told_are_taken_as_far_as_they_are_mapped() {
        let told = RangeSet::from_iter([
            AddressRange::new(0x2010_0000, 0x2030_0000),
            AddressRange::new(0x6000_0000, 0x7000_0000),
        ]);
        let found = regions(1, &parse_maps(MAPS).unwrap(), &GuestRam::At(told)).unwrap();
        let seen: Vec<_> =
            found.iter().map(|it| (it.range.start(), it.range.end(), it.offset)).collect();
        let expected =
            [(0x2010_0000, 0x2020_0000, 0x10_0000), (0x2020_0000, 0x2030_0000, 0x20_0000)];
        assert_eq!(seen, expected);
        assert_eq!(found[0].mapping, AddressRange::new(0x2000_0000, 0x2020_0000));
        let none = GuestRam::At(RangeSet::default());
        assert_eq!(regions(1, &[], &none).unwrap_err().code(), "no-guest-memory");
    }

    #[test]
    fn pages_of_a_file_are_found_where_they_are_mapped() {
        let maps = parse_maps(MAPS).unwrap();
        let found = regions(1, &maps, &GuestRam::AtLeast(Bytes::mib(4))).unwrap();
        let at = |offset, len| found[1].addresses((0, 1), 7, offset, Bytes::new(len));
        assert_eq!(at(0x20_0000, PAGE_SIZE), AddressRange::new(0x2020_0000, 0x2020_1000));
        assert_eq!(at(0x1f_f000, 2 * PAGE_SIZE), AddressRange::new(0x2020_0000, 0x2020_1000));
        assert!(at(0, PAGE_SIZE).is_empty() && at(0x40_0000, PAGE_SIZE).is_empty());
        assert_eq!(at(0, u64::MAX), found[1].range);
        assert!(found[1].addresses((0, 1), 8, 0, Bytes::MAX).is_empty());
        assert!(found[2].addresses((0, 0), 0, 0, Bytes::MAX).is_empty());
    }
}
