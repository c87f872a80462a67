//! A child process with memory to page out, a swap file and a cgroup.
//!
//! Limits: swap files and cgroups need root. Without the permission a test prints that it was not
//! tried; any other failure fails the test.

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
    AddressRange, CgroupMount, CgroupVersion, FinishReason, GuestMemory, GuestRam, PageIn,
    PageInLimits, PageOut, PageOutLimits, PagingProgress, PagingState, Picker, SwapBounds,
    parse_mountinfo,
};
use rustix::io::Errno;

pub(crate) const PROC: &str = "/proc";
pub(crate) const MIB: u64 = 1 << 20;
/// More steps than any job here takes.
const STEPS_MAX: u64 = 10_000;

/// Other memory of the host may be swapped out as well, so a test gets much more than it needs;
/// where the disk is too small, what it needs.
const SWAP_MIB: [u64; 2] = [4096, 256];

/// Swap is shared by the whole host: one test at a time.
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

/// A swap file, in use until dropped; only one test has one.
pub(crate) struct SwapFile {
    path: CString,
    _folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl SwapFile {
    /// Enough for a test. `None`, and a message, if this process may not turn on swap.
    pub(crate) fn new() -> Option<SwapFile> {
        // Some file systems do not support swap files: try two folders.
        let folders = [std::env::temp_dir(), env!("CARGO_TARGET_TMPDIR").into()];
        let (turn, mut errors) = (turn(), Vec::new());
        for mib in SWAP_MIB {
            for folder in &folders {
                match turned_on(folder, mib) {
                    Ok((path, folder)) => {
                        return Some(SwapFile { path, _folder: folder, _turn: turn });
                    }
                    Err(error) => errors.push(error),
                }
            }
        }
        assert!(errors.contains(&Errno::PERM), "no swap file in {folders:?}: {errors:?}");
        println!("SKIPPED: this process may not turn on swap");
        None
    }
}

/// Makes a swap file of `mib` MiB in `folder` and turns it on.
fn turned_on(folder: &Path, mib: u64) -> Result<(CString, tempfile::TempDir), Errno> {
    let folder = tempfile::tempdir_in(folder).map_err(|_| Errno::ACCESS)?;
    let path = folder.path().join("swap");
    let file = File::create(&path).unwrap();
    let len = mib * MIB;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    // As `mkswap` does: version, last page, no bad pages; the signature ends the first page.
    let mut page = [0; PAGE_SIZE as usize];
    page[1024..1028].copy_from_slice(&1_u32.to_ne_bytes());
    page[1028..1032].copy_from_slice(&((len / PAGE_SIZE - 1) as u32).to_ne_bytes());
    page[4086..].copy_from_slice(b"SWAPSPACE2");
    file.write_all_at(&page, 0).unwrap();
    file.sync_all().unwrap();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path.
    check(i64::from(unsafe { libc::swapon(path.as_ptr(), 0) }))?;
    Ok((path, folder))
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::swapoff(self.path.as_ptr()) };
    }
}

/// What a [`Child`] does with a range of its memory.
#[derive(Clone, Copy)]
pub(crate) enum ChildCommand {
    /// Write the pattern that [`ChildCommand::Verify`] expects.
    Fill = 1,
    /// Count words that differ from the pattern.
    Verify,
    /// Unmap the range.
    Unmap,
    /// Drop its page table entries, as a tracker does.
    Forget,
    /// Lock the range.
    Lock,
}

/// A child process with shared and private memory that runs [`ChildCommand`]s.
pub(crate) struct Child {
    pid: i32,
    socket: UnixStream,
    /// Shared file memory.
    pub(crate) shared: AddressRange,
    /// Private memory.
    pub(crate) private: AddressRange,
}

