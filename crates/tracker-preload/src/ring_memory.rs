//! The memory of the ring that the daemon sent: a memfd, mapped here too.
//!
//! The file must be sealed: if it could shrink, the other side could kill the hypervisor
//! (`SIGBUS`).
//! Source: memfd_create(2), fcntl(2) on file seals.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use ballast_tracker_proto::{
    CAPACITY_MAX, CAPACITY_MIN, RefusalReason, RingProducer, TrackerRefusal, ring_bytes,
};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, major, minor};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// The mapping of the ring.
pub(crate) struct RingMemory {
    start: NonNull<AtomicU64>,
    len: usize,
    /// The file's device and inode: no region may be of this file.
    pub(crate) file: ((u32, u32), u64),
}

// SAFETY: the memory holds atomics and is mapped as long as this lives.
unsafe impl Send for RingMemory {}
// SAFETY: as above; atomics may be shared.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Maps the ring in `file`.
    ///
    /// # Errors
    /// [`RefusalReason::Ring`] unless it is a sealed memfd that holds an empty ring.
    pub(crate) fn map(file: BorrowedFd<'_>) -> Result<RingMemory, TrackerRefusal> {
        let refused = |error: Errno| TrackerRefusal {
            reason: RefusalReason::Ring,
            errno: crate::minor::errno(error),
        };
        let stat = fstat(file).map_err(refused)?;
        let needed = SealFlags::SHRINK | SealFlags::GROW;
        // Other kinds of files have no seals.
        let seals = fcntl_get_seals(file).map_err(refused)?;
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        let is_of_size = (ring_bytes(CAPACITY_MIN)..=ring_bytes(CAPACITY_MAX)).contains(&len);
        if !seals.contains(needed) || !is_of_size {
            return Err(refused(Errno::INVAL));
        }
        let len = len as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        let start =
            NonNull::new(start.map_err(refused)?.cast()).ok_or_else(|| refused(Errno::FAULT))?;
        let device = (major(stat.st_dev), minor(stat.st_dev));
        let memory = RingMemory { start, len, file: (device, stat.st_ino) };
        RingProducer::new(memory.words()).map_err(|_| refused(Errno::INVAL))?;
        Ok(memory)
    }

    /// A ring for tests, which `initialize` prepares.
    #[cfg(test)]
    pub(crate) fn of_test(initialize: impl FnOnce(&[AtomicU64])) -> RingMemory {
        let len = ring_bytes(CAPACITY_MIN) as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags).unwrap()
        };
        let start = NonNull::new(start.cast()).unwrap();
        let memory = RingMemory { start, len, file: ((0, 0), 0) };
        initialize(memory.words());
        memory
    }

    /// The ring's words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self` lives, page-aligned, and the seals fix its length. The
        // other side may write to it, which atomics allow.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.len / size_of::<AtomicU64>())
        }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use ballast_tracker_proto::ring_words;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn file(len: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("ring", flags).unwrap();
        ftruncate(&file, len).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn only_sealed_files_of_valid_size_and_header_are_accepted() {
        let both = SealFlags::SHRINK | SealFlags::GROW;
        let len = ring_bytes(CAPACITY_MIN);
        for (len, seals) in [
            (len, SealFlags::SHRINK),
            (len, SealFlags::GROW),
            (4096, both),
            (0, both),
            (1 << 40, both),
            // Without a header.
            (len, both),
        ] {
            let refused = RingMemory::map(file(len, seals).as_fd()).err().unwrap();
            assert_eq!(refused.reason, RefusalReason::Ring, "{len} {seals:?}");
        }
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(len).unwrap();
        assert!(RingMemory::map(plain.as_fd()).is_err());
        let header = [0x4241_4C4C_5452_0001_u64, CAPACITY_MIN].map(u64::to_ne_bytes).concat();
        let good = file(len, both);
        rustix::io::pwrite(&good, &header, 0).unwrap();
        let memory = RingMemory::map(good.as_fd()).unwrap();
        assert!(memory.words().len() >= ring_words(CAPACITY_MIN));
        assert!(
            RingProducer::new(memory.words())
                .unwrap()
                .push(ballast_tracker_proto::RingEntry::Time(1))
        );
    }
}
