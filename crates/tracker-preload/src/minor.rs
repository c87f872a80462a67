//! Revokes permissions by dropping page-table entries: userfaultfd's minor faults on shared memory.
//!
//! Guest memory with `share=on` is a file in memory. `MADV_DONTNEED` drops the page-table entries
//! of its mapping and keeps the contents. In a mapping registered for minor faults, the next touch
//! of a page that is in the file but not in the page table is sent to the userfaultfd;
//! `UFFDIO_CONTINUE` restores the entry.
//!
//! `UFFD_USER_MODE_ONLY` is never set, because faults of the kernel must be answered too: a
//! hypervisor's disks `read(2)` into guest memory, which would otherwise fail with `EFAULT`.
//!
//! Cost: 3 to 26 µs per trap, mostly the wake-up of the answering thread; revoking costs 1.2 to 1.5
//! µs per range of one page, less per page in larger ranges.
//! Source: ioctl_userfaultfd(2), madvise(2), process_madvise(2); Linux 5.14 and later.
//! Limits: small pages only. Touching a page that the file does not have (never written, or punched
//! out) creates it unseen. The answering thread reads swapped pages back, and other faults wait for
//! it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use ballast_tracker_proto::{RefusalReason, TrackerRefusal};
use linux_raw_sys::general::{
    _UFFDIO_CONTINUE, _UFFDIO_ZEROPAGE, UFFD_API, UFFD_EVENT_PAGEFAULT, UFFD_FEATURE_MINOR_SHMEM,
    UFFD_PAGEFAULT_FLAG_WRITE, UFFDIO_REGISTER_MODE_MINOR, uffdio_api, uffdio_continue,
    uffdio_range, uffdio_register,
};
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_CONTINUE, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{Advice, UserfaultfdFlags, madvise, userfaultfd};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::kernel::{Extent, FAULTS_MAX, PageFault, RANGES_MAX, TrapMechanism};

/// `_IO(USERFAULTFD_IOC, 0)`, missing in the headers of `linux-raw-sys`.
const USERFAULTFD_IOC_NEW: Opcode = opcode::none(0xAA, 0);
/// Length of `struct uffd_msg`, and offsets of its fields.
const MESSAGE_LEN: usize = 32;
const EVENT_AT: usize = 0;
const FLAGS_AT: usize = 8;
const ADDRESS_AT: usize = 16;

/// An open userfaultfd for minor faults.
pub(crate) struct MinorFaults {
    uffd: OwnedFd,
    /// A pidfd of this process, if `process_madvise` can revoke batches of its memory.
    batch: Option<OwnedFd>,
}

impl MinorFaults {
    /// Opens a userfaultfd: with `device`, an open `/dev/userfaultfd`, if given; otherwise by the
    /// system call; otherwise by opening the device.
    pub(crate) fn open(device: Option<BorrowedFd<'_>>) -> Result<MinorFaults, TrackerRefusal> {
        let uffd = match device {
            Some(device) => by_device(device),
            None => by_call().or_else(|error| {
                let flags = OFlags::RDWR | OFlags::CLOEXEC;
                let device = rustix::fs::open("/dev/userfaultfd", flags, Mode::empty());
                device.map_err(|_| error).and_then(|device| by_device(device.as_fd()))
            }),
        };
        let uffd = uffd.map_err(|error| TrackerRefusal {
            reason: match error {
                Errno::PERM | Errno::ACCESS => RefusalReason::Permission,
                Errno::NOSYS | Errno::NOTTY => RefusalReason::Kernel,
                _ => RefusalReason::System,
            },
            errno: errno(error),
        })?;
        let features = u64::from(UFFD_FEATURE_MINOR_SHMEM);
        let mut api = uffdio_api { api: u64::from(UFFD_API), features, ioctls: 0 };
        // SAFETY: `uffdio_api` is what UFFDIO_API takes.
        let enabled = unsafe { update::<{ UFFDIO_API as Opcode }, _>(uffd.as_fd(), &mut api) };
        enabled.map_err(|error| TrackerRefusal {
            reason: RefusalReason::Kernel,
            errno: errno(error),
        })?;
        Ok(MinorFaults { uffd, batch: None })
    }

    /// Tests with the tracker's `own` memory whether ranges can be revoked in batches.
    pub(crate) fn probe_batch(&mut self, own: Extent) {
        let Ok(process) = pidfd_open(getpid(), PidfdFlags::empty()) else { return };
        if revoke_batch(process.as_fd(), &[own]) == Ok(own.len) {
            self.batch = Some(process);
        }
    }

