//! Lets Xen's own xenstored run on a machine without Xen, so that the client is tested against the
//! real thing.
//!
//! Idea: loaded with `LD_PRELOAD`, it overrides the few functions by which xenstored reaches the
//! hypervisor: event channels are a pipe that nobody writes to, grants are memory of its own, every
//! domain exists, and dom0's page and port, which are files of `/proc/xen`, are files in memory.
//! Clients come by the socket, which needs no hypervisor.
//! Source: `xenevtchn.h`, `xengnttab.h` and `xenctrl.h` of Xen 4.17; xenstored 4.17 of Debian 12.
//! Limits: no domain but dom0 talks to the store; those of a later version may need other
//! functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

const PAGE: usize = 4096;
/// What is said of any domain: the number, and no flag set.
const DOMAIN_INFO_LEN: usize = 16;
/// Handles point here: nobody looks at what they point to.
static HANDLE: AtomicI32 = AtomicI32::new(0);
/// The end of the event channels' pipe that is waited for; -1: none was made.
static EVENTS: AtomicI32 = AtomicI32::new(-1);

fn handle() -> *mut c_void {
    HANDLE.as_ptr().cast()
}

/// Opens event channels.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_open(_logger: *mut c_void, _flags: c_uint) -> *mut c_void {
    let mut ends = [-1; 2];
    if EVENTS.load(Ordering::Relaxed) < 0 {
        // SAFETY: there is room for both ends.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
            return null_mut();
        }
        EVENTS.store(ends[0], Ordering::Relaxed);
    }
    handle()
}

/// The descriptor to wait for.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_fd(_handle: *mut c_void) -> c_int {
    EVENTS.load(Ordering::Relaxed)
}

/// Closes them.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_close(_handle: *mut c_void) -> c_int {
    0
}

/// A port for the hypervisor's news of domains.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_bind_virq(_handle: *mut c_void, _virq: c_uint) -> c_int {
    1
}

/// A port for another domain.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_bind_interdomain(
    _handle: *mut c_void,
    _domain: u32,
    _port: u32,
) -> c_int {
    2
}

/// Gives a port back.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_unbind(_handle: *mut c_void, _port: u32) -> c_int {
    0
}

/// Tells another domain.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_notify(_handle: *mut c_void, _port: u32) -> c_int {
    0
}

/// The port that something came by: none.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_pending(_handle: *mut c_void) -> c_int {
    -1
}

/// Lets a port ring again.
#[unsafe(no_mangle)]
pub extern "C" fn xenevtchn_unmask(_handle: *mut c_void, _port: u32) -> c_int {
    0
}

/// Opens grants.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_open(_logger: *mut c_void, _flags: c_uint) -> *mut c_void {
    handle()
}

/// Closes them.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_close(_handle: *mut c_void) -> c_int {
    0
}

/// Another domain's page.
#[unsafe(no_mangle)]
pub extern "C" fn xengnttab_map_grant_ref(
    _handle: *mut c_void,
    _domain: u32,
    _reference: u32,
    _protection: c_int,
) -> *mut c_void {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: new memory anywhere.
    unsafe { libc::mmap(null_mut(), PAGE, protection, flags, -1, 0) }
}

/// Gives such pages back.
///
/// # Safety
/// `address` is what was mapped above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xengnttab_unmap(
    _handle: *mut c_void,
    address: *mut c_void,
    count: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(address, PAGE * count as usize) }
}

/// Opens the hypervisor's control interface.
#[unsafe(no_mangle)]
pub extern "C" fn xc_interface_open(
    _logger: *mut c_void,
    _builder: *mut c_void,
    _flags: c_uint,
) -> *mut c_void {
    handle()
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn xc_interface_close(_handle: *mut c_void) -> c_int {
    0
}

/// What is known of a domain: it exists, and lives.
///
/// # Safety
/// `info` has room for one `xc_dominfo_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xc_domain_getinfo(
    _handle: *mut c_void,
    first: u32,
    _max: c_uint,
    info: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise; the structure begins with the number.
    unsafe {
        info.cast::<u8>().write_bytes(0, DOMAIN_INFO_LEN);
        info.cast::<u32>().write_unaligned(first);
    }
    1
}

/// open(2), but that the files of `/proc/xen` are in memory.
///
/// # Safety
/// That of open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { CStr::from_ptr(path) }.to_bytes() {
        b"/proc/xen/xsd_kva" => in_memory(c"xsd_kva", &[0; PAGE]),
        b"/proc/xen/xsd_port" => in_memory(c"xsd_port", b"1"),
        // SAFETY: the caller's promise. `syscall` sets `errno` as the C library's function would.
        _ => unsafe { libc::syscall(libc::SYS_open, path, flags, mode) as c_int },
    }
}

/// open(2), by its other name.
///
/// # Safety
/// That of open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, mode) }
}

/// A file in memory.
fn in_memory(name: &CStr, content: &[u8]) -> c_int {
    // SAFETY: the name ends with a zero, and the content is as long as it says.
    unsafe {
        let file = libc::memfd_create(name.as_ptr(), 0);
        if file >= 0 {
            libc::write(file, content.as_ptr().cast(), content.len());
            libc::lseek(file, 0, libc::SEEK_SET);
        }
        file
    }
}
