//! Gives way to the hypervisor's own userfaultfd.
//!
//! QEMU uses userfaultfd for background snapshots and for receiving a post-copy migration, and
//! memory can be registered with one userfaultfd only. If registration failed, QEMU would leave the
//! guest paused (snapshot) or lose it (migration). So this library intercepts `ioctl`, as it does
//! `munmap` (see [`crate::unmap`]): before the hypervisor registers memory, the tracker unregisters
//! it for good. The client gets an event that the region is gone, and is refused if it adds the
//! region while the hypervisor uses it.
//!
//! Cost: one comparison per ioctl of the hypervisor; under KVM each entry of a virtual processor is
//! one.
//! Source: ioctl_userfaultfd(2); `ram_write_tracking_start` and `postcopy_ram_incoming_setup` of
//! QEMU.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::time::Duration;

use linux_raw_sys::general::uffdio_register;
use linux_raw_sys::ioctl::UFFDIO_REGISTER;

use crate::kernel::Extent;
use crate::minor::unregister;
use crate::slots::SLOTS;

/// There is no session.
const NONE: RawFd = -1;

static UFFD: AtomicI32 = AtomicI32::new(NONE);
/// Threads that may be using [`UFFD`].
static USERS: AtomicU32 = AtomicU32::new(0);

/// While this lives, the tracker's userfaultfd gives way. Dropping it waits until no thread uses
/// the file.
pub(crate) struct GiveWayGuard(());

impl GiveWayGuard {
    pub(crate) fn new(uffd: BorrowedFd<'_>) -> GiveWayGuard {
        UFFD.store(uffd.as_raw_fd(), SeqCst);
        GiveWayGuard(())
    }
}

impl Drop for GiveWayGuard {
    fn drop(&mut self) {
        UFFD.store(NONE, SeqCst);
        // It waits for a few system calls at most, and for threads inside slots. It sleeps
        // meanwhile, as those threads may have lower priority.
        while USERS.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Resets the state, in a child process.
pub(crate) fn reset() {
    UFFD.store(NONE, SeqCst);
    USERS.store(0, SeqCst);
}

/// Unregisters `range` before the hypervisor registers it.
#[cold]
fn give_way(range: Extent) {
    // Counted first: either dropping the guard waits for this thread, or this thread sees no
    // session.
    USERS.fetch_add(1, SeqCst);
    let uffd = UFFD.load(SeqCst);
    if uffd != NONE {
        SLOTS.close(range, |extent| {
            // SAFETY: the file stays open while this thread is counted.
            let uffd = unsafe { BorrowedFd::borrow_raw(uffd) };
            // Fails only if the memory is gone.
            let _ = unregister(uffd, extent);
        });
    }
    USERS.fetch_sub(1, SeqCst);
}

/// ioctl(2). The third argument, if any, is in the same register as for the C library's variadic
/// function.
///
/// # Safety
/// That of ioctl(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if request == c_ulong::from(UFFDIO_REGISTER) && !argument.is_null() {
        // SAFETY: the request takes this type, and the kernel reads it next.
        let register = unsafe { argument.cast::<uffdio_register>().read_unaligned() };
        give_way(Extent::new(register.range.start, register.range.len));
    }
    // SAFETY: the caller's promise. `syscall` sets `errno` as the C library's function would.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
}
