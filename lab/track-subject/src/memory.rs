//! Memory that is a file, mapped and shared.

use std::os::fd::OwnedFd;

use anyhow::Context;
use ballast_track_subject::PAGE;
use rustix::fs::{MemfdFlags, fstat, ftruncate, major, memfd_create, minor};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The memory, of whole pages, every one of which is stored.
pub(crate) struct Memory {
    file: OwnedFd,
    start: *mut u64,
    bytes: u64,
}

// SAFETY: words are read and written volatile by one thread at a time; the mapping lives as long.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(bytes: u64) -> anyhow::Result<Memory> {
        let file = memfd_create("memory-backend-memfd", MemfdFlags::CLOEXEC)
            .context("cannot make a file in memory")?;
        ftruncate(&file, bytes).context("cannot give the file its size")?;
        let len = usize::try_from(bytes).context("more memory than can be addressed")?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where there is none.
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
        let stat = fstat(&self.file).context("cannot look at the file")?;
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
        // SAFETY: the mapping made above; nobody touches it any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes as usize) };
    }
}
