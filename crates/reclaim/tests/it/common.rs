//! A process with memory, and swap for it to go to.
//!
//! Limits: swap areas and groups are the host's, and only root may have some; where that is refused it is said,
//! and any other failure is one.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ballast_model::{Bytes, PAGE_SIZE, Timestamp};
use ballast_reclaim::{
    AddressRange, CgroupVersion, Finish, GuestRam, MemoryCgroup, PageIn, PageInLimits, PageOut,
    PageOutLimits, Paging, Picker, Progress, State, SwapBounds, parse_mountinfo,
};
use rustix::io::Errno;

pub(crate) const PROC: &str = "/proc";
pub(crate) const MIB: u64 = 1 << 20;
/// More steps than any order here takes.
const STEPS_MAX: u64 = 10_000;

/// Swap areas and what is in them are the host's: one test at a time.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(answer: i64) -> Result<i64, Errno> {
    match answer {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
        answer => Ok(answer),
    }
}

/// A swap area for as long as it lives.
pub(crate) struct SwapFile {
    path: CString,
    _folder: tempfile::TempDir,
}

impl SwapFile {
    /// `None`, and a word of it, where this process may turn none on.
    pub(crate) fn new(mib: u64) -> Option<SwapFile> {
        // Some file systems have no swap files: the temporary ones, or the build's, will.
        let folders = [std::env::temp_dir(), env!("CARGO_TARGET_TMPDIR").into()];
        let mut errors = Vec::new();
        for folder in &folders {
            match SwapFile::new_in(folder, mib) {
                Ok(swap) => return Some(swap),
                Err(error) => errors.push(error),
            }
        }
        assert!(errors.contains(&Errno::PERM), "no swap file in {folders:?}: {errors:?}");
        println!("not tried: this process may not turn on swap");
        None
    }

    fn new_in(folder: &Path, mib: u64) -> Result<SwapFile, Errno> {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = folder.path().join("swap");
        let file = File::create(&path).unwrap();
        let len = mib * MIB;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len)?;
        rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        // As `mkswap` does: version, last page, no bad ones; and the signature at the page's end.
        let mut page = [0; PAGE_SIZE as usize];
        page[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
        page[1028..1032].copy_from_slice(&((len / PAGE_SIZE - 1) as u32).to_ne_bytes());
        page[4086..].copy_from_slice(b"SWAPSPACE2");
        file.write_all_at(&page, 0).unwrap();
        file.sync_all().unwrap();
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: a path that ends with a zero.
        check(i64::from(unsafe { libc::swapon(path.as_ptr(), 0) }))?;
        Ok(SwapFile { path, _folder: folder })
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::swapoff(self.path.as_ptr()) };
    }
}

/// What a [`Child`] is told to do with a part of its memory.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Write what [`Order::Verify`] expects.
    Fill = 1,
    /// Count words that are not as they were written.
    Verify,
    /// Unmap it.
    Unmap,
    /// Forget its page table, as a tracker does.
    Forget,
    /// Lock it.
    Lock,
}

/// A process with shared and private memory, which does as it is told.
pub(crate) struct Child {
    pid: i32,
    socket: UnixStream,
    /// A shared file's memory.
    pub(crate) shared: AddressRange,
    /// Its own.
    pub(crate) private: AddressRange,
}

