//! How long a trap stops whoever makes it.
//!
//! Idea: the tracker traps itself: it revokes some pages of its own, touches them, and takes the median
//! of the times. It is what a virtual processor waits, with the same thread answering on the same
//! machine under the same load.
//!
//! Cost: eight traps a measurement.
//! Limits: measured from the control thread's processor; a virtual processor beside which the handler
//! is placed waits less.

use std::ptr::NonNull;
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::kernel::{Extent, Kernel};

const PAGES: usize = 8;
const LEN: usize = PAGES * 4096;

/// Memory to be trapped on.
pub(crate) struct Probe {
    start: NonNull<u8>,
}

// SAFETY: memory that only the methods below touch, one byte at a time.
unsafe impl Send for Probe {}

impl Probe {
    pub(crate) fn new() -> Result<Probe, Errno> {
        let file = memfd_create("ballast-track-probe", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, LEN as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, protection, flags, &file, 0)? };
        let probe = Probe { start: NonNull::new(start.cast()).ok_or(Errno::FAULT)? };
        for page in 0..PAGES {
            // A page that the file does not have is no minor fault.
            // SAFETY: within the mapping, that nobody else has.
            unsafe { probe.start.add(page * 4096).write_volatile(1) };
        }
        Ok(probe)
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent::new(self.start.as_ptr() as u64, LEN as u64)
    }

    /// The median time of a trap, in nanoseconds; the handler must be answering.
    pub(crate) fn measure(&self, kernel: &dyn Kernel) -> Result<u64, Errno> {
        kernel.revoke(&[self.extent()])?;
        let mut times = [0; PAGES];
        for (page, time) in times.iter_mut().enumerate() {
            let before = Instant::now();
            // SAFETY: within the mapping, that nobody else has.
            unsafe { self.start.add(page * 4096).read_volatile() };
            *time = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        times.sort_unstable();
        Ok(times[PAGES / 2])
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, that nothing refers to any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), LEN) };
    }
}