    /// Whether ranges are revoked in batches.
    pub(crate) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Registers a range; `false` if it is in huge pages and therefore not registered.
    pub(crate) fn watch_small(&self, range: Extent) -> Result<bool, Errno> {
        let mut register = uffdio_register {
            range: uffdio_range { start: range.start, len: range.len },
            mode: u64::from(UFFDIO_REGISTER_MODE_MINOR),
            ioctls: 0,
        };
        // SAFETY: `uffdio_register` is what UFFDIO_REGISTER takes. The handler of this uffd answers
        // the faults in the range.
        unsafe { update::<{ UFFDIO_REGISTER as Opcode }, _>(self.uffd.as_fd(), &mut register)? };
        let can = |what: u32| register.ioctls & (1 << what) != 0;
        // The kernel offers zero pages for small pages only.
        if can(_UFFDIO_CONTINUE) && can(_UFFDIO_ZEROPAGE) {
            return Ok(true);
        }
        self.unwatch(range)?;
        Ok(false)
    }
}

fn by_call() -> Result<OwnedFd, Errno> {
    // Without UFFD_USER_MODE_ONLY, for the reason in the header.
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: a userfaultfd does nothing until memory is registered.
    unsafe { userfaultfd(flags) }
}

fn by_device(device: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as libc::c_ulong;
    // SAFETY: USERFAULTFD_IOC_NEW takes flags by value; on any other file it is an unknown request,
    // and the client sent the file for this purpose.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), u64::from(USERFAULTFD_IOC_NEW), flags) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: a file descriptor that was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The error number for messages.
pub(crate) fn errno(error: Errno) -> u32 {
    u32::try_from(error.raw_os_error()).unwrap_or(0)
}

/// Makes an ioctl that reads and writes `value`.
///
/// # Safety
/// `value` is of the type that the request takes.
unsafe fn update<const REQUEST: Opcode, T>(fd: BorrowedFd<'_>, value: &mut T) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { ioctl(fd, Updater::<REQUEST, T>::new(value)) }
}

/// Unregisters a range: faults in it become ordinary, and waiting threads continue.
pub(crate) fn unregister(uffd: BorrowedFd<'_>, range: Extent) -> Result<(), Errno> {
    let mut request = uffdio_range { start: range.start, len: range.len };
    // SAFETY: `uffdio_range` is what UFFDIO_UNREGISTER takes.
    let done = unsafe { update::<{ UFFDIO_UNREGISTER as Opcode }, _>(uffd, &mut request) };
    // The kernel wakes threads by itself for faults on missing pages, but not for minor faults.
    wake(uffd, range);
    done
}

/// Makes threads waiting in a range retry.
fn wake(uffd: BorrowedFd<'_>, range: Extent) {
    let mut range = uffdio_range { start: range.start, len: range.len };
    // SAFETY: `uffdio_range` is what UFFDIO_WAKE takes. It fails only for invalid ranges, in which
    // no thread waits.
    let _ = unsafe { update::<{ UFFDIO_WAKE as Opcode }, _>(uffd, &mut range) };
}

/// Drops the page-table entries of ranges with one call; returns the number of bytes.
fn revoke_batch(process: BorrowedFd<'_>, ranges: &[Extent]) -> Result<u64, Errno> {
    const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut vectors = [EMPTY; RANGES_MAX];
    for (vector, range) in vectors.iter_mut().zip(ranges) {
        vector.iov_base = range.start as *mut libc::c_void;
        vector.iov_len = range.len as usize;
    }
    // SAFETY: the caller of `revoke` keeps the ranges mapped (see `slots`). They are shared, so
    // MADV_DONTNEED drops only page-table entries.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            vectors.as_ptr(),
            ranges.len().min(RANGES_MAX),
            libc::MADV_DONTNEED,
            0,
        )
    };
    u64::try_from(done).map_err(|_| last_error())
}

impl TrapMechanism for MinorFaults {
    fn watch(&self, range: Extent) -> Result<(), Errno> {
        self.watch_small(range).map(|_| ())
    }

    fn unwatch(&self, range: Extent) -> Result<(), Errno> {
        unregister(self.uffd.as_fd(), range)
    }

    fn revoke(&self, ranges: &[Extent]) -> Result<(), Errno> {
        let mut rest = ranges;
        if let Some(process) = &self.batch {
            for ranges in ranges.chunks(RANGES_MAX) {
                let bytes: u64 = ranges.iter().map(|range| range.len).sum();
                if revoke_batch(process.as_fd(), ranges) != Ok(bytes) {
                    break;
                }
                rest = &rest[ranges.len()..];
            }
        }
        // One by one, if batches are not possible or to find the error of a failed batch.
        for range in rest {
            let start = range.start as *mut std::ffi::c_void;
            // SAFETY: as in `revoke_batch`.
            unsafe { madvise(start, range.len as usize, Advice::LinuxDontNeed)? };
        }
        Ok(())
    }