impl Child {
    /// With so much of either, none of it touched.
    pub(crate) fn new(shared_mib: u64, private_mib: u64) -> Child {
        let file = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, shared_mib * MIB).unwrap();
        let map = |mib: u64, flags, file: RawFd| {
            let len = (mib * MIB) as usize;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len.max(PAGE_SIZE as usize),
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    file,
                    0,
                )
            };
            assert_ne!(at, libc::MAP_FAILED);
            AddressRange::new(at as u64, at as u64 + mib * MIB)
        };
        // Mappings of the same kind would become one with their neighbours': a page between them.
        let _between = map(0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        let private = map(private_mib, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        let shared = map(shared_mib, libc::MAP_SHARED, file.as_raw_fd());
        let (ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child calls nothing that needs more than the thread it is: no allocation, no lock.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the memory is this process's own, and used by nothing else.
            unsafe { obey(theirs.as_raw_fd()) };
        }
        assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
        for range in [private, shared] {
            // SAFETY: mapped above, with no references; the child has its own.
            unsafe {
                libc::munmap(range.start() as *mut _, range.len().get().max(PAGE_SIZE) as usize)
            };
        }
        Child { pid, socket: ours, shared, private }
    }

    /// With so much of either, all of it written.
    pub(crate) fn filled(shared_mib: u64, private_mib: u64) -> Child {
        let child = Child::new(shared_mib, private_mib);
        child.fill();
        child
    }

    /// Writes all of it.
    pub(crate) fn fill(&self) {
        self.tell(Order::Fill, self.shared);
        self.tell(Order::Fill, self.private);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Has it do something; its answer.
    pub(crate) fn tell(&self, order: Order, range: AddressRange) -> u64 {
        let mut message = [0; 24];
        message[..8].copy_from_slice(&(order as u64).to_ne_bytes());
        message[8..16].copy_from_slice(&range.start().to_ne_bytes());
        message[16..].copy_from_slice(&range.end().to_ne_bytes());
        (&self.socket).write_all(&message).unwrap();
        let mut answer = [0; 8];
        (&self.socket).read_exact(&mut answer).unwrap();
        u64::from_ne_bytes(answer)
    }

    /// Whether `range` is as it was written.
    pub(crate) fn is_intact(&self, range: AddressRange) -> bool {
        self.tell(Order::Verify, range) == 0
    }

    /// Where its memory is. It has more: all that the test's own process has.
    pub(crate) fn ram(&self) -> GuestRam {
        GuestRam::At([self.shared, self.private].into_iter().collect())
    }

    /// Its memory as a guest's.
    pub(crate) fn paging(&self) -> Paging {
        Paging::open(Path::new(PROC), self.pid(), None, self.ram()).unwrap()
    }

    /// Memory of `range` that is in the host's.
    pub(crate) fn resident(&self, range: AddressRange) -> Bytes {
        let ram = GuestRam::At([range].into_iter().collect());
        let paging = Paging::open(Path::new(PROC), self.pid(), None, ram).unwrap();
        paging.residency().unwrap().resident
    }

    pub(crate) fn kill(&self) {
        // SAFETY: a process of this one's own, not yet waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        // SAFETY: as above; it stays to be waited for by `Drop`.
        unsafe {
            libc::waitid(
                libc::P_PID,
                self.pid as u32,
                &mut std::mem::zeroed(),
                libc::WEXITED | libc::WNOWAIT,
            )
        };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: a process of this one's own.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// What is written at an address.
fn word(address: u64) -> u64 {
    (address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Does as it is told until it is killed.
///
/// # Safety
/// What it is told of must be memory of this process that nothing refers to.
unsafe fn obey(socket: RawFd) -> ! {
    // SAFETY: plain calls, on memory as promised.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut message = [0_u64; 3];
        while libc::read(socket, message.as_mut_ptr().cast(), 24) == 24 {
            let [order, start, end] = message;
            let (at, len) = (start as *mut libc::c_void, (end - start) as usize);
            let words = (start..end).step_by(8);
            let answer = match order {
                1 => words.fold(0, |_, it| {
                    (it as *mut u64).write_volatile(word(it));
                    0
                }),
                2 => words.filter(|&it| (it as *const u64).read_volatile() != word(it)).count()
                    as u64,
                3 => libc::munmap(at, len) as u64,
                4 => libc::madvise(at, len, libc::MADV_DONTNEED) as u64,
                5 => libc::mlock(at, len) as u64,
                _ => u64::MAX,
            };
            libc::write(socket, (&raw const answer).cast(), 8);
        }
        libc::_exit(0)
    }
}

/// A group of version 1 for as long as it lives.
pub(crate) struct Group(pub(crate) PathBuf);

impl Group {
    /// `None`, and a word of it, where there is no such controller, or none that may be used.
    pub(crate) fn new() -> Option<Group> {
        let text = fs::read("/proc/self/mountinfo").unwrap();
        let mounts = parse_mountinfo(&text).unwrap();
        let Some(mount) = mounts.iter().find(|mount| mount.version == CgroupVersion::One) else {
            println!("not tried: no memory controller of version 1 is mounted");
            let told = MemoryCgroup::find(Path::new("/"), std::process::id());
            assert!(!matches!(told, Ok(group) if group.version() == CgroupVersion::One));
            return None;
        };
        let path = mount.point.join(format!("ballast-reclaim-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Some(Group(path)),
            Err(error) => {
                let may_not =
                    [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::ReadOnlyFilesystem];
                assert!(may_not.contains(&error.kind()), "{}: {error}", path.display());
                println!("not tried: this process may make no group: {error}");
                None
            }
        }
    }
}

impl Group {
    /// Moves a process in; what it writes from then on is counted.
    pub(crate) fn add(&self, child: &Child) {
        fs::write(self.0.join("cgroup.procs"), child.pid().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What its process had is given back a moment after its end.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// All that the swap has.
pub(crate) const BOUNDS: SwapBounds = SwapBounds { use_max_percent: 100, reserve: Bytes::ZERO };

/// As fast as can be.
pub(crate) const OUT: PageOutLimits =
    PageOutLimits { per_second: Bytes::gib(64), step_bytes_max: Bytes::mib(8), swap: BOUNDS };

/// As fast as can be.
pub(crate) const IN: PageInLimits =
    PageInLimits { per_second: Bytes::gib(64), step_bytes_max: Bytes::mib(8) };

/// Takes steps, a second apart, until there is nothing to be done.
pub(crate) fn finish(mut step: impl FnMut(Timestamp) -> Progress) -> (Finish, Progress) {
    for second in 0..STEPS_MAX {
        let progress = step(Timestamp::from_millis(second * 1000));
        match progress.state {
            State::Finished(finish) => return (finish, progress),
            State::Going | State::Waiting { until: Some(_) } => {}
            ref state => panic!("{state:?} after {progress:?}"),
        }
    }
    panic!("not finished after {STEPS_MAX} steps");
}

/// Pages `amount` out.
pub(crate) fn page_out(paging: &Paging, amount: Bytes, picker: Picker) -> (Finish, Progress) {
    let mut order = PageOut::new(amount, picker, OUT);
    finish(|now| order.step(paging, now))
}

/// Pages all in.
pub(crate) fn page_in(paging: &Paging) -> (Finish, Progress) {
    let mut order = PageIn::new(None, IN);
    finish(|now| order.step(paging, now, Bytes::mib(8)))
}

/// A folder with files, by their paths.
pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}
