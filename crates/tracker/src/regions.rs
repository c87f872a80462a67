//! The files of guest memory, and the regions made of them.
//!
//! `/proc/PID/maps` shows which mappings are guest memory: QEMU gives the file of every
//! `memory-backend-memfd` that name and uses it for nothing else. A `memory-backend-file` is
//! recognised by its path on QEMU's command line
//! ([`TrackableGuest::paths`](crate::TrackableGuest)). The tracker finds the addresses itself.
//!
//! Pages are numbered by the files' inodes, in arbitrary order: the kernel gives each processor a
//! batch of inode numbers. While a client is attached, a region keeps its page numbers, and regions
//! plugged in later get higher ones.
//!
//! A hostile hypervisor may map any part of a file, so the end of a mapping does not show how much
//! memory there is. A file counts for no more than is mapped of it, and all regions together for no
//! more than the process has mapped.
//!
//! Cost: about 0.3 ms to read the mappings of a QEMU.
//! Limits: memory must be shared (`share=on`); private memory is reported.

use std::collections::BTreeMap;
use std::path::Path;

use ballast_tracker_proto::{Granule, Mapping, PAGE_SIZE, REGIONS_MAX, RegionName, RegionSpec};

use crate::error::TrackerError;
use crate::proc_file::{MAPS_BYTES_MAX, read_text};

/// QEMU's name for the files of `memory-backend-memfd`.
const MEMFD: &str = "/memfd:memory-backend-memfd";

/// Prefix of QEMU's name for the file of a `memory-backend-file` whose path is a folder.
const IN_FOLDER: &str = "/qemu_back_mem.";

/// A file of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryFile {
    /// The file's inode.
    pub inode: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Its length in bytes: where its last mapping ends, and at most the sum of its mappings.
    pub len: u64,
    /// Whether it is mapped shared, and so can be tracked.
    pub is_shared: bool,
}

/// Whether a mapping is guest memory.
pub(crate) fn is_guest_memory(mapping: &Mapping<'_>, paths: &[&str]) -> bool {
    let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(mapping.path);
    let is_in =
        |folder: &&str| path.strip_prefix(*folder).is_some_and(|rest| rest.starts_with(IN_FOLDER));
    path == MEMFD || paths.contains(&path) || paths.iter().any(is_in)
}

/// The files of guest memory among mappings, sorted by inode; `paths` are those of file-backed
/// memory.
pub fn memory_files(maps: &str, paths: &[&str]) -> Vec<MemoryFile> {
    // Each with the sum of its mappings.
    let mut files: BTreeMap<((u32, u32), u64), (MemoryFile, u64)> = BTreeMap::new();
    let is_guest = |mapping: &Mapping<'_>| is_guest_memory(mapping, paths);
    for mapping in maps.lines().filter_map(Mapping::parse).filter(is_guest) {
        let (device, inode) = (mapping.device, mapping.inode);
        let unmapped = MemoryFile { inode, device, len: 0, is_shared: true };
        let (file, mapped) = files.entry((device, inode)).or_insert((unmapped, 0));
        file.len = file.len.max(mapping.offset.saturating_add(mapping.len));
        file.is_shared &= mapping.is_shared;
        *mapped = mapped.saturating_add(mapping.len);
    }
    let bounded =
        |(file, mapped): (MemoryFile, u64)| MemoryFile { len: file.len.min(mapped), ..file };
    let mut files: Vec<MemoryFile> = files.into_values().map(bounded).collect();
    files.sort();
    files
}

/// The files of guest memory of a process, see [`memory_files`].
///
/// # Errors
/// The process is gone, belongs to another user, or has mappings of too long a text (8 MiB).
pub fn memory_files_of(pid: u32, paths: &[&str]) -> Result<Vec<MemoryFile>, TrackerError> {
    let maps = read_text(Path::new(&format!("/proc/{pid}/maps")), MAPS_BYTES_MAX);
    let maps = maps.map_err(TrackerError::io("read the hypervisor's mappings"))?;
    Ok(memory_files(&maps, paths))
}