impl Child {
    /// A child with these amounts of memory, none of it touched.
    pub(crate) fn new(shared_mib: u64, private_mib: u64) -> Child {
        let file = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, shared_mib * MIB).unwrap();
        let map = |mib: u64, flags, file: RawFd| {
            let len = (mib * MIB) as usize;
            // SAFETY: a new mapping at an address the kernel chooses.
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
        // A page in between keeps the kernel from merging adjacent private mappings.
        let _between = map(0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        let private = map(private_mib, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        let shared = map(shared_mib, libc::MAP_SHARED, file.as_raw_fd());
        let (ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the child only makes system calls: no allocation, no lock.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the memory belongs to this process, and nothing else uses it.
            unsafe { serve(theirs.as_raw_fd()) };
        }
        assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
        for range in [private, shared] {
            // SAFETY: mapped above, without references; the child has its own copy.
            unsafe {
                libc::munmap(range.start() as *mut _, range.len().get().max(PAGE_SIZE) as usize)
            };
        }
        Child { pid, socket: ours, shared, private }
    }

    /// A child with these amounts of memory, all of it written.
    pub(crate) fn filled(shared_mib: u64, private_mib: u64) -> Child {
        let child = Child::new(shared_mib, private_mib);
        child.fill();
        child
    }

    /// Writes all its memory.
    pub(crate) fn fill(&self) {
        self.run(ChildCommand::Fill, self.shared);
        self.run(ChildCommand::Fill, self.private);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Runs a command in the child; returns its result.
    pub(crate) fn run(&self, command: ChildCommand, range: AddressRange) -> u64 {
        let mut message = [0; 24];
        message[..8].copy_from_slice(&(command as u64).to_ne_bytes());
        message[8..16].copy_from_slice(&range.start().to_ne_bytes());
        message[16..].copy_from_slice(&range.end().to_ne_bytes());
        (&self.socket).write_all(&message).unwrap();
        let mut answer = [0; 8];
        (&self.socket).read_exact(&mut answer).unwrap();
        u64::from_ne_bytes(answer)
    }

    /// Whether `range` still holds the pattern.
    pub(crate) fn is_intact(&self, range: AddressRange) -> bool {
        self.run(ChildCommand::Verify, range) == 0
    }

    /// Its memory as guest memory. The rest is a copy of the test process's.
    pub(crate) fn ram(&self) -> GuestRam {
        GuestRam::At([self.shared, self.private].into_iter().collect())
    }

    /// Its guest memory, opened.
    pub(crate) fn open(&self) -> GuestMemory {
        GuestMemory::open(Path::new(PROC), self.pid(), None, self.ram()).unwrap()
    }

    /// The amount of `range` that is in the host's memory.
    pub(crate) fn resident(&self, range: AddressRange) -> Bytes {
        let ram = GuestRam::At([range].into_iter().collect());
        let memory = GuestMemory::open(Path::new(PROC), self.pid(), None, ram).unwrap();
        memory.residency().unwrap().resident
    }

    pub(crate) fn kill(&self) {
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        // SAFETY: as above; `WNOWAIT` leaves the zombie for `Drop`.
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
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// The pattern at an address.
fn word(address: u64) -> u64 {
    (address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Runs commands until killed.
///
/// # Safety
/// The ranges received must be memory of this process without references.
unsafe fn serve(socket: RawFd) -> ! {
    // SAFETY: system calls, and accesses to memory that the caller vouches for.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut message = [0_u64; 3];
        while libc::read(socket, message.as_mut_ptr().cast(), 24) == 24 {
            let [command, start, end] = message;
            let (at, len) = (start as *mut libc::c_void, (end - start) as usize);
            let words = (start..end).step_by(8);
            let answer = match command {
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

/// A cgroup of the version that has the host's memory controller, removed when dropped.
pub(crate) struct TestCgroup {
    pub(crate) folder: PathBuf,
    pub(crate) version: CgroupVersion,
}

impl TestCgroup {
    /// `None`, and a message, without a memory controller that this process may use.
    pub(crate) fn new() -> Option<TestCgroup> {
        let text = fs::read("/proc/self/mountinfo").unwrap();
        let mut mounts = parse_mountinfo(&text).unwrap();
        mounts.retain(|mount| mount.version == CgroupVersion::One || delegates_memory(mount));
        let Some(mount) = mounts.into_iter().next() else {
            println!(
                "SKIPPED: no memory controller is mounted, or none for cgroups below the root"
            );
            return None;
        };
        let folder = mount.point.join(format!("ballast-reclaim-{}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => Some(TestCgroup { folder, version: mount.version }),
            Err(error) => {
                let may_not =
                    [std::io::ErrorKind::PermissionDenied, std::io::ErrorKind::ReadOnlyFilesystem];
                assert!(may_not.contains(&error.kind()), "{}: {error}", folder.display());
                println!("SKIPPED: this process may not create a cgroup: {error}");
                None
            }
        }
    }

    /// Moves a child in; the cgroup is charged for what it writes from then on.
    pub(crate) fn add(&self, child: &Child) {
        fs::write(self.folder.join("cgroup.procs"), child.pid().to_string()).unwrap();
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // The charges of the ended process disappear with a delay.
        for _ in 0..200 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Whether cgroups right below this hierarchy's root have a memory controller.
fn delegates_memory(mount: &CgroupMount) -> bool {
    let controllers = fs::read_to_string(mount.point.join("cgroup.subtree_control"));
    controllers.is_ok_and(|text| text.split_whitespace().any(|name| name == "memory"))
}

/// Permits all swap.
pub(crate) const BOUNDS: SwapBounds = SwapBounds { use_max_percent: 100, reserve: Bytes::ZERO };

/// No effective rate limit.
pub(crate) const OUT: PageOutLimits =
    PageOutLimits { per_second: Bytes::gib(64), step_bytes_max: Bytes::mib(8), swap: BOUNDS };

/// No effective rate limit.
pub(crate) const IN: PageInLimits =
    PageInLimits { per_second: Bytes::gib(64), step_bytes_max: Bytes::mib(8) };

/// Takes steps, a second apart, until the job is over.
pub(crate) fn finish(
    mut step: impl FnMut(Timestamp) -> PagingProgress,
) -> (FinishReason, PagingProgress) {
    for second in 0..STEPS_MAX {
        let progress = step(Timestamp::from_millis(second * 1000));
        match progress.state {
            PagingState::Finished(finish) => return (finish, progress),
            PagingState::InProgress | PagingState::Waiting { until: Some(_) } => {}
            ref state => panic!("{state:?} after {progress:?}"),
        }
    }
    panic!("not finished after {STEPS_MAX} steps");
}

/// Pages `amount` out.
pub(crate) fn page_out(
    memory: &GuestMemory,
    amount: Bytes,
    picker: Picker,
) -> (FinishReason, PagingProgress) {
    let mut job = PageOut::new(amount, picker, OUT);
    finish(|now| job.step(memory, now))
}

/// Pages everything in.
pub(crate) fn page_in(memory: &GuestMemory) -> (FinishReason, PagingProgress) {
    let mut job = PageIn::new(None, IN);
    finish(|now| job.step(memory, now, Bytes::mib(8)))
}

/// A folder with these files: paths and texts.
pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}
