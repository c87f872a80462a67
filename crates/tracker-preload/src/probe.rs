//! Measures how long a trap stops a thread.
//!
//! The tracker revokes a few pages of its own, touches them, and takes the lower quartile of the
//! times of the last measurements. Slower times are those in which another thread had the
//! processor: that stops a virtual processor too, but not because of tracking. (A median of eight
//! varied from 8 to 170 µs within a minute.)
//!
//! A separate thread touches them: if the handler does not go on, the control thread must be free
//! to restore all permissions.
//!
//! Cost: four traps per measurement; on a starved machine each may take a tenth of a second.
//! Limits: measures a trap of a thread on *another* processor than the handler's. A virtual
//! processor beside the handler waits for a fraction of that; the daemon then uses the handler's
//! processor time instead (`TrackerCounters::trap_ns_since`).

use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::kernel::{Extent, TrapMechanism};
use crate::threads;

const PAGES: usize = 4;
const LEN: usize = PAGES * 4096;
/// Measurements kept.
const ROUNDS: usize = 8;
/// Longest time of a trap, and how much longer is waited before it counts as failed, because a
/// stalled machine stops all threads.
const TRAP_MAX: Duration = Duration::from_millis(800);
const SECOND_CHECK: Duration = Duration::from_millis(50);

/// Memory for the tracker's own traps.
pub(crate) struct TrapProbe {
    start: NonNull<u8>,
    times: TrapTimes,
    trapped: Option<TrapThread>,
}

/// The thread that touches the memory.
struct TrapThread {
    /// Closed when the thread must end.
    requests: Sender<()>,
    /// The time of each trap, in nanoseconds.
    times: Receiver<u64>,
    thread: JoinHandle<()>,
}

/// Trap times of the last measurements.
#[derive(Default)]
struct TrapTimes {
    ns: [[u64; PAGES]; ROUNDS],
    measured: usize,
}

impl TrapTimes {
    /// Adds a measurement; returns the lower quartile of all kept times.
    fn add(&mut self, ns: [u64; PAGES]) -> u64 {
        self.ns[self.measured % ROUNDS] = ns;
        self.measured += 1;
        let mut all = self.ns;
        let kept = &mut all.as_flattened_mut()[..self.measured.min(ROUNDS) * PAGES];
        kept.sort_unstable();
        kept[kept.len() / 4]
    }
}

// SAFETY: only the methods below touch the memory, one byte at a time.
unsafe impl Send for TrapProbe {}

impl TrapProbe {
    pub(crate) fn new() -> Result<TrapProbe, Errno> {
        let file = memfd_create("ballast-track-probe", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, LEN as u64)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), LEN, protection, flags, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        let mut probe = TrapProbe { start, times: TrapTimes::default(), trapped: None };
        for page in 0..PAGES {
            // Only pages that the file has cause minor faults.
            // SAFETY: within the mapping, which nothing else uses.
            unsafe { probe.start.add(page * 4096).write_volatile(1) };
        }
        probe.trapped = Some(probe.start_thread()?);
        Ok(probe)
    }

    fn start_thread(&self) -> Result<TrapThread, Errno> {
        let (requests, to_do) = channel();
        let (done, times) = channel();
        let start = self.extent().start as usize;
        let thread = threads::spawn("ballast-probe", move || {
            while to_do.recv().is_ok() {
                for page in 0..PAGES {
                    let before = Instant::now();
                    let address = (start + page * 4096) as *const u8;
                    // SAFETY: within the mapping, which lives until this thread has ended.
                    unsafe { address.read_volatile() };
                    let time = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    // Fails if the handler has failed, because then nothing waits for the times.
                    let _ = done.send(time);
                }
            }
        });
        Ok(TrapThread { requests, times, thread: thread.map_err(|_| Errno::AGAIN)? })
    }

    pub(crate) fn extent(&self) -> Extent {
        Extent::new(self.start.as_ptr() as u64, LEN as u64)
    }

    /// Measures the time of a trap, in nanoseconds; the handler must be running.
    ///
    /// # Errors
    /// `TIMEDOUT` if the handler does not answer.
    pub(crate) fn measure(&mut self, kernel: &dyn TrapMechanism) -> Result<u64, Errno> {
        kernel.revoke(&[self.extent()])?;
        let trapped = self.trapped.as_ref().ok_or(Errno::CANCELED)?;
        trapped.requests.send(()).map_err(|_| Errno::CANCELED)?;
        let mut times = [0; PAGES];
        for time in &mut times {
            let answer = trapped.times.recv_timeout(TRAP_MAX);
            let answer = answer.or_else(|_| trapped.times.recv_timeout(SECOND_CHECK));
            *time = answer.map_err(|_| Errno::TIMEDOUT)?;
        }
        Ok(self.times.add(times))
    }
}

impl Drop for TrapProbe {
    fn drop(&mut self) {
        if let Some(TrapThread { requests, times: _, thread }) = self.trapped.take() {
            drop(requests);
            // It cannot be waiting for a trap, because the memory is no longer registered.
            let _ = thread.join();
        }
        // SAFETY: the mapping made above; nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_give_the_lower_quartile_of_recent_measurements() {
        let mut times = TrapTimes::default();
        assert_eq!(times.add([4, 3, 2, 1]), 2);
        // Eight values: 1 to 4, and 1000 four times.
        assert_eq!(times.add([1000; PAGES]), 3);
        for _ in 0..ROUNDS {
            times.add([50; PAGES]);
        }
        assert_eq!(times.add([1; PAGES]), 50, "old measurements are dropped");
    }
}