/// Checks that a process has mapped all of its guest's memory shared. `total` is the guest's memory
/// in bytes, by its hypervisor; 0 if it is unknown. Without this check the working set of a part
/// would be taken for that of the whole.
///
/// # Errors
/// [`TrackerError::Private`], [`TrackerError::NoMemory`] or [`TrackerError::PartlyShared`]; and
/// those of [`memory_files_of`].
pub fn check_shared(pid: u32, paths: &[&str], total: u64) -> Result<(), TrackerError> {
    let files = memory_files_of(pid, paths)?;
    let sum = |is_shared| {
        files.iter().filter(|file| file.is_shared == is_shared).map(|file| file.len).sum::<u64>()
    };
    check_sizes(sum(true), sum(false), total)
}

/// [`check_shared`] for known sizes.
pub(crate) fn check_sizes(shared: u64, private: u64, total: u64) -> Result<(), TrackerError> {
    match (shared, private) {
        (0, 0) => Err(TrackerError::NoMemory),
        (0, private) => Err(TrackerError::Private { private }),
        _ if total > shared => Err(TrackerError::PartlyShared { total, shared }),
        _ => Ok(()),
    }
}

/// The tracked regions and their page numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionTable {
    regions: Vec<RegionSpec>,
    /// First page number of the next region.
    next_page: u64,
}

/// Changes of the regions since the last update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionChanges {
    pub(crate) added: Vec<RegionSpec>,
    pub(crate) removed: Vec<u8>,
}

impl RegionTable {
    /// Makes `files` the tracked regions; returns what has changed. A file that makes no valid
    /// region is left out.
    pub(crate) fn update(&mut self, files: &[MemoryFile]) -> RegionChanges {
        let is_same = |region: &RegionSpec, file: &MemoryFile| {
            (region.device, region.inode, region.len) == (file.device, file.inode, file.len)
        };
        let mut changes = RegionChanges::default();
        self.regions.retain(|region| {
            let stays = files.iter().any(|file| is_same(region, file));
            if !stays {
                changes.removed.push(region.id);
            }
            stays
        });
        for file in files {
            if self.regions.iter().any(|region| is_same(region, file)) {
                continue;
            }
            let is_free = |id: &u8| self.regions.iter().all(|region| region.id != *id);
            let Some(id) = (0..REGIONS_MAX as u8).find(is_free) else { break };
            let region = RegionSpec {
                id,
                device: file.device,
                inode: file.inode,
                offset: 0,
                len: file.len,
                first_page: self.next_page,
                name: RegionName::new(&format!("memfd {}", file.inode)),
            };
            if region.validate().is_err() {
                continue;
            }
            let pages = (file.len / PAGE_SIZE).next_multiple_of(u64::from(Granule::PAGES_MAX));
            self.next_page += pages;
            self.regions.push(region);
            changes.added.push(region);
        }
        changes
    }

    pub(crate) fn remove(&mut self, id: u8) {
        self.regions.retain(|region| region.id != id);
    }

    pub(crate) fn regions(&self) -> &[RegionSpec] {
        &self.regions
    }

    /// Whether a page belongs to a region.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.regions
            .iter()
            .any(|region| (region.first_page..region.first_page + region.pages()).contains(&page))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAPS: &str = "\
7f3103ffd000-7f3113ffd000 rw-s 00000000 00:01 9594       /memfd:memory-backend-memfd (deleted)
7f3113ffe000-7f3133ffe000 rw-p 00000000 00:01 9593       /memfd:memory-backend-memfd (deleted)
7f3133fff000-7f3143fff000 rw-s 00000000 00:01 9592       /memfd:memory-backend-memfd (deleted)
7f3143fff000-7f3144000000 rw-s 00001000 00:1a 7          /dev/shm/ram
7f3144000000-7f3144001000 rw-s 00000000 00:1a 7          /dev/shm/ram
7f3150000000-7f3150001000 rw-s 00000000 00:01 9999       /memfd:doublemapper (deleted)
";

    #[test]
    fn files_of_guest_memory_are_found_in_order() {
        let files = memory_files(MAPS, &["/dev/shm/ram"]);
        let seen: Vec<_> =
            files.iter().map(|file| (file.inode, file.len, file.is_shared)).collect();
        let mib = 1 << 20;
        assert_eq!(
            seen,
            [
                (7, 8192, true),
                (9592, 256 * mib, true),
                (9593, 512 * mib, false),
                (9594, 256 * mib, true)
            ]
        );
        assert_eq!(memory_files(MAPS, &[]).len(), 3);
        let of_folder = "1000-3000 rw-s 00000000 00:1a 8 /dev/shm/qemu_back_mem.ram.Xy12 (deleted)";
        assert_eq!(memory_files(of_folder, &["/dev/shm"]).len(), 1);
        assert_eq!(memory_files(of_folder, &["/dev/sh", "/dev/shm/qemu"]).len(), 0);
    }

