//! Finds a region in the hypervisor's own mappings.
//!
//! A region is a part of a file; `/proc/self/maps` shows where the file is mapped. The region may
//! span neighbouring mappings, but must be mapped exactly once, completely and shared: dropping the
//! page-table entries of a private mapping would lose data.
//!
//! Source: proc_pid_maps(5).

use ballast_tracker_proto::{Mapping, RefusalReason, RegionSpec};

use crate::kernel::Extent;

/// The part of a region that is in one mapping.
#[derive(Clone, Copy, Debug)]
struct MappedPart {
    extent: Extent,
    offset: u64,
    is_shared: bool,
}

impl MappedPart {
    fn of(mapping: &Mapping<'_>, region: &RegionSpec) -> Option<MappedPart> {
        let first = mapping.offset.max(region.offset);
        let end = mapping.offset.saturating_add(mapping.len).min(region.offset + region.len);
        let len = end.checked_sub(first).filter(|len| *len > 0)?;
        let start = mapping.start + (first - mapping.offset);
        Some(MappedPart {
            extent: Extent::new(start, len),
            offset: first,
            is_shared: mapping.is_shared,
        })
    }
}

/// Finds where `region` is mapped in the text of `/proc/self/maps`.
///
/// # Errors
/// [`RefusalReason::NoMapping`], [`RefusalReason::Private`] or [`RefusalReason::MappedTwice`].
pub(crate) fn find(maps: &str, region: &RegionSpec) -> Result<Extent, RefusalReason> {
    let is_of = |it: &Mapping<'_>| it.device == region.device && it.inode == region.inode;
    let lines = maps.lines().filter_map(Mapping::parse).filter(is_of);
    let mut parts: Vec<MappedPart> =
        lines.filter_map(|mapping| MappedPart::of(&mapping, region)).collect();
    if parts.iter().any(|part| !part.is_shared) {
        return Err(RefusalReason::Private);
    }
    parts.sort_by_key(|part| (part.offset, part.extent.start));
    let first = parts.first().ok_or(RefusalReason::NoMapping)?.extent;
    let mut end = region.offset;
    for part in &parts {
        let is_next = part.extent.start == first.start + (part.offset - region.offset);
        if part.offset < end || !is_next {
            return Err(RefusalReason::MappedTwice);
        }
        if part.offset > end {
            return Err(RefusalReason::NoMapping);
        }
        end += part.extent.len;
    }
    let is_whole = end == region.offset + region.len;
    if is_whole { Ok(Extent::new(first.start, region.len)) } else { Err(RefusalReason::NoMapping) }
}

#[cfg(test)]
mod tests {
    use ballast_tracker_proto::RegionName;

    use super::*;

    fn region(offset: u64, len: u64) -> RegionSpec {
        let name = RegionName::new("ram");
        RegionSpec { id: 0, device: (0, 1), inode: 1045, offset, len, first_page: 0, name }
    }

    const MAPS: &str = "\
55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000100000 rw-s 00000000 00:01 1045                       /memfd:ram (deleted)
7f0000200000-7f0000201000 r--p 00000000 08:01 1045                       /usr/lib/x.so
7f0000300000-7f0000304000 rw-s 00000000 00:01 77                         /memfd:a b (deleted)
rubbish
";

    #[test]
    fn a_region_is_found_by_device_and_inode() {
        assert_eq!(find(MAPS, &region(0, 0x100000)), Ok(Extent::new(0x7f00_0000_0000, 0x100000)));
        let part = find(MAPS, &region(0x1000, 0x2000));
        assert_eq!(part, Ok(Extent::new(0x7f00_0000_1000, 0x2000)));
        assert_eq!(find(MAPS, &region(0, 0x101000)), Err(RefusalReason::NoMapping), "longer");
        assert_eq!(
            find(MAPS, &region(0x100000, 0x1000)),
            Err(RefusalReason::NoMapping),
            "behind it"
        );
        let other = RegionSpec { inode: 1046, ..region(0, 0x1000) };
        assert_eq!(find(MAPS, &other), Err(RefusalReason::NoMapping));
        assert_eq!(find("", &region(0, 0x1000)), Err(RefusalReason::NoMapping));
    }

    #[test]
    fn neighbouring_mappings_are_joined() {
        let split =
            "1000-3000 rw-s 00000000 00:01 1045 /x\n3000-5000 r--s 00002000 00:01 1045 /x\n";
        assert_eq!(find(split, &region(0, 0x4000)), Ok(Extent::new(0x1000, 0x4000)));
        assert_eq!(find(split, &region(0x1000, 0x2000)), Ok(Extent::new(0x2000, 0x2000)));
        let apart =
            "1000-3000 rw-s 00000000 00:01 1045 /x\n4000-6000 rw-s 00002000 00:01 1045 /x\n";
        assert_eq!(find(apart, &region(0, 0x4000)), Err(RefusalReason::MappedTwice));
        let gap = "1000-3000 rw-s 00000000 00:01 1045 /x\n4000-6000 rw-s 00003000 00:01 1045 /x\n";
        assert_eq!(find(gap, &region(0, 0x5000)), Err(RefusalReason::NoMapping));
    }

    #[test]
    fn private_and_double_mappings_are_refused() {
        let private = "1000-3000 rw-p 00000000 00:01 1045 /x\n";
        assert_eq!(find(private, &region(0, 0x2000)), Err(RefusalReason::Private));
        let twice =
            "1000-3000 rw-s 00000000 00:01 1045 /x\n8000-9000 r--s 00001000 00:01 1045 /x\n";
        assert_eq!(find(twice, &region(0, 0x2000)), Err(RefusalReason::MappedTwice));
        assert_eq!(find(twice, &region(0, 0x1000)), Ok(Extent::new(0x1000, 0x1000)));
    }
}
