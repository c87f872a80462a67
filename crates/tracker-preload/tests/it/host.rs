//! What the host does to guest memory while it is tracked: it swaps it out, and makes huge pages of it.
//!
//! Limits: swap areas and huge pages are the host's, and only root may have some: what cannot be tried is said.

// Shared with the other tests, which use all of it.
#[allow(dead_code)]
mod common;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use ballast_track_wire::Refusal;
use ballast_tracker::TrackerError;
use common::*;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

const FIRST: u64 = 1 << 20;
const HUGE: usize = 2 << 20;

/// A figure of a mapping, in KiB.
fn figure(memory: &Memory, name: &str) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", memory.start() as usize);
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

fn advise(memory: &Memory, advice: i32) -> std::io::Result<()> {
    // SAFETY: all of the mapping; what is advised here leaves what is stored as it is.
    match unsafe { libc::madvise(memory.start().cast(), memory.pages * PAGE, advice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A swap area for as long as it lives.
struct Swap(PathBuf);

impl Swap {
    /// `None` where the host has one, or this process may make none.
    fn new(folder: &Path, len: u64) -> Option<Swap> {
        let path = folder.join("swap");
        let file = fs::File::create(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, len).ok()?;
        rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let run = |program: &str| Command::new(program).arg(&path).output().ok();
        run("mkswap")?.status.success().then_some(())?;
        run("swapon")?.status.success().then(|| Swap(path.clone()))
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

#[test]
fn what_the_host_has_swapped_out_is_seen_and_comes_back() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let Some(_swap) = Swap::new(folder.path(), 64 << 20) else {
        return println!("not tried: no swap area to be had");
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
            // More than the half of it, by a kernel that may always want to keep some.
            figure(&memory, "Swap") > 8 << 10
        });
        client.revoke(1).unwrap();
        entries(&mut client);
        // Two at once: who waits for one that is read back does not keep the other from going on.
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
        assert_eq!(figure(&memory, "Swap"), 0);
    }
    client.rest().unwrap();
    memory.touch(0..4096);
}

#[test]
fn transparent_huge_pages_are_tracked_page_by_page() {
    let _turn = turn();
    // Aligned, so that there can be one.
    let memory = Memory::aligned(8 * 512, HUGE);
    (0..memory.pages).for_each(|page| memory.write(page, page as u8));
    let _ = advise(&memory, libc::MADV_COLLAPSE);
    if figure(&memory, "ShmemPmdMapped") == 0 {
        return println!("not tried: this kernel makes no huge pages of shared memory");
    }
    let (_tracker, address) = tracker();
    let mut client = client(&address);
    client.set_mode(all_of(1)).unwrap();
    client.add_region(memory.region(0, FIRST)).unwrap();
    for round in 1..4 {
        client.revoke(round).unwrap();
        memory.touch([5, 700, 4095]);
        assert_eq!(pages(&entries(&mut client)), [FIRST + 5, FIRST + 700, FIRST + 4095]);
        // Whether the kernel makes huge ones of them again under the tracker's eyes, or refuses.
        let _ = advise(&memory, libc::MADV_COLLAPSE);
        client.heartbeat().unwrap();
    }
    client.rest().unwrap();
    memory.touch(0..memory.pages);
}

/// Huge pages of the host, given back when it ends.
struct HugePages(String);

impl HugePages {
    const COUNT: &str = "/proc/sys/vm/nr_hugepages";

    fn take(more: u64) -> Option<HugePages> {
        let before = fs::read_to_string(Self::COUNT).ok()?;
        let count = before.trim().parse::<u64>().ok()? + more;
        fs::write(Self::COUNT, count.to_string()).ok()?;
        let taken = HugePages(before);
        let now = fs::read_to_string(Self::COUNT).ok()?;
        (now.trim().parse::<u64>().ok()? == count).then_some(taken)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(Self::COUNT, self.0.trim());
    }
}

#[test]
fn memory_of_huge_pages_is_refused() {
    let _turn = turn();
    let Some(_taken) = HugePages::take(2) else {
        return println!("not tried: no huge pages to be had");
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
    assert_eq!(refused.refusal, Refusal::HugePages);
    assert!(error.is_lasting() && error.to_string().contains("huge pages"), "{error}");
    // Nothing is left of having tried.
    assert!(!memory.is_registered());
    assert_eq!(memory.read(3), 3);
    client.revoke(1).unwrap();
}