    /// A line of a file at 1 TiB and `at` pages: `pages` of it, from page `offset` on.
    fn line(at: u64, inode: u64, offset: u64, pages: u64) -> String {
        let start = (1_u64 << 40) + at * PAGE_SIZE;
        let (end, offset) = (start + pages * PAGE_SIZE, offset * PAGE_SIZE);
        format!("{start:x}-{end:x} rw-s {offset:08x} 00:01 {inode} /memfd:memory-backend-memfd\n")
    }

    #[test]
    fn a_page_mapped_far_out_is_one_page() {
        let far = (1_u64 << 62) / PAGE_SIZE;
        let files = memory_files(&line(0, 9, far, 1), &[]);
        assert_eq!(files.iter().map(|file| file.len).collect::<Vec<_>>(), [PAGE_SIZE]);
        let mut regions = RegionTable::default();
        assert_eq!(regions.update(&files).added[0].pages(), 1);
    }

    #[test]
    fn files_that_make_no_valid_region_are_left_out() {
        let file = |inode, len| MemoryFile { inode, device: (0, 1), len, is_shared: true };
        let mut regions = RegionTable::default();
        let files = [file(1, 0), file(2, 1 << 63), file(3, 4097), file(4, PAGE_SIZE)];
        let added = regions.update(&files).added;
        assert_eq!(added.iter().map(|it| (it.inode, it.first_page)).collect::<Vec<_>>(), [(4, 0)]);
    }

    proptest! {
        #[test]
        fn files_are_no_longer_than_what_is_mapped_of_them(
            parts in proptest::collection::vec((0_u64..3, 0_u64..1 << 50, 1_u64..100), 0..20),
        ) {
            let text: String = (0..)
                .zip(&parts)
                .map(|(at, &(inode, offset, pages))| line(at * 100, inode, offset, pages))
                .collect();
            for file in memory_files(&text, &[]) {
                let of_it = parts.iter().filter(|(inode, ..)| *inode == file.inode);
                let mapped: u64 = of_it.clone().map(|(_, _, pages)| pages * PAGE_SIZE).sum();
                let end = of_it.map(|(_, offset, pages)| (offset + pages) * PAGE_SIZE).max();
                prop_assert_eq!(Some(file.len), end.map(|end| end.min(mapped)));
            }
        }

        #[test]
        fn a_file_mapped_whole_has_its_length(
            parts in proptest::collection::vec(1_u64..100, 1..20),
        ) {
            let mut offset = 0;
            let mut text = String::new();
            for &pages in &parts {
                text += &line(offset, 7, offset, pages);
                offset += pages;
            }
            prop_assert_eq!(memory_files(&text, &[])[0].len, offset * PAGE_SIZE);
        }
    }

    #[test]
    fn added_and_removed_regions_do_not_renumber_others() {
        let file = |inode, pages| MemoryFile {
            inode,
            device: (0, 1),
            len: pages * PAGE_SIZE,
            is_shared: true,
        };
        let (boot, plugged) = (file(10, 1025), file(11, 4));
        let mut regions = RegionTable::default();
        let first = regions.update(&[boot, plugged]);
        let pages: Vec<_> = first.added.iter().map(|it| (it.id, it.first_page)).collect();
        assert_eq!(pages, [(0, 0), (1, 2048)]);
        assert!(regions.has(1024) && !regions.has(1025) && regions.has(2051) && !regions.has(2052));
        assert_eq!(regions.update(&[boot, plugged]), RegionChanges::default());
        assert_eq!(regions.update(&[boot]).removed, [1]);
        let again = regions.update(&[boot, file(12, 4)]);
        assert_eq!((again.added[0].id, again.added[0].first_page), (1, 3072));
        // A file that grew becomes a new region.
        let grown = regions.update(&[file(10, 2048), file(12, 4)]);
        assert_eq!((grown.removed, grown.added[0].id), (vec![0], 0));
        regions.remove(1);
        assert_eq!(regions.regions().len(), 1);
    }
}
