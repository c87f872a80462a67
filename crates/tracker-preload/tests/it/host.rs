//! The host swaps out tracked memory, or makes huge pages of it.
//!
//! Limits: needs root for swap areas and huge pages; tests that cannot run print `not tried`.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use ballast_tracker::TrackerError;
use ballast_tracker_proto::RefusalReason;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

const FIRST: u64 = 1 << 20;
const HUGE: usize = 2 << 20;

/// A field of a mapping in `smaps`, in KiB.
fn smaps_kib(memory: &Memory, name: &str) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", memory.start() as usize);
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

fn advise(memory: &Memory, advice: i32) -> std::io::Result<()> {
    // SAFETY: the whole mapping; the advice used here keeps its contents.
    match unsafe { libc::madvise(memory.start().cast(), memory.pages * PAGE, advice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A swap area, removed on drop.
struct SwapArea(PathBuf);

impl SwapArea {
    /// `None` if this process may not make one.
    fn new(folder: &Path, len: u64) -> Option<SwapArea> {
        let path = folder.join("swap");
        let file = fs::File::create(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, len).ok()?;
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let run = |program: &str| Command::new(program).arg(&path).output().ok();
        run("mkswap")?.status.success().then_some(())?;
        run("swapon")?.status.success().then(|| SwapArea(path.clone()))
    }
}

impl Drop for SwapArea {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

#[test]
fn touches_of_swapped_pages_are_seen_and_answered() {
    let Some(_turn) = turn() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(_swap) = SwapArea::new(folder.path(), 64 << 20) else {
        return println!("SKIPPED: no swap area to be had");
    };
    let memory = Memory::new(4096);
    let (_tracker, address) = tracker();
    let mut client = client(&address);
    client.add_region(memory.region(0, FIRST)).unwrap();
    for granule in [1, 32] {
        client.set_mode(all_of(granule)).unwrap();
        wait_until("memory to be swapped out", || {
            advise(&memory, libc::MADV_PAGEOUT).unwrap();
            client.heartbeat().unwrap();
            // More than half: the kernel may keep some pages.
            smaps_kib(&memory, "Swap") > 8 << 10
        });
        client.revoke(1).unwrap();
        entries(&mut client);
        // Two threads: one that waits for swap must not block the other.
        std::thread::scope(|scope| {
            for part in 0..2 {
                let memory = &memory;
                scope.spawn(move || {
                    for page in (part * 2048)..(part + 1) * 2048 {
                        assert_eq!(memory.read(page), page as u8);
                    }
                });
            }
        });
        let seen = set(&pages(&entries(&mut client))
            .iter()
            .map(|it| it / u64::from(granule))
            .collect::<Vec<_>>());
        let expected = (FIRST..FIRST + 4096).map(|it| it / u64::from(granule)).collect();
        assert_eq!(seen, expected);
        assert_eq!(smaps_kib(&memory, "Swap"), 0);
    }
    client.rest().unwrap();
    memory.touch(0..4096);
}

#[test]
fn transparent_huge_pages_are_tracked_page_by_page() {
    let Some(_turn) = turn() else { return };
    // Aligned, so that huge pages are possible.
    let memory = Memory::aligned(8 * 512, HUGE);
    (0..memory.pages).for_each(|page| memory.write(page, page as u8));
    let _ = advise(&memory, libc::MADV_COLLAPSE);
    if smaps_kib(&memory, "ShmemPmdMapped") == 0 {
        return println!("SKIPPED: this kernel makes no huge pages of shared memory");
    }
    let (_tracker, address) = tracker();
    let mut client = client(&address);
    client.set_mode(all_of(1)).unwrap();
    client.add_region(memory.region(0, FIRST)).unwrap();
    for round in 1..4 {
        client.revoke(round).unwrap();
        memory.touch([5, 700, 4095]);
        assert_eq!(pages(&entries(&mut client)), [FIRST + 5, FIRST + 700, FIRST + 4095]);
        // The kernel may make huge pages again, or refuse.
        let _ = advise(&memory, libc::MADV_COLLAPSE);
        client.heartbeat().unwrap();
    }
    client.rest().unwrap();
    memory.touch(0..memory.pages);
}

/// Huge pages of the host, returned on drop.
struct ReservedHugePages(String);

impl ReservedHugePages {
    const COUNT: &str = "/proc/sys/vm/nr_hugepages";

    fn take(more: u64) -> Option<ReservedHugePages> {
        let before = fs::read_to_string(Self::COUNT).ok()?;
        let count = before.trim().parse::<u64>().ok()? + more;
        fs::write(Self::COUNT, count.to_string()).ok()?;
        let taken = ReservedHugePages(before);
        let now = fs::read_to_string(Self::COUNT).ok()?;
        (now.trim().parse::<u64>().ok()? == count).then_some(taken)
    }
}

impl Drop for ReservedHugePages {
    fn drop(&mut self) {
        let _ = fs::write(Self::COUNT, self.0.trim());
    }
}

#[test]
fn memory_of_huge_pages_is_refused() {
    let Some(_turn) = turn() else { return };
    let Some(_taken) = ReservedHugePages::take(2) else {
        return println!("SKIPPED: no huge pages to be had");
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let file = memfd_create("memory-backend-memfd", flags).unwrap();
    ftruncate(&file, HUGE as u64).unwrap();
    let start = map(std::ptr::null_mut(), HUGE, libc::MAP_SHARED, file.as_raw_fd());
    let memory = Memory::of(file, start, 512);
    memory.write(3, 3);
    let (_tracker, address) = tracker();
    let mut client = client(&address);
    let error = client.add_region(memory.region(0, FIRST)).unwrap_err();
    let TrackerError::Refused(refused) = &error else { panic!("{error}") };
    assert_eq!(refused.reason, RefusalReason::HugePages);
    assert!(error.is_lasting() && error.to_string().contains("huge pages"), "{error}");
    // The attempt leaves nothing registered.
    assert!(!memory.is_registered());
    assert_eq!(memory.read(3), 3);
    client.revoke(1).unwrap();
}
