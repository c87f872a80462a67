//! What a workload counts, where another process can read it.
//!
//! Idea: a few atomic words on a page shared between the workload and the process that reports. The
//! reader never waits for the workload, which may hang in a fault for seconds. The page is a memfd;
//! the workload finds it at its standard input.
//! Limits: words are read one by one; a report may mix two moments microseconds apart.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use ballast_lab_guest::protocol::Phase;
use ballast_model::Bytes;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

const PAGE_BYTES: usize = 4096;

/// The words on the page; zero is what a new memfd holds.
#[derive(Default)]
#[repr(C)]
struct Words {
    touches: AtomicU64,
    iterations: AtomicU64,
    size: AtomicU64,
    size_wanted: AtomicU64,
    phase: AtomicU64,
}

/// The counters of one workload.
pub(crate) struct Counters {
    words: NonNull<Words>,
}

// SAFETY: the words are atomic, and the mapping lives as long as the value.
unsafe impl Send for Counters {}
// SAFETY: as above; nothing but atomics is reached through a shared reference.
unsafe impl Sync for Counters {}

impl Counters {
    /// New counters and the file another process maps to share them.
    pub(crate) fn create() -> Result<(Counters, OwnedFd), String> {
        let memfd = rustix::fs::memfd_create("counters", MemfdFlags::CLOEXEC)
            .map_err(|error| format!("memfd for counters: {error}"))?;
        rustix::fs::ftruncate(&memfd, PAGE_BYTES as u64)
            .map_err(|error| format!("memfd for counters: {error}"))?;
        Ok((Counters::map(&memfd)?, memfd))
    }

    /// The counters in a file that [`Counters::create`] made.
    pub(crate) fn open(file: &impl AsFd) -> Result<Counters, String> {
        let stat = rustix::fs::fstat(file).map_err(|error| format!("file of counters: {error}"))?;
        if stat.st_size != PAGE_BYTES as i64 {
            return Err(format!("file of counters: {} bytes, expected {PAGE_BYTES}", stat.st_size));
        }
        Counters::map(file)
    }

    fn map(file: &impl AsFd) -> Result<Counters, String> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use; the file
        // has a whole page, which holds `Words` and is aligned for it.
        let page = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, flags, MapFlags::SHARED, file, 0)
        }
        .map_err(|error| format!("mapping of counters: {error}"))?;
        let words = NonNull::new(page.cast()).ok_or("mapping of counters: at address 0")?;
        Ok(Counters { words })
    }

    fn words(&self) -> &Words {
        // SAFETY: the mapping is whole, aligned, initialised (with zeroes) and lives as long as `self`;
        // any bytes are valid atomics.
        unsafe { self.words.as_ref() }
    }

    pub(crate) fn touches(&self) -> u64 {
        self.words().touches.load(Ordering::Relaxed)
    }

    pub(crate) fn set_touches(&self, touches: u64) {
        self.words().touches.store(touches, Ordering::Relaxed);
    }

    pub(crate) fn iterations(&self) -> u64 {
        self.words().iterations.load(Ordering::Relaxed)
    }

    pub(crate) fn set_iterations(&self, iterations: u64) {
        self.words().iterations.store(iterations, Ordering::Relaxed);
    }

    pub(crate) fn size(&self) -> Bytes {
        Bytes::new(self.words().size.load(Ordering::Relaxed))
    }

    pub(crate) fn set_size(&self, size: Bytes) {
        self.words().size.store(size.get(), Ordering::Relaxed);
    }

    pub(crate) fn size_wanted(&self) -> Bytes {
        Bytes::new(self.words().size_wanted.load(Ordering::Relaxed))
    }

    pub(crate) fn set_size_wanted(&self, size: Bytes) {
        self.words().size_wanted.store(size.get(), Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.words().phase.load(Ordering::Relaxed) {
            1 => Phase::Filling,
            2 => Phase::Touching,
            3 => Phase::Waiting,
            _ => Phase::Starting,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        let word = match phase {
            Phase::Starting => 0,
            Phase::Filling => 1,
            Phase::Touching => 2,
            Phase::Waiting => 3,
        };
        self.words().phase.store(word, Ordering::Relaxed);
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The counters another process handed over at standard input.
pub(crate) fn from_stdin() -> Result<Counters, String> {
    let stdin = std::io::stdin();
    let file = stdin.as_fd().try_clone_to_owned().map(File::from);
    Counters::open(&file.map_err(|error| format!("standard input: {error}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_counts_the_other_reads() {
        let (reader, memfd) = Counters::create().unwrap();
        assert_eq!((reader.touches(), reader.phase()), (0, Phase::Starting));
        let writer = Counters::open(&memfd).unwrap();
        writer.set_touches(5);
        writer.set_iterations(2);
        writer.set_size(Bytes::mib(3));
        writer.set_size_wanted(Bytes::mib(4));
        for phase in [Phase::Filling, Phase::Touching, Phase::Waiting, Phase::Starting] {
            writer.set_phase(phase);
            assert_eq!(reader.phase(), phase);
        }
        drop(writer);
        assert_eq!((reader.touches(), reader.iterations()), (5, 2));
        assert_eq!((reader.size(), reader.size_wanted()), (Bytes::mib(3), Bytes::mib(4)));
    }

    #[test]
    fn a_file_of_another_size_holds_no_counters() {
        let memfd = rustix::fs::memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        assert!(Counters::open(&memfd).is_err());
    }
}
