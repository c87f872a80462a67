//! System calls that no library wraps.
//!
//! Source: process_madvise(2), cachestat(2).

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ballast_model::Bytes;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munlock, munmap};

use crate::ranges::AddressRange;

/// Most ranges per call: half of the kernel's limit, because the kernel locks the process's address
/// space during the call.
const RANGES_MAX: usize = 512;

/// Advice on the memory of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteAdvice {
    /// Write pages to swap and unmap them.
    PageOut,
    /// Start reading pages from swap.
    WillNeed,
}

/// Applies `advice` to all `ranges` of a process. Returns the ranges that the kernel refused, each
/// with its error.
///
/// # Errors
/// An error that holds for the whole process: `PERM`, `SRCH`, `NOSYS` and the like.
pub(crate) fn advise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddressRange],
    advice: RemoteAdvice,
) -> Result<Vec<(AddressRange, Errno)>, Errno> {
    let mut refused = Vec::new();
    let mut rest = ranges;
    while let Some((&first, after)) = rest.split_first() {
        let batch = &rest[..rest.len().min(RANGES_MAX)];
        match process_madvise(pidfd, batch, advice) {
            // Skip the ranges that were processed completely. The one where the kernel stopped
            // comes first in the next call, which then returns its error.
            Ok(mut done) if done > 0 => {
                let mut complete = 0;
                for range in batch {
                    if done < range.len().get() {
                        break;
                    }
                    done -= range.len().get();
                    complete += 1;
                }
                rest = &rest[complete.max(1)..];
            }
            Ok(_) => rest = after,
            Err(
                error @ (Errno::PERM | Errno::ACCESS | Errno::SRCH | Errno::NOSYS | Errno::BADF),
            ) => {
                return Err(error);
            }
            Err(Errno::INTR) => {}
            Err(error) => {
                refused.push((first, error));
                rest = after;
            }
        }
    }
    Ok(refused)
}

/// Tests whether `advice` is permitted on a process, by applying it to no range.
///
/// # Errors
/// As [`advise`]; `INVAL` if the kernel does not know this advice.
pub(crate) fn probe(pidfd: BorrowedFd<'_>, advice: RemoteAdvice) -> Result<(), Errno> {
    process_madvise(pidfd, &[], advice).map(drop)
}

fn process_madvise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddressRange],
    advice: RemoteAdvice,
) -> Result<u64, Errno> {
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; RANGES_MAX];
    for (part, range) in parts.iter_mut().zip(ranges) {
        let base = std::ptr::without_provenance_mut(range.start() as usize);
        *part = libc::iovec { iov_base: base, iov_len: range.len().get() as usize };
    }
    let advice = match advice {
        RemoteAdvice::PageOut => libc::MADV_PAGEOUT,
        RemoteAdvice::WillNeed => libc::MADV_WILLNEED,
    };
    let count = ranges.len().min(RANGES_MAX);
    // SAFETY: `parts` outlives the call and has `count` elements. The addresses in it belong to
    // another process, and the kernel checks them; neither advice changes the contents of memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            parts.as_ptr(),
            count,
            advice,
            0,
        )
    };
    check(result)
}

/// Page cache state of a part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStat {
    /// In memory.
    pub(crate) cached: Bytes,
    /// In swap and not in memory.
    pub(crate) evicted: Bytes,
}

/// Counts the pages of `len` bytes of a file from `offset` on.
pub(crate) fn cachestat(file: BorrowedFd<'_>, offset: u64, len: Bytes) -> Result<CacheStat, Errno> {
    if len == Bytes::ZERO {
        // The kernel takes zero for the whole file.
        return Ok(CacheStat::default());
    }
    let range = [offset, len.get()];
    // Cached, dirty, under writeback, evicted, recently evicted: pages.
    let mut counts = [0_u64; 5];
    // The same number on every architecture but alpha; libc has it for some only.
    let call = linux_raw_sys::general::__NR_cachestat as libc::c_long;
    // SAFETY: both arrays outlive the call and have the layout of `cachestat_range` and
    // `cachestat`.
    let result =
        unsafe { libc::syscall(call, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    check(result)?;
    Ok(CacheStat { cached: Bytes::pages(counts[0]), evicted: Bytes::pages(counts[3]) })
}

fn check(result: libc::c_long) -> Result<u64, Errno> {
    u64::try_from(result)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// What to do with pages of a file through a mapping of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheAction {
    /// Read them from swap.
    Populate,
    /// Write them to swap and free them, unless a process has them mapped.
    Evict,
}

/// Maps `len` bytes of a file from `offset` on, applies `action` and unmaps them. No byte is read
/// or written through the mapping.
pub(crate) fn through_own_mapping(
    file: impl AsFd,
    offset: u64,
    len: Bytes,
    action: CacheAction,
) -> Result<(), Errno> {
    let len = len.get() as usize;
    let (null, read) = (std::ptr::null_mut(), ProtFlags::READ);
    // SAFETY: a new mapping at an address the kernel chooses.
    let start = unsafe { mmap(null, len, read, MapFlags::SHARED, file, offset) }?;
    // Where the process locks all its memory, this mapping is locked too, and what is locked is not
    // evicted. A failure shows in the advice below.
    // SAFETY: exactly the mapping made above.
    let _ = unsafe { munlock(start, len) };
    // SAFETY: exactly the mapping made above, to which no references exist. The advice fills page
    // table entries and moves pages between memory and swap, which keeps their contents.
    let mut done = unsafe { madvise(start, len, Advice::LinuxPopulateRead) };
    if action == CacheAction::Evict && done.is_ok() {
        // The kernel evicts mapped pages only, hence the population above.
        // SAFETY: as above.
        done = unsafe { madvise(start, len, Advice::LinuxPageOut) };
    }
    // SAFETY: the mapping made above, to which no references exist.
    unsafe { munmap(start, len) }?;
    done
}
