//! Errors of host reclaim.

use std::path::{Path, PathBuf};

use ballast_model::Bytes;
use rustix::io::Errno;

/// Why memory was not taken or given back. Nothing was changed, unless the variant says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReclaimError {
    /// The process does not exist or has ended.
    #[error("process {pid} is gone: expected a live hypervisor")]
    Gone {
        /// The PID.
        pid: u32,
    },
    /// The PID belongs to another process now.
    #[error(
        "process {pid} started at tick {found} since boot, expected {expected}: the PID was reused"
    )]
    Reused {
        /// The PID.
        pid: u32,
        /// Start time of the intended process, in clock ticks since boot.
        expected: u64,
        /// Start time of the process found.
        found: u64,
    },
    /// The host has no swap.
    #[error(
        "the host has no swap: expected an area in /proc/swaps; make one and turn it on with swapon"
    )]
    NoSwap,
    /// Swap use is at its limit.
    #[error(
        "swap: {used} of {total} in use, expected less than {bound}: free some, or raise the limit"
    )]
    SwapFull {
        /// Swap in use.
        used: Bytes,
        /// All swap.
        total: Bytes,
        /// Most that may be in use.
        bound: Bytes,
    },
    /// This process lacks a permission.
    #[error("process {pid}: not permitted to {what}: expected {needs}")]
    Permission {
        /// The target process.
        pid: u32,
        /// The action refused.
        what: &'static str,
        /// The permission needed.
        needs: &'static str,
    },
    /// The kernel lacks a feature.
    #[error("this kernel does not know {call}: expected Linux {since} or later")]
    KernelTooOld {
        /// The missing call.
        call: &'static str,
        /// The first version that has it.
        since: &'static str,
    },
    /// The host's page size is not 4 KiB.
    #[error("the host has pages of {found}, expected 4KiB")]
    PageSize {
        /// The page size.
        found: Bytes,
    },
    /// No mapping of the process looks like guest memory.
    #[error("process {pid}: none of its mappings is guest memory: expected {expected}")]
    NoGuestMemory {
        /// The process.
        pid: u32,
        /// What guest memory was expected to look like.
        expected: String,
    },
    /// The kernel refuses to move any of the guest memory.
    #[error(
        "process {pid}: all guest memory is locked or in hugetlbfs pages: expected swappable memory"
    )]
    Unmovable {
        /// The process.
        pid: u32,
    },
    /// A kernel file could not be read or parsed.
    #[error("{path}: {why}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error, or the malformed line.
        why: String,
    },
    /// The process has no memory cgroup of its own.
    #[error("process {pid} has no memory cgroup to reclaim from: {why}")]
    NoCgroup {
        /// The process.
        pid: u32,
        /// The reason.
        why: &'static str,
    },
    /// The cgroup contains other processes, which would lose memory too.
    #[error(
        "{path}: {others} processes other than {pid} are in this cgroup: \
         expected a cgroup for the guest alone",
        path = path.display()
    )]
    SharedCgroup {
        /// The cgroup.
        path: PathBuf,
        /// The guest's process.
        pid: u32,
        /// Number of other processes.
        others: usize,
    },
    /// The cgroup has a limit that was not set by Ballast.
    #[error(
        "{path}: there is a limit of {limit} that Ballast did not set: expected none; lift it, or \
         set fence = false",
        path = path.display()
    )]
    OthersLimit {
        /// The limit's file.
        path: PathBuf,
        /// The limit.
        limit: Bytes,
    },
    /// The cgroup lacks a file.
    #[error("{path}: no such file: expected {needs}", path = path.display())]
    CgroupLacks {
        /// The file.
        path: PathBuf,
        /// What provides it.
        needs: &'static str,
    },
    /// As long as this kernel and this program run, page generations cannot be read.
    #[error("{path}: {why}", path = path.display())]
    NoGenerations {
        /// The file that shows it.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A write to a cgroup file failed.
    #[error("{path}: cannot write `{text}`: {why}", path = path.display())]
    Cgroup {
        /// The file.
        path: PathBuf,
        /// The text written.
        text: String,
        /// The system's error.
        why: String,
    },
}

/// Permission needed to act on another process's memory.
pub(crate) const NEEDS_NICE: &str =
    "CAP_SYS_NICE, and permission to trace it: the same user, or CAP_SYS_PTRACE";
/// Permission needed to inspect another process's memory.
pub(crate) const NEEDS_TRACE: &str = "permission to trace it: the same user, or CAP_SYS_PTRACE";

