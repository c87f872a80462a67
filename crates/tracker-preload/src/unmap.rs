//! Intercepts the unmapping of memory by the hypervisor.
//!
//! A preloaded library overrides functions of the C library. So the hypervisor's `munmap`, `mmap`
//! and `mremap` come here: they close the slots of the range (see [`crate::slots`]), and then make
//! the system call of the C library's function.
//!
//! userfaultfd has events for this (`UFFD_FEATURE_EVENT_UNMAP`), but they come afterwards, when the
//! address may have been reused, and make the hypervisor wait for their reader.
//!
//! Mapping shared memory also identifies the hypervisor process (see [`crate::preload`]).
//!
//! Cost: one load while nothing is tracked.

use std::ffi::{c_int, c_long, c_void};

use crate::kernel::Extent;
use crate::preload;
use crate::slots::SLOTS;

fn about_to_unmap(address: *mut c_void, len: usize) {
    SLOTS.about_to_unmap(Extent::new(address as u64, len as u64));
}

fn to_pointer(result: c_long) -> *mut c_void {
    result as *mut c_void
}

/// munmap(2).
///
/// # Safety
/// That of munmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    about_to_unmap(address, len);
    // SAFETY: the caller's promise. `syscall` sets `errno` as the C library's function would.
    unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int }
}

/// mmap(2). With `MAP_FIXED` it replaces existing mappings.
///
/// # Safety
/// That of mmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        about_to_unmap(address, len);
    }
    if flags & libc::MAP_SHARED != 0 && protection & libc::PROT_WRITE != 0 && fd >= 0 {
        preload::about_to_share();
    }
    // SAFETY: the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) };
    to_pointer(result)
}

/// mmap(2) under its other name.
///
/// # Safety
/// That of mmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// mremap(2). The old range moves or shrinks; with `MREMAP_FIXED` the new one is mapped over.
///
/// The fifth argument is only valid with that flag. It comes in a register like the others, and the
/// kernel ignores it otherwise.
///
/// # Safety
/// That of mremap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    about_to_unmap(old, old_len);
    if flags & libc::MREMAP_FIXED != 0 {
        about_to_unmap(new, new_len);
    }
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) };
    to_pointer(result)
}
