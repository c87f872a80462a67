//! Intercepts the unmapping of memory by the hypervisor.
//!
//! A preloaded library overrides functions of the C library. So the hypervisor's `munmap`, `mmap`
//! and `mremap` come here: they close the slots of the range (see [`crate::slots`]), and then make
//! the system call that the C library's function would make.
//!
//! userfaultfd has events for this (`UFFD_FEATURE_EVENT_UNMAP`), but they come afterwards, when the
//! address may have been reused, and make the hypervisor wait for their reader.
//!
//! If one of the tracker's threads is still inside a slot after the longest wait, it may still call
//! `MADV_DONTNEED`. So the addresses are not released: inaccessible memory takes their place, named
//! `ballast-kept` in `/proc/PID/maps`, for as long as the process lives. Only other shared memory
//! may be mapped over it, because its contents survive that call; anything else fails with
//! `ENOMEM`. QEMU does map over guest memory, from the same file, to replace a page that the
//! hardware has lost.
//!
//! Mapping shared memory also identifies the hypervisor process (see [`crate::preload`]).
//!
//! Cost: one load while nothing is tracked.
//! Source: munmap(2), mremap(2), `PR_SET_VMA_ANON_NAME` of prctl(2); `qemu_ram_remap` of QEMU.
//! Limits: kept memory uses addresses but no pages, and counts in the process's `VmSize`.

use std::ffi::{c_int, c_long, c_void};

use crate::kernel::Extent;
use crate::preload;
use crate::slots::SLOTS;

fn extent(address: *mut c_void, len: usize) -> Extent {
    Extent::new(address as u64, len as u64)
}

fn to_pointer(result: c_long) -> *mut c_void {
    result as *mut c_void
}

/// Fails as mmap(2) and mremap(2) do when memory is short.
fn refuse() -> *mut c_void {
    // SAFETY: the C library's own variable of this thread.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    libc::MAP_FAILED
}

/// Unmaps a range, but keeps its addresses from being used again.
///
/// # Safety
/// That of munmap(2).
#[cold]
unsafe fn keep_addresses(address: *mut c_void, len: usize) -> c_int {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the caller's promise: nothing uses the memory any more.
    let kept =
        unsafe { libc::syscall(libc::SYS_mmap, address, len, libc::PROT_NONE, flags, -1, 0) };
    if to_pointer(kept) == libc::MAP_FAILED {
        return -1;
    }
    let name = c"ballast-kept".as_ptr();
    // SAFETY: names the mapping just made; kernels without names refuse.
    unsafe { libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, address, len, name) };
    0
}

