//! Makes the test process look like a hypervisor: shared memory in a file, and a tracker.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ballast_track::Tracker;
use ballast_tracker::{TrackerClient, TrackerError};
use ballast_tracker_proto::{
    CAPACITY_DEFAULT, Granule, GranuleSample, RegionName, RegionSpec, RingEntry, TrackerAddress,
    WatchMode,
};
use rustix::fs::{MemfdFlags, fstat, ftruncate, major, memfd_create, minor};

pub(crate) const PAGE: usize = 4096;
/// Only a hang exceeds this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process has one tracker, so tests take turns.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    let may_anybody = setting.is_ok_and(|setting| setting.trim() == "1");
    if !rustix::process::geteuid().is_root() && !may_anybody {
        println!("SKIPPED: needs root, or the permission of vm.unprivileged_userfaultfd");
        return None;
    }
    static TURN: Mutex<()> = Mutex::new(());
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A unique address.
pub(crate) fn address() -> TrackerAddress {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("ballast-track-{}-{count}.sock", std::process::id());
    TrackerAddress::new(std::env::temp_dir().join(name))
}

pub(crate) fn tracker() -> (Tracker, TrackerAddress) {
    let address = address();
    (Tracker::start(&address, None).unwrap(), address)
}

/// A client of this process's tracker.
pub(crate) fn client(address: &TrackerAddress) -> TrackerClient {
    connect(address, CAPACITY_DEFAULT).unwrap()
}

/// The same with a ring of `capacity` entries, if it is not refused.
pub(crate) fn connect(
    address: &TrackerAddress,
    capacity: u64,
) -> Result<TrackerClient, TrackerError> {
    TrackerClient::connect(address, std::process::id(), capacity, None)
}

/// Guest memory.
pub(crate) struct Memory {
    pub(crate) file: OwnedFd,
    start: *mut u8,
    pub(crate) pages: usize,
}

// SAFETY: only the methods below touch it; their races are byte accesses, as in guest memory, and
// intended.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory whose pages are all written.
    pub(crate) fn new(pages: usize) -> Memory {
        let memory = Memory::mapped(pages, libc::MAP_SHARED);
        (0..pages).for_each(|page| memory.write(page, page as u8));
        memory
    }

    pub(crate) fn mapped(pages: usize, flags: i32) -> Memory {
        let file = memfd_create("memory-backend-memfd", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, (pages * PAGE) as u64).unwrap();
        let start = map(std::ptr::null_mut(), pages * PAGE, flags, file.as_raw_fd());
        Memory { file, start, pages }
    }

    pub(crate) fn of(file: OwnedFd, start: *mut u8, pages: usize) -> Memory {
        Memory { file, start, pages }
    }

    /// Memory that begins at a multiple of `alignment`.
    pub(crate) fn aligned(pages: usize, alignment: usize) -> Memory {
        let memory = Memory::mapped(pages, libc::MAP_SHARED);
        let space = map(
            std::ptr::null_mut(),
            pages * PAGE + alignment,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
        );
        let start = (space as usize).next_multiple_of(alignment) as *mut u8;
        let file = memory.file.try_clone().unwrap();
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        map(start, pages * PAGE, fixed, file.as_raw_fd());
        // The rest of the reserved space on either side stays mapped.
        Memory { file, start, pages }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn read(&self, page: usize) -> u8 {
        assert!(page < self.pages);
        // SAFETY: within the mapping.
        unsafe { self.start.add(page * PAGE).read_volatile() }
    }

    pub(crate) fn write(&self, page: usize, value: u8) {
        assert!(page < self.pages);
        // SAFETY: within the mapping.
        unsafe { self.start.add(page * PAGE).write_volatile(value) }
    }

    /// Reads pages from another thread, and waits for it.
    pub(crate) fn touch(&self, pages: impl IntoIterator<Item = usize> + Send) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pages.into_iter().for_each(|page| assert_eq!(self.read(page), page as u8))
            });
        });
    }

    pub(crate) fn region(&self, id: u8, first_page: u64) -> RegionSpec {
        let stat = fstat(&self.file).unwrap();
        RegionSpec {
            id,
            device: (major(stat.st_dev), minor(stat.st_dev)),
            inode: stat.st_ino,
            offset: 0,
            len: (self.pages * PAGE) as u64,
            first_page,
            name: RegionName::new("ram"),
        }
    }

    /// Unmaps the memory as a hypervisor would, so that the tracker intercepts it.
    pub(crate) fn unmap(&self) {
        // SAFETY: the mapping made above; the test does not touch it any more.
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.pages * PAGE) }, 0);
    }

    pub(crate) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether the mapping is registered with a userfaultfd for minor faults.
    pub(crate) fn is_registered(&self) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", self.start as usize);
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("VmFlags");
        flags.split_ascii_whitespace().any(|flag| flag == "ui")
    }
}

/// Maps memory by the C library's function, as a hypervisor does.
pub(crate) fn map(at: *mut u8, len: usize, flags: i32, fd: i32) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; tests that replace one do not touch the old one any more.
    let start = unsafe { libc::mmap(at.cast(), len, protection, flags, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.unmap();
    }
}

pub(crate) fn all_of(pages: u32) -> WatchMode {
    WatchMode { granule: Granule::new(pages).unwrap(), sample: GranuleSample::ALL }
}

/// The entries in the ring, except times.
pub(crate) fn entries(client: &mut TrackerClient) -> Vec<RingEntry> {
    let mut all = Vec::new();
    while client.read(1000, |entry| all.push(entry)).unwrap() > 0 {}
    all.retain(|entry| !matches!(entry, RingEntry::Time(_)));
    all
}

/// The touched pages among entries.
pub(crate) fn pages(entries: &[RingEntry]) -> Vec<u64> {
    let page = |entry: &RingEntry| match entry {
        RingEntry::Touch { page, .. } => Some(*page),
        _ => None,
    };
    entries.iter().filter_map(page).collect()
}

pub(crate) fn set(pages: &[u64]) -> BTreeSet<u64> {
    pages.iter().copied().collect()
}

pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
