//! The counters of a workload, in memory shared with another process.
//!
//! Idea: a few atomic words on a page that the workload shares with the process that reports. The
//! reader never waits for the workload, which may be stuck in a page fault for seconds. The page is
//! a memfd, which the workload gets as its standard input.
//! Limits: words are read one by one, so a report may mix values microseconds apart.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use ballast_lab_guest::protocol::WorkloadState;
use ballast_model::Bytes;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

const PAGE_BYTES: usize = 4096;

/// The words on the page; a new memfd is zero.
#[derive(Default)]
#[repr(C)]
struct CounterPage {
    touches: AtomicU64,
    iterations: AtomicU64,
    size: AtomicU64,
    size_wanted: AtomicU64,
    phase: AtomicU64,
}

/// The counters of one workload.
pub(crate) struct Counters {
    page: NonNull<CounterPage>,
}

// SAFETY: the words are atomic, and the mapping lives as long as the value.
unsafe impl Send for Counters {}
// SAFETY: as above; nothing but atomics is reached through a shared reference.
unsafe impl Sync for Counters {}

impl Counters {
    /// Creates counters, and the file that another process maps to share them.
    pub(crate) fn create() -> Result<(Counters, OwnedFd), String> {
        let memfd = rustix::fs::memfd_create("counters", MemfdFlags::CLOEXEC)
            .map_err(|error| format!("cannot create the counters' memfd: {error}"))?;
        rustix::fs::ftruncate(&memfd, PAGE_BYTES as u64)
            .map_err(|error| format!("cannot create the counters' memfd: {error}"))?;
        Ok((Counters::map(&memfd)?, memfd))
    }

    /// Maps the counters in a file that [`Counters::create`] made.
    pub(crate) fn open(file: &impl AsFd) -> Result<Counters, String> {
        let stat = rustix::fs::fstat(file)
            .map_err(|error| format!("cannot stat the counters' file: {error}"))?;
        if stat.st_size != PAGE_BYTES as i64 {
            return Err(format!("counters' file: {} bytes, expected {PAGE_BYTES}", stat.st_size));
        }
        Counters::map(file)
    }

    fn map(file: &impl AsFd) -> Result<Counters, String> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use; the file
        // has a whole page, which holds `CounterPage` and is aligned for it.
        let page = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, flags, MapFlags::SHARED, file, 0)
        }
        .map_err(|error| format!("cannot map the counters: {error}"))?;
        let page =
            NonNull::new(page.cast()).ok_or("cannot map the counters: mapped at address 0")?;
        Ok(Counters { page })
    }

    fn page(&self) -> &CounterPage {
        // SAFETY: the mapping is whole, aligned, initialised (with zeroes) and lives as long as
        // `self`; any bytes are valid atomics.
        unsafe { self.page.as_ref() }
    }

    pub(crate) fn touches(&self) -> u64 {
        self.page().touches.load(Ordering::Relaxed)
    }

    pub(crate) fn set_touches(&self, touches: u64) {
        self.page().touches.store(touches, Ordering::Relaxed);
    }

    pub(crate) fn iterations(&self) -> u64 {
        self.page().iterations.load(Ordering::Relaxed)
    }

    pub(crate) fn set_iterations(&self, iterations: u64) {
        self.page().iterations.store(iterations, Ordering::Relaxed);
    }

    pub(crate) fn size(&self) -> Bytes {
        Bytes::new(self.page().size.load(Ordering::Relaxed))
    }

    pub(crate) fn set_size(&self, size: Bytes) {
        self.page().size.store(size.get(), Ordering::Relaxed);
    }

    pub(crate) fn size_wanted(&self) -> Bytes {
        Bytes::new(self.page().size_wanted.load(Ordering::Relaxed))
    }

    pub(crate) fn set_size_wanted(&self, size: Bytes) {
        self.page().size_wanted.store(size.get(), Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> WorkloadState {
        match self.page().phase.load(Ordering::Relaxed) {
            1 => WorkloadState::Filling,
            2 => WorkloadState::Touching,
            3 => WorkloadState::Waiting,
            _ => WorkloadState::Starting,
        }
    }

    pub(crate) fn set_phase(&self, phase: WorkloadState) {
        let word = match phase {
            WorkloadState::Starting => 0,
            WorkloadState::Filling => 1,
            WorkloadState::Touching => 2,
            WorkloadState::Waiting => 3,
        };
        self.page().phase.store(word, Ordering::Relaxed);
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Maps the counters that another process passed as standard input.
pub(crate) fn from_stdin() -> Result<Counters, String> {
    let stdin = std::io::stdin();
    let file = stdin.as_fd().try_clone_to_owned().map(File::from);
    Counters::open(&file.map_err(|error| format!("standard input: {error}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mapping_reads_what_another_writes() {
        let (reader, memfd) = Counters::create().unwrap();
        assert_eq!((reader.touches(), reader.phase()), (0, WorkloadState::Starting));
        let writer = Counters::open(&memfd).unwrap();
        writer.set_touches(5);
        writer.set_iterations(2);
        writer.set_size(Bytes::mib(3));
        writer.set_size_wanted(Bytes::mib(4));
        for phase in [
            WorkloadState::Filling,
            WorkloadState::Touching,
            WorkloadState::Waiting,
            WorkloadState::Starting,
        ] {
            writer.set_phase(phase);
            assert_eq!(reader.phase(), phase);
        }
        drop(writer);
        assert_eq!((reader.touches(), reader.iterations()), (5, 2));
        assert_eq!((reader.size(), reader.size_wanted()), (Bytes::mib(3), Bytes::mib(4)));
    }

    #[test]
    fn file_of_wrong_size_is_refused() {
        let memfd = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        assert!(Counters::open(&memfd).is_err());
    }
}
