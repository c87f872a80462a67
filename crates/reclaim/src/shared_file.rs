//! The file that shared guest memory is in, seen past the hypervisor's page table.
//!
//! Idea: of a shared file the hypervisor's page table tells only what the hypervisor has touched since. A page that was
//! swapped out is not in it; nor is one from which a tracker took permission. The file itself knows: the kernel
//! opens it for whoever may (`map_files`), `cachestat` counts what is in memory and what is in swap, and through a
//! mapping of our own pages are read back, or evicted where no one has them mapped.
//!
//! A page is never read back this way into the hypervisor's page table, so that a tracker sees no touch that the
//! guest did not make.
//!
//! Cost: 0.2 to 0.4 ms to count 64 MiB; 1.2 µs a page where each is asked for. The file is open for one step only:
//! an open one would keep the memory of a guest that has ended.
//! Source: cachestat(2) (Linux 6.5), proc_pid_map_files(5).
//! Limits: needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN. A page that other processes have mapped as well (a back end
//! of vhost-user) is not evicted.

use std::os::fd::{AsFd, OwnedFd};

use ballast_model::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::kernel::{CacheStat, Own, cachestat, through_own_mapping};
use crate::{AddressRange, Refusal, Region, Vmm};

/// The file of a region.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: OwnedFd,
    region: Region,
}

impl SharedFile {
    /// Opens it.
    ///
    /// # Errors
    /// [`Refusal::Permission`], [`Refusal::KernelTooOld`], [`Refusal::Gone`] or [`Refusal::Unreadable`]: the mapping
    /// has changed since, or its file is none of memory.
    pub(crate) fn open(vmm: &Vmm, region: &Region) -> Result<SharedFile, Refusal> {
        let pid = vmm.pid();
        let name = format!("map_files/{:x}-{:x}", region.mapping.start(), region.mapping.end());
        // One who may write to it needs no more for `cachestat`; a sealed file opens for reading only.
        let opened =
            vmm.open_file(&name, OFlags::RDWR).or_else(|_| vmm.open_file(&name, OFlags::RDONLY));
        let file = opened.map_err(|error| match error {
            Errno::ACCESS | Errno::PERM => Refusal::Permission {
                pid,
                what: "open the file of its shared memory",
                needs: "CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN",
            },
            Errno::SRCH => Refusal::Gone { pid },
            error => Refusal::unreadable(&vmm.path_of(&name), error),
        })?;
        let file = SharedFile { file, region: *region };
        match file.stat(region.range.split(Bytes::pages(1)).0) {
            Ok(_) => Ok(file),
            Err(Errno::NOSYS) => Err(Refusal::KernelTooOld { call: "cachestat", since: "6.5" }),
            Err(error) => Err(Refusal::unreadable(&vmm.path_of(&name), error)),
        }
    }

    /// What is in memory of `range`, and what in swap.
    pub(crate) fn stat(&self, range: AddressRange) -> Result<CacheStat, Errno> {
        let range = range.intersection(self.region.range);
        cachestat(self.file.as_fd(), self.offset(range), range.len())
    }

    /// The parts of `range` that are in memory, or in swap, lowest first; up to `most` of them in bytes.
    pub(crate) fn parts(
        &self,
        range: AddressRange,
        is_in: impl Fn(&CacheStat) -> Bytes,
        most: Bytes,
    ) -> Vec<AddressRange> {
        let mut parts: Vec<AddressRange> = Vec::new();
        let mut found = Bytes::ZERO;
        // Halves of halves, where neither all nor nothing is: the file system has no list of pages.
        let mut open = vec![range.intersection(self.region.range)];
        while let Some(range) = open.pop().filter(|_| found < most) {
            let part = self.stat(range).map_or(Bytes::ZERO, |stat| is_in(&stat));
            if part == Bytes::ZERO {
                continue;
            }
            if part < range.len() && range.len() > Bytes::pages(1) {
                let (low, high) = range.split(Bytes::pages(range.len().to_pages() / 2));
                open.extend([high, low]);
                continue;
            }
            let taken = range.split(most.saturating_sub(found)).0;
            found += taken.len();
            match parts.last_mut().filter(|last| last.end() == taken.start()) {
                Some(last) => *last = AddressRange::new(last.start(), taken.end()),
                None => parts.push(taken),
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Reads `range` from swap, or evicts what nobody has mapped of it.
    pub(crate) fn act(&self, range: AddressRange, what: Own) -> Result<(), Errno> {
        let range = range.intersection(self.region.range);
        match range.is_empty() {
            true => Ok(()),
            false => through_own_mapping(&self.file, self.offset(range), range.len(), what),
        }
    }

    fn offset(&self, range: AddressRange) -> u64 {
        self.region.offset + (range.start() - self.region.range.start())
    }
}
