//! What the daemon may use for itself: open files, and memory that is not swapped out.
//!
//! Idea: a thousand guests need some thousand open files, more than a process may have unless it
//! asks. A daemon that waits for its own swapped-out memory could free nobody's: its memory is
//! locked, page by page as it is first used, so that locking takes no memory that is not needed.
//! What a tick frees the next one needs again, so it is kept.
//!
//! Limits: nothing here is required; a refusal says how to permit it. A process that may lock only
//! some memory locks none: it would die of the first allocation past its limit.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one; returns it. `None`: there is no limit.
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
/// The process may not lock as much as it wants; the text says how to permit it. Then nothing is
/// locked.
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
    // Whether the limit counts for this process is seen only past it. Nothing is touched.
    let past_limit = limit.and_then(|bytes| usize::try_from(bytes).ok()?.checked_add(1));
    if past_limit.is_some_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_err()) {
        munlockall().map_err(refused)?;
        return Err(refused(Errno::NOMEM));
    }
    Ok(())
}

/// Memory freed beyond this much goes back to the kernel.
const KEPT_MAX: libc::c_int = 64 << 20;
/// Single blocks larger than this are not kept: the most that the C library permits.
const KEPT_BLOCK_MAX: libc::c_int = 32 << 20;

/// Keeps memory that this process frees, up to 64 MiB, for what it needs next. A tick of 10,000
/// guests needs 10 MB and frees the last one's; to fault them in anew takes longer than to decide
/// (`cargo bench -p ballast-bench --bench decision`).
///
/// Does nothing where the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    // SAFETY: `mallopt` takes two numbers and changes nothing that is in use.
    unsafe {
        // It says no only to numbers out of range, which these are not.
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_MAX);
    }
}