impl ReclaimError {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            ReclaimError::Gone { .. } => "gone",
            ReclaimError::Reused { .. } => "reused",
            ReclaimError::NoSwap => "no-swap",
            ReclaimError::SwapFull { .. } => "swap-full",
            ReclaimError::Permission { .. } => "permission",
            ReclaimError::KernelTooOld { .. } => "kernel-too-old",
            ReclaimError::PageSize { .. } => "page-size",
            ReclaimError::NoGuestMemory { .. } => "no-guest-memory",
            ReclaimError::Unmovable { .. } => "unmovable",
            ReclaimError::Unreadable { .. } => "unreadable",
            ReclaimError::NoCgroup { .. } => "no-cgroup",
            ReclaimError::SharedCgroup { .. } => "shared-cgroup",
            ReclaimError::OthersLimit { .. } => "others-limit",
            ReclaimError::CgroupLacks { .. } => "cgroup-lacks",
            ReclaimError::NoGenerations { .. } => "no-generations",
            ReclaimError::Cgroup { .. } => "cgroup",
        }
    }

    /// Whether reclaim through the cgroup ([`CgroupPageOut`](crate::CgroupPageOut)) may still work:
    /// only a permission or a kernel feature for picking pages of the process is missing.
    pub const fn may_use_cgroup(&self) -> bool {
        matches!(self, ReclaimError::Permission { .. } | ReclaimError::KernelTooOld { .. })
    }

    /// Whether the error lasts as long as this kernel and this program run, so that a retry is
    /// useless.
    pub const fn is_lasting(&self) -> bool {
        matches!(
            self,
            ReclaimError::KernelTooOld { .. }
                | ReclaimError::PageSize { .. }
                | ReclaimError::NoGenerations { .. }
        )
    }

    pub(crate) fn unreadable(path: &Path, why: impl ToString) -> ReclaimError {
        ReclaimError::Unreadable { path: path.to_owned(), why: why.to_string() }
    }

    /// The error of opening or reading `path`, a file of process `pid`.
    pub(crate) fn of_process(
        pid: u32,
        path: &Path,
        what: &'static str,
        error: Errno,
    ) -> ReclaimError {
        match error {
            Errno::NOENT | Errno::SRCH => ReclaimError::Gone { pid },
            Errno::ACCESS | Errno::PERM => {
                ReclaimError::Permission { pid, what, needs: NEEDS_TRACE }
            }
            error => ReclaimError::unreadable(path, error),
        }
    }

    /// The error of `process_madvise` on process `pid` as a whole.
    pub(crate) fn of_advice(pid: u32, error: Errno) -> ReclaimError {
        match error {
            Errno::PERM | Errno::ACCESS => {
                let what = "page its memory out or in";
                ReclaimError::Permission { pid, what, needs: NEEDS_NICE }
            }
            Errno::NOSYS => ReclaimError::KernelTooOld { call: "process_madvise", since: "5.10" },
            // The kernel does not know the advice.
            Errno::INVAL => {
                let call = "MADV_PAGEOUT of another process";
                ReclaimError::KernelTooOld { call, since: "5.10" }
            }
            _ => ReclaimError::Gone { pid },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_messages_say_what_was_expected() {
        let path = || PathBuf::from("/sys/x");
        let all = [
            ReclaimError::Gone { pid: 7 },
            ReclaimError::Reused { pid: 7, expected: 1, found: 2 },
            ReclaimError::NoSwap,
            ReclaimError::SwapFull {
                used: Bytes::mib(3),
                total: Bytes::mib(4),
                bound: Bytes::mib(2),
            },
            ReclaimError::Permission { pid: 7, what: "page out", needs: NEEDS_NICE },
            ReclaimError::KernelTooOld { call: "process_madvise", since: "5.10" },
            ReclaimError::PageSize { found: Bytes::kib(64) },
            ReclaimError::NoGuestMemory { pid: 7, expected: "one of 64MiB".into() },
            ReclaimError::Unmovable { pid: 7 },
            ReclaimError::unreadable(&path(), "line 1: expected more"),
            ReclaimError::NoCgroup { pid: 7, why: "it is in the root cgroup: expected another" },
            ReclaimError::SharedCgroup { path: path(), pid: 7, others: 2 },
            ReclaimError::OthersLimit { path: path(), limit: Bytes::mib(9) },
            ReclaimError::CgroupLacks { path: path(), needs: "version 2" },
            ReclaimError::NoGenerations { path: path(), why: "absent: expected it".into() },
            ReclaimError::Cgroup { path: path(), text: "1".into(), why: "no, expected".into() },
        ];
        let mut codes: Vec<_> = all.iter().map(ReclaimError::code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all.len());
        for error in &all {
            let text = error.to_string();
            assert!(text.contains("expected"), "{text}");
            assert!(text.starts_with(|c: char| c.is_lowercase() || c == '/'), "{text}");
        }
    }

    #[test]
    fn errno_values_map_to_variants() {
        let code = |error| ReclaimError::of_process(7, Path::new("/x"), "look", error).code();
        assert_eq!(code(Errno::SRCH), "gone");
        assert_eq!(code(Errno::NOENT), "gone");
        assert_eq!(code(Errno::ACCESS), "permission");
        assert_eq!(code(Errno::IO), "unreadable");
    }
}
