//! Memory as a shared mapping of a file.

use std::os::fd::OwnedFd;

use anyhow::Context;
use ballast_track_subject::PAGE;
use rustix::fs::{MemfdFlags, fstat, ftruncate, major, memfd_create, minor};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Shared memory of whole pages, all of them written once.
pub(crate) struct Memory {
    file: OwnedFd,
    start: *mut u64,
    bytes: u64,
}

// SAFETY: one thread at a time accesses words, with volatile accesses; the mapping lives as long as
// the value.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(bytes: u64) -> anyhow::Result<Memory> {
        let file = memfd_create("memory-backend-memfd", MemfdFlags::CLOEXEC)
            .context("cannot create a memfd")?;
        ftruncate(&file, bytes).context("cannot set the memfd's size")?;
        let len = usize::try_from(bytes).context("the memory is larger than the address space")?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) };
        let memory = Memory { file, start: start.context("cannot map the memory")?.cast(), bytes };
        for page in 0..bytes / PAGE {
            memory.write(page * PAGE / 8, page);
        }
        Ok(memory)
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn words(&self) -> u64 {
        self.bytes / 8
    }

    /// Major and minor number of the file's device, and its inode.
    pub(crate) fn file_id(&self) -> anyhow::Result<(u32, u32, u64)> {
        let stat = fstat(&self.file).context("cannot stat the memfd")?;
        Ok((major(stat.st_dev), minor(stat.st_dev), stat.st_ino))
    }

    #[inline(always)]
    pub(crate) fn read(&self, word: u64) -> u64 {
        assert!(word < self.words());
        // SAFETY: within the mapping, and aligned.
        unsafe { self.start.add(word as usize).read_volatile() }
    }

    pub(crate) fn write(&self, word: u64, value: u64) {
        assert!(word < self.words());
        // SAFETY: within the mapping, and aligned.
        unsafe { self.start.add(word as usize).write_volatile(value) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `Memory` made this mapping, and no reference into it exists.
        let _ = unsafe { munmap(self.start.cast(), self.bytes as usize) };
    }
}
