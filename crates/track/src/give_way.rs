//! The hypervisor's own userfaultfd goes first.
//!
//! Idea: QEMU wants userfaultfd for its memory too, for background snapshots and for receiving a post-copy
//! migration, and memory has one at a time. Where the tracker came first QEMU would be refused, and takes that
//! badly: a snapshot that cannot begin leaves the guest paused, and a post-copy migration that cannot be
//! received is a guest lost. So `ioctl` comes here first, as `munmap` does (see [`crate::unmap`]), and before the
//! hypervisor registers memory the tracker lets it go for good. Its client is told that the region is gone,
//! and is refused when it names it again while the other still has it.
//!
//! Cost: one comparison for each ioctl of the hypervisor; a virtual processor under KVM makes one whenever it
//! is entered.
//! Source: ioctl_userfaultfd(2); `ram_write_tracking_start` and `postcopy_ram_incoming_setup` of QEMU.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU32};

use linux_raw_sys::general::uffdio_register;
use linux_raw_sys::ioctl::UFFDIO_REGISTER;

use crate::kernel::Extent;
use crate::minor::unregister;
use crate::slots::SLOTS;

/// No session.
const NONE: RawFd = -1;

static UFFD: AtomicI32 = AtomicI32::new(NONE);
/// Threads that may be using it.
static USERS: AtomicU32 = AtomicU32::new(0);

/// The tracker's userfaultfd can be made to give way as long as this lives; then nobody uses it.
pub(crate) struct Way(());

impl Way {
    pub(crate) fn new(uffd: BorrowedFd<'_>) -> Way {
        UFFD.store(uffd.as_raw_fd(), SeqCst);
        Way(())
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        UFFD.store(NONE, SeqCst);
        // A few system calls at most.
        while USERS.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// In a child, which has neither a session nor those threads.
pub(crate) fn forget() {
    UFFD.store(NONE, SeqCst);
    USERS.store(0, SeqCst);
}

/// The hypervisor is about to register `range`.
#[cold]
fn give_way(range: Extent) {
    // Counted before it is looked at, so that whoever closes it waits, or this sees none.
    USERS.fetch_add(1, SeqCst);
    let uffd = UFFD.load(SeqCst);
    if uffd != NONE {
        SLOTS.close(range, |extent| {
            // SAFETY: open as long as this thread is counted.
            let uffd = unsafe { BorrowedFd::borrow_raw(uffd) };
            // An error is of memory that is gone by now.
            let _ = unregister(uffd, extent);
        });
    }
    USERS.fetch_sub(1, SeqCst);
}

/// ioctl(2). Its third argument, if there is one, is where the caller would have put it for the C library too:
/// in the register for a third argument.
///
/// # Safety
/// That of ioctl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == c_ulong::from(UFFDIO_REGISTER) && !argument.is_null() {
        // SAFETY: it is what the request takes, and the kernel reads it next.
        let register = unsafe { argument.cast::<uffdio_register>().read_unaligned() };
        give_way(Extent::new(register.range.start, register.range.len));
    }
    // SAFETY: the caller's. `syscall` sets `errno` as the C library's function would.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}
