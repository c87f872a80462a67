//! The memory of the ring: a memfd, sealed so that neither side can truncate it under the other.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use ballast_tracker_proto::{initialize_ring, ring_bytes};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::TrackerError;

/// The ring's file and its mapping.
#[derive(Debug)]
pub(crate) struct RingFile {
    start: NonNull<AtomicU64>,
    len: usize,
    pub(crate) file: OwnedFd,
}

// SAFETY: the memory holds atomics and is mapped as long as this lives.
unsafe impl Send for RingFile {}
// SAFETY: as above; atomics may be shared.
unsafe impl Sync for RingFile {}

impl RingFile {
    /// Creates an empty ring of `capacity` entries.
    pub(crate) fn create(capacity: u64) -> Result<RingFile, TrackerError> {
        let ring = map(ring_bytes(capacity)).map_err(TrackerError::system("make a ring"))?;
        initialize_ring(ring.words(), capacity)?;
        Ok(ring)
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

fn map(bytes: u64) -> Result<RingFile, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("ballast-track-ring", flags)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let len = usize::try_from(bytes).map_err(|_| Errno::NOMEM)?;
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, &file, 0)? };
    Ok(RingFile { start: NonNull::new(start.cast()).ok_or(Errno::FAULT)?, len, file })
}

impl Drop for RingFile {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
