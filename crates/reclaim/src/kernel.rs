//! The calls no library has.
//!
//! Source: process_madvise(2), cachestat(2).

#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ballast_model::Bytes;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::AddressRange;

/// Most ranges of one call: half of what the kernel takes, as it holds the process's mappings meanwhile.
const RANGES_MAX: usize = 512;

/// Advice on the memory of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// Write it to swap and take it out.
    PageOut,
    /// Begin to read it from swap.
    WillNeed,
}

/// Gives advice on all `ranges`; those on which the kernel takes none, each with its reason.
///
/// # Errors
/// What holds for the whole process: `PERM`, `SRCH`, `NOSYS`, or `INVAL` where there is no range.
pub(crate) fn advise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddressRange],
    advice: Remote,
) -> Result<Vec<(AddressRange, Errno)>, Errno> {
    let mut refused = Vec::new();
    let mut rest = ranges;
    while let Some((&first, after)) = rest.split_first() {
        let batch = &rest[..rest.len().min(RANGES_MAX)];
        match process_madvise(pidfd, batch, advice) {
            // Whole ranges are counted. What it stopped at is the first of the next call, and then refused.
            Ok(mut done) if done > 0 => {
                let passed = batch.iter().take_while(|range| {
                    let is_done = done >= range.len().get();
                    done = done.saturating_sub(range.len().get());
                    is_done
                });
                rest = &rest[passed.count().max(1)..];
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

/// Whether advice would be taken at all: gives some on nothing.
///
/// # Errors
/// As [`advise`]; `INVAL` where the kernel does not know this advice.
pub(crate) fn probe(pidfd: BorrowedFd<'_>, advice: Remote) -> Result<(), Errno> {
    process_madvise(pidfd, &[], advice).map(drop)
}

fn process_madvise(
    pidfd: BorrowedFd<'_>,
    ranges: &[AddressRange],
    advice: Remote,
) -> Result<u64, Errno> {
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; RANGES_MAX];
    for (part, range) in parts.iter_mut().zip(ranges) {
        let base = std::ptr::without_provenance_mut(range.start() as usize);
        *part = libc::iovec { iov_base: base, iov_len: range.len().get() as usize };
    }
    let advice = match advice {
        Remote::PageOut => libc::MADV_PAGEOUT,
        Remote::WillNeed => libc::MADV_WILLNEED,
    };
    let count = ranges.len().min(RANGES_MAX);
    // SAFETY: `parts` outlives the call and has `count` elements. Their addresses are another process's, which the
    // kernel checks; either advice leaves what is stored there as it is.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            parts.as_ptr(),
            count,
            advice,
            0,
        )
    };
    answer(done)
}

/// What the kernel has of a part of a file in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheStat {
    /// In memory.
    pub(crate) cached: Bytes,
    /// Written to swap, and not read back.
    pub(crate) evicted: Bytes,
}

/// Looks at `len` bytes of a file from `offset` on; nothing for no bytes.
pub(crate) fn cachestat(file: BorrowedFd<'_>, offset: u64, len: Bytes) -> Result<CacheStat, Errno> {
    if len == Bytes::ZERO {
        // To the kernel that would be all of the file.
        return Ok(CacheStat::default());
    }
    let asked = [offset, len.get()];
    // Cached, dirty, under writeback, evicted, recently evicted: pages.
    let mut told = [0_u64; 5];
    // The same on every architecture but alpha; libc has it for some only.
    let call = linux_raw_sys::general::__NR_cachestat as libc::c_long;
    // SAFETY: both arrays outlive the call and are laid out as `cachestat_range` and `cachestat` are.
    let done =
        unsafe { libc::syscall(call, file.as_raw_fd(), asked.as_ptr(), told.as_mut_ptr(), 0) };
    answer(done)?;
    Ok(CacheStat { cached: Bytes::pages(told[0]), evicted: Bytes::pages(told[3]) })
}

fn answer(done: libc::c_long) -> Result<u64, Errno> {
    u64::try_from(done)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// What is done to a part of a file through a mapping of this process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Read it from swap.
    Fill,
    /// Write it to swap and take it out, where nobody has it mapped.
    Evict,
}

/// Does it to `len` bytes of a file from `offset` on. Nothing is read or written through the mapping, which is gone
/// again afterwards.
pub(crate) fn through_own_mapping(
    file: impl AsFd,
    offset: u64,
    len: Bytes,
    what: Own,
) -> Result<(), Errno> {
    let len = len.get() as usize;
    let (null, read) = (std::ptr::null_mut(), ProtFlags::READ);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { mmap(null, len, read, MapFlags::SHARED, file, offset) }?;
    // SAFETY: all of the mapping just made, of which there are no references; entries of its page table are filled,
    // and pages moved between memory and swap, which leaves their contents as they are.
    let done = unsafe { madvise(start, len, Advice::LinuxPopulateRead) };
    let done = match what {
        // The kernel evicts what it finds mapped only.
        // SAFETY: as above.
        Own::Evict => done.and_then(|()| unsafe { madvise(start, len, Advice::LinuxPageOut) }),
        Own::Fill => done,
    };
    // SAFETY: the mapping made above, of which there are no references.
    unsafe { munmap(start, len) }?;
    done
}