    fn restore(&self, range: Extent) -> Result<u64, Errno> {
        let range = uffdio_range { start: range.start, len: range.len };
        let mut request = uffdio_continue { range, mode: 0, mapped: 0 };
        // SAFETY: `uffdio_continue` is what UFFDIO_CONTINUE takes. It maps pages that the file has.
        let done =
            unsafe { update::<{ UFFDIO_CONTINUE as Opcode }, _>(self.uffd.as_fd(), &mut request) };
        match done {
            Ok(()) => Ok(range.len),
            // Partial success; the next call returns the reason.
            Err(Errno::AGAIN) if request.mapped > 0 => Ok(request.mapped.unsigned_abs()),
            Err(error) => Err(error),
        }
    }

    fn wake(&self, range: Extent) {
        wake(self.uffd.as_fd(), range);
    }

    fn read(&self, faults: &mut [PageFault; FAULTS_MAX]) -> Result<usize, Errno> {
        let mut bytes = [MaybeUninit::<u8>::uninit(); FAULTS_MAX * MESSAGE_LEN];
        let bytes = match rustix::io::read(&self.uffd, &mut bytes) {
            Ok((bytes, _)) => &*bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut count = 0;
        for message in bytes.chunks_exact(MESSAGE_LEN) {
            // No other events are enabled.
            if message[EVENT_AT] != UFFD_EVENT_PAGEFAULT as u8 {
                continue;
            }
            let is_write = u64_at(message, FLAGS_AT) & u64::from(UFFD_PAGEFAULT_FLAG_WRITE) != 0;
            faults[count] = PageFault { address: u64_at(message, ADDRESS_AT), is_write };
            count += 1;
        }
        Ok(count)
    }

    fn faults(&self) -> BorrowedFd<'_> {
        self.uffd.as_fd()
    }
}

fn u64_at(message: &[u8], at: usize) -> u64 {
    let bytes = message.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    u64::from_ne_bytes(bytes.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rustix::process::Uid;

    use super::*;

    /// Runs `act` in a thread of the user nobody.
    fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let nobody = scope.spawn(|| {
                let id = Uid::from_raw(65_534);
                rustix::thread::set_thread_res_uid(id, id, id).expect("needs root");
                act()
            });
            nobody.join().unwrap()
        })
    }

    fn is_unprivileged_allowed() -> bool {
        let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
        setting.is_ok_and(|setting| setting.trim() == "1")
    }

    #[test]
    fn the_refusal_without_permission_names_the_remedy() {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || is_unprivileged_allowed() {
            return println!("SKIPPED: needs root, and a host on which only root may");
        }
        let refused = as_nobody(|| MinorFaults::open(None).err()).unwrap();
        assert_eq!(refused.reason, RefusalReason::Permission);
        assert!(refused.to_string().contains("/dev/userfaultfd"), "{refused}");
    }

    /// Makes the system call fail in this thread, as a container's sandbox does.
    fn forbid_userfaultfd() {
        let op = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        // The first field of a filter's input is the number of the system call.
        let mut filter = [
            op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_userfaultfd as u32, 1),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the call copies the filter, which lives until then. Both calls affect only this
        // thread.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    #[test]
    fn a_device_suffices_when_a_sandbox_forbids_the_call() {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/userfaultfd", flags, Mode::empty());
        if !rustix::process::geteuid().is_root() {
            return println!("SKIPPED: only root can become another user");
        }
        let (without, with) = as_nobody(|| {
            forbid_userfaultfd();
            let with = device.ok().map(|device| MinorFaults::open(Some(device.as_fd())).is_ok());
            (MinorFaults::open(None).err(), with)
        });
        assert_eq!(without.unwrap().reason, RefusalReason::Permission);
        assert!(with.is_none_or(|is_open| is_open));
    }

    #[test]
    fn a_device_opened_by_root_grants_permission() {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let is_root = rustix::process::geteuid().is_root();
        let device = rustix::fs::open("/dev/userfaultfd", flags, Mode::empty());
        match device {
            Ok(device) if is_root => {
                assert!(as_nobody(|| MinorFaults::open(Some(device.as_fd())).is_ok()));
            }
            Ok(_) => println!("SKIPPED: only root can become another user"),
            Err(error) => println!("SKIPPED: /dev/userfaultfd: {error}"),
        }
    }

    #[test]
    fn other_files_than_the_device_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let refused = MinorFaults::open(Some(file.as_fd())).err().unwrap();
        assert_eq!(refused, TrackerRefusal { reason: RefusalReason::Kernel, errno: 25 });
    }
}
