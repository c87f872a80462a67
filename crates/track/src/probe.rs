//! How long a trap stops whoever makes it.
//!
//! Idea: the tracker traps itself: it revokes some pages of its own, touches them, and takes the lower
//! quartile of the times of the last few measurements. The slower ones are those in which somebody else
//! had the processor of either thread (a median of eight was seen to say 8 to 170 µs within a minute),
//! which stops a virtual processor too, but not because it is tracked.
//!
//! Cost: four traps a measurement; on a starved machine each may take a tenth of a second.
//! Limits: it is what a trap takes of a thread on *another* processor than the handler's. A virtual processor
//! beside which the handler is placed waits for a fraction of that, and whoever placed it there reckons by
//! the handler's processor time instead (`Counters::trap_ns_since` of `track-wire`).

use std::ptr::NonNull;
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::kernel::{Extent, Kernel};

const PAGES: usize = 4;
const LEN: usize = PAGES * 4096;
/// Measurements that are remembered.
const ROUNDS: usize = 8;

/// Memory to be trapped on.
pub(crate) struct Probe {
    start: NonNull<u8>,
    times: Times,
}

/// The times of the last measurements.
#[derive(Default)]
struct Times {
    ns: [[u64; PAGES]; ROUNDS],
    measured: usize,
}

impl Times {
    /// Takes in those of a measurement; the lower quartile of all that are remembered.
    fn enter(&mut self, ns: [u64; PAGES]) -> u64 {
        self.ns[self.measured % ROUNDS] = ns;
        self.measured += 1;
        let mut all = self.ns;
        let known = &mut all.as_flattened_mut()[..self.measured.min(ROUNDS) * PAGES];
        known.sort_unstable();
        known[known.len() / 4]
    }
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
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        let probe = Probe { start, times: Times::default() };
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

    /// The time of a trap, in nanoseconds; the handler must be answering.
    pub(crate) fn measure(&mut self, kernel: &dyn Kernel) -> Result<u64, Errno> {
        kernel.revoke(&[self.extent()])?;
        let mut times = [0; PAGES];
        for (page, time) in times.iter_mut().enumerate() {
            let before = Instant::now();
            // SAFETY: within the mapping, that nobody else has.
            unsafe { self.start.add(page * 4096).read_volatile() };
            *time = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(self.times.enter(times))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, that nothing refers to any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_quartile_of_the_last_measurements() {
        let mut times = Times::default();
        assert_eq!(times.enter([4, 3, 2, 1]), 2);
        // Eight: the four and a thousand four times.
        assert_eq!(times.enter([1000; PAGES]), 3);
        for _ in 0..ROUNDS {
            times.enter([50; PAGES]);
        }
        assert_eq!(times.enter([1; PAGES]), 50, "what was long ago is forgotten");
    }
}
