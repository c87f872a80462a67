//! The memory of a guest, as files of its hypervisor's process.
//!
//! Idea: QEMU calls the file of every `memory-backend-memfd` by that name, and no other; so which of a
//! process's mappings are guest memory stands in `/proc/PID/maps`, whatever their sizes and however many
//! there are. That of a `memory-backend-file` is told by its path, which stands in QEMU's command line
//! ([`Trackable::paths`](crate::Trackable)).
//! Where in the process they are mapped is no matter here: the tracker looks that up itself.
//!
//! Pages are numbered in order of the files' inodes, which is any order: the kernel hands each processor
//! a batch of numbers, so what QEMU made later may have a lower one. While somebody is attached, a region
//! keeps its pages' numbers as long as it lives, and what is plugged in later comes behind.
//!
//! Cost: reading the mappings of a QEMU, about 0.3 ms.
//! Limits: the memory must be shared (`share=on`); what is private is told as such.

use std::collections::BTreeMap;
use std::fs;

use ballast_track_wire::{Granule, Mapping, PAGE_SIZE, REGIONS_MAX, RegionName, RegionSpec};
use rustix::io::Errno;

use crate::TrackerError;

/// What QEMU calls the files of `memory-backend-memfd`.
const MEMFD: &str = "/memfd:memory-backend-memfd";

/// What QEMU calls the file of a `memory-backend-file` whose path is a folder, before its identifier.
const IN_FOLDER: &str = "/qemu_back_mem.";

/// A file of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryFile {
    /// The file.
    pub inode: u64,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its length in bytes, as far as it is mapped.
    pub len: u64,
    /// Whether it is mapped so that it can be tracked.
    pub is_shared: bool,
}

/// Whether a mapping is of guest memory.
pub(crate) fn is_guest_memory(mapping: &Mapping<'_>, paths: &[&str]) -> bool {
    let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(mapping.path);
    let is_of =
        |folder: &&str| path.strip_prefix(*folder).is_some_and(|rest| rest.starts_with(IN_FOLDER));
    path == MEMFD || paths.contains(&path) || paths.iter().any(is_of)
}

/// The files of guest memory among mappings, in order of their inodes; `paths` are those of memory
/// backends in files.
pub fn memory_files(maps: &str, paths: &[&str]) -> Vec<MemoryFile> {
    let mut files: BTreeMap<((u32, u32), u64), MemoryFile> = BTreeMap::new();
    let is_guest = |mapping: &Mapping<'_>| is_guest_memory(mapping, paths);
    for mapping in maps.lines().filter_map(Mapping::parse).filter(is_guest) {
        let (device, inode) = (mapping.device, mapping.inode);
        let file = files.entry((device, inode)).or_insert(MemoryFile {
            inode,
            device,
            len: 0,
            is_shared: true,
        });
        file.len = file.len.max(mapping.offset.saturating_add(mapping.len));
        file.is_shared &= mapping.is_shared;
    }
    let mut files: Vec<MemoryFile> = files.into_values().collect();
    files.sort();
    files
}

/// Those of a process.
///
/// # Errors
/// When its mappings cannot be read: it is gone, or of another user.
pub fn memory_files_of(pid: u32, paths: &[&str]) -> Result<Vec<MemoryFile>, TrackerError> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|error| {
        let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        TrackerError::System { what: "read the hypervisor's mappings", source }
    })?;
    Ok(memory_files(&maps, paths))
}

/// Compares what a process has mapped of guest memory and shared with `told`, which its guest has by the word of
/// its hypervisor: what is seen of a part would be taken for all.
///
/// # Errors
/// [`TrackerError::Private`], [`TrackerError::NoMemory`] or [`TrackerError::Partly`]; and those of
/// [`memory_files_of`].
pub fn check_shared(pid: u32, paths: &[&str], told: u64) -> Result<(), TrackerError> {
    let files = memory_files_of(pid, paths)?;
    let sum = |is_shared| {
        files.iter().filter(|file| file.is_shared == is_shared).map(|file| file.len).sum::<u64>()
    };
    compare(sum(true), sum(false), told)
}

/// As [`check_shared`], of figures.
pub(crate) fn compare(shared: u64, private: u64, told: u64) -> Result<(), TrackerError> {
    match (shared, private) {
        // Of nothing there would be a working set of nothing.
        (0, 0) => Err(TrackerError::NoMemory),
        (0, private) => Err(TrackerError::Private { private }),
        _ if told > shared => Err(TrackerError::Partly { told, shared }),
        _ => Ok(()),
    }
}

/// Which regions are tracked, and which pages they have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    known: Vec<RegionSpec>,
    /// The number of the next region's first page.
    next_page: u64,
}

/// What a look at the mappings found to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<RegionSpec>,
    pub(crate) removed: Vec<u8>,
}

impl Regions {
    /// What changes so that exactly `files` are tracked.
    pub(crate) fn update(&mut self, files: &[MemoryFile]) -> Changes {
        let is_of = |region: &RegionSpec, file: &MemoryFile| {
            (region.device, region.inode, region.len) == (file.device, file.inode, file.len)
        };
        let mut changes = Changes::default();
        self.known.retain(|region| {
            let stays = files.iter().any(|file| is_of(region, file));
            if !stays {
                changes.removed.push(region.id);
            }
            stays
        });
        for file in files {
            if self.known.iter().any(|region| is_of(region, file)) {
                continue;
            }
            let is_free = |id: &u8| self.known.iter().all(|region| region.id != *id);
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
            let pages = (file.len / PAGE_SIZE).next_multiple_of(u64::from(Granule::PAGES_MAX));
            self.next_page += pages;
            self.known.push(region);
            changes.added.push(region);
        }
        changes
    }

    /// A region is gone.
    pub(crate) fn remove(&mut self, id: u8) {
        self.known.retain(|region| region.id != id);
    }

    /// The regions.
    pub(crate) fn known(&self) -> &[RegionSpec] {
        &self.known
    }

    /// Whether a page is one of theirs.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.known
            .iter()
            .any(|region| (region.first_page..region.first_page + region.pages()).contains(&page))
    }
}

#[cfg(test)]
mod tests {
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
    fn files_by_name_in_order() {
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

    #[test]
    fn what_comes_and_goes_keeps_the_numbers_of_the_rest() {
        let file = |inode, pages| MemoryFile {
            inode,
            device: (0, 1),
            len: pages * PAGE_SIZE,
            is_shared: true,
        };
        let (boot, plugged) = (file(10, 1025), file(11, 4));
        let mut regions = Regions::default();
        let first = regions.update(&[boot, plugged]);
        let pages: Vec<_> = first.added.iter().map(|it| (it.id, it.first_page)).collect();
        assert_eq!(pages, [(0, 0), (1, 2048)]);
        assert!(regions.has(1024) && !regions.has(1025) && regions.has(2051) && !regions.has(2052));
        assert_eq!(regions.update(&[boot, plugged]), Changes::default());
        assert_eq!(regions.update(&[boot]).removed, [1]);
        let again = regions.update(&[boot, file(12, 4)]);
        assert_eq!((again.added[0].id, again.added[0].first_page), (1, 3072));
        // One that grew is another.
        let grown = regions.update(&[file(10, 2048), file(12, 4)]);
        assert_eq!((grown.removed, grown.added[0].id), (vec![0], 0));
        regions.remove(1);
        assert_eq!(regions.known().len(), 1);
    }
}
