//! The daemon's own resources: open files, and memory that is not swapped out.
//!
//! Idea: a thousand guests need some thousand open files, more than the default limit. A daemon
//! that waits for its own swapped-out memory cannot help any guest, so its memory is locked. Each
//! page is locked when it is first used, so locking takes no more memory. Memory that one tick
//! frees is needed by the next, so it is kept.
//!
//! Limits: nothing here is required; a refusal says how to permit it. A process that may lock only
//! some memory locks none: its first allocation past the limit would fail and end it.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit and returns it. `None`: there is no limit.
///
/// # Errors
/// The kernel refuses; the text says what was tried.
pub fn raise_open_files() -> Result<Option<u64>, String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).map_err(|error| {
            format!("from {current:?} to {maximum:?}: {error} (systemd: LimitNOFILE=)")
        })?;
    }
    Ok(maximum)
}

/// Locks all memory that the process uses, now and later.
///
/// # Errors
/// The process may not lock unlimited memory; the text says how to permit it. Nothing is locked
/// then.
pub fn lock_memory() -> Result<(), String> {
    let limit = getrlimit(Resource::Memlock).current;
    let refused = |error: Errno| {
        let limit =
            limit.map_or("no limit".to_owned(), |bytes| format!("a limit of {bytes} bytes"));
        format!(
            "{error}, with {limit}: run as root, or give the service CAP_IPC_LOCK or \
                 LimitMEMLOCK=infinity"
        )
    };
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(refused)?;
    // Whether the limit applies to this process shows only in an allocation beyond it. The memory
    // is not touched.
    let past_limit = limit.and_then(|bytes| usize::try_from(bytes).ok()?.checked_add(1));
    if past_limit.is_some_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_err()) {
        munlockall().map_err(refused)?;
        return Err(refused(Errno::NOMEM));
    }
    Ok(())
}

/// Memory freed beyond this much goes back to the kernel.
const KEPT_MAX: libc::c_int = 64 << 20;
/// Larger blocks are never kept. This is the largest value that the C library permits.
const KEPT_BLOCK_MAX: libc::c_int = 32 << 20;

/// Keeps up to 64 MiB that this process frees, for later allocations. A tick of 10,000 guests
/// allocates 10 MB and frees those of the tick before. Faulting them in again would take longer
/// than the decision (`cargo bench -p ballast-bench --bench decision`).
///
/// Does nothing if the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: `mallopt` takes two numbers and changes nothing that is in use.
    unsafe {
        // The result is ignored: only numbers out of range are refused.
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_MAX);
    }
}