/// munmap(2).
///
/// # Safety
/// That of munmap(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn munmap(address: *mut c_void, len: usize) -> c_int {
    if !SLOTS.about_to_unmap(&[extent(address, len)]) {
        // SAFETY: the caller's promise.
        return unsafe { keep_addresses(address, len) };
    }
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
    if flags & libc::MAP_FIXED != 0
        && !SLOTS.about_to_unmap(&[extent(address, len)])
        && flags & libc::MAP_SHARED == 0
    {
        return refuse();
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
    let new_range = match flags & libc::MREMAP_FIXED {
        0 => Extent::default(),
        _ => extent(new, new_len),
    };
    if !SLOTS.about_to_unmap(&[extent(old, old_len), new_range]) {
        return refuse();
    }
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) };
    to_pointer(result)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::slots::{TrackedMemory, WAIT_MAX};
    use crate::threads;

    const LEN: usize = 16 * 4096;
    /// The longest wait, plus what a loaded machine needs for the rest.
    const BOUND: Duration = Duration::from_secs(5);

    /// Runs a test in a process of its own, because slots and lateness are global to a process.
    fn in_child(name: &str, act: impl FnOnce()) {
        const CHILD: &str = "BALLAST_TEST_UNMAP";
        if std::env::var(CHILD).is_ok_and(|child| child == name) {
            return act();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("unmap::tests::{name}"), "--nocapture"])
            .env(CHILD, name)
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.wait().unwrap().success());
    }

    /// Maps shared memory, at `start` if that is not null, whose bytes are all `value`.
    fn shared(start: *mut c_void, value: u8) -> *mut c_void {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = if start.is_null() { 0 } else { libc::MAP_FIXED };
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: a new mapping; tests that replace one do not touch the old one any more.
        let start = unsafe { mmap(start, LEN, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping just made.
        unsafe { start.cast::<u8>().write_bytes(value, LEN) };
        start
    }

    /// Maps private memory at `start`, or near it unless `flags` say `MAP_FIXED`.
    fn private(start: *mut c_void, flags: c_int) -> *mut c_void {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: as above.
        unsafe { mmap(start, LEN, protection, flags, -1, 0) }
    }

    fn is_filled(start: *mut c_void, value: u8) -> bool {
        // SAFETY: a mapping of the test.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), LEN) };
        bytes.iter().all(|byte| *byte == value)
    }

    fn track(start: *mut c_void) -> usize {
        let tracked = TrackedMemory { extent: extent(start, LEN), first_page: 1024 };
        let slot = SLOTS.claim(tracked).unwrap();
        assert!(SLOTS.open(slot));
        slot
    }

    /// The line of `/proc/self/maps` for the mapping at `start`.
    fn mapped(start: *mut c_void) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", start as usize);
        maps.lines().find(|line| line.starts_with(&start)).map(str::to_owned)
    }

    fn set_policy(policy: c_int, priority: c_int) -> bool {
        let parameter = libc::sched_param { sched_priority: priority };
        // SAFETY: `parameter` outlives the call, which affects only this thread.
        unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) == 0 }
    }

    /// Keeps this thread, and those that it starts, on the processor that it runs on.
    fn stay_on_one_processor() {
        // SAFETY: a set is plain data, and outlives the call.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
        }
    }

    #[test]
    fn a_guest_of_real_time_priority_lets_threads_inside_leave() {
        let may_be_first = std::thread::spawn(|| set_policy(libc::SCHED_FIFO, 1));
        if !may_be_first.join().unwrap() {
            return println!("SKIPPED: real-time priority needs CAP_SYS_NICE");
        }
        in_child("a_guest_of_real_time_priority_lets_threads_inside_leave", || {
            stay_on_one_processor();
            let memory = shared(std::ptr::null_mut(), 1);
            let slot = track(memory);
            let (is_inside, has_left) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _inside = SLOTS.enter(slot).unwrap();
                    is_inside.store(true, SeqCst);
                    // Work that needs the processor.
                    let end = threads::own_time_ns() + 20_000_000;
                    while threads::own_time_ns() < end {}
                    has_left.store(true, SeqCst);
                });
                while !is_inside.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(set_policy(libc::SCHED_FIFO, 1));
                let (began, used) = (Instant::now(), threads::own_time_ns());
                // SAFETY: nothing uses the memory any more.
                let unmapped = unsafe { munmap(memory, LEN) };
                let (took, used) = (began.elapsed(), threads::own_time_ns() - used);
                assert!(set_policy(libc::SCHED_OTHER, 0));
                assert_eq!((unmapped, mapped(memory)), (0, None));
                assert!(has_left.load(SeqCst) && took < BOUND, "{took:?}");
                assert!(used < 10_000_000, "it sleeps meanwhile: {used} ns");
            });
        });
    }

    #[test]
    fn a_thread_that_never_leaves_destroys_nothing() {
        in_child("a_thread_that_never_leaves_destroys_nothing", || {
            let memory = shared(std::ptr::null_mut(), 1);
            let slot = track(memory);
            let tracked = extent(memory, LEN);
            std::thread::scope(|scope| {
                let (go_on, orders) = channel::<()>();
                let (done, answers) = channel();
                scope.spawn(move || {
                    let _inside = SLOTS.enter(slot).unwrap();
                    done.send(0).unwrap();
                    while orders.recv().is_ok() {
                        let start = tracked.start as *mut c_void;
                        // SAFETY: what is tried here: it must not be anybody's private memory.
                        done.send(unsafe { libc::madvise(start, LEN, libc::MADV_DONTNEED) })
                            .unwrap();
                    }
                });
                let revoke_late = || {
                    go_on.send(()).unwrap();
                    assert_eq!(answers.recv(), Ok(0));
                };
                assert_eq!(answers.recv(), Ok(0));
                let began = Instant::now();
                // SAFETY: nothing uses the memory any more.
                assert_eq!(unsafe { munmap(memory, LEN) }, 0);
                let took = began.elapsed();
                assert!(took >= WAIT_MAX && took < BOUND, "{took:?}");
                assert!(SLOTS.is_late());
                // The kernel follows such a hint if the addresses are free.
                let heap = private(memory, 0);
                // SAFETY: the mapping just made.
                unsafe { heap.cast::<u8>().write_bytes(77, LEN) };
                revoke_late();
                assert!(is_filled(heap, 77), "the memory of another mapping");
                assert!(mapped(memory).unwrap().contains("---p"), "{:?}", mapped(memory));
                let refused = || std::io::Error::last_os_error().raw_os_error();
                assert_eq!(private(memory, libc::MAP_FIXED), libc::MAP_FAILED);
                assert_eq!(refused(), Some(libc::ENOMEM));
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                // SAFETY: nothing uses either range.
                assert_eq!(unsafe { mremap(heap, LEN, LEN, flags, memory) }, libc::MAP_FAILED);
                assert_eq!(refused(), Some(libc::ENOMEM));
                // Other shared memory keeps its contents when its page-table entries are dropped.
                shared(memory, 33);
                revoke_late();
                assert!(is_filled(memory, 33) && is_filled(heap, 77));
            });
            // No thread is inside any more.
            // SAFETY: as above.
            assert_eq!(unsafe { munmap(memory, LEN) }, 0);
            assert_eq!(mapped(memory), None);
        });
    }
}
