//! Why the host does not take or give back memory.

use std::path::{Path, PathBuf};

use ballast_model::Bytes;
use rustix::io::Errno;

/// Why something was not done. Nothing was changed, unless the reason says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such process, or none any more.
    #[error("process {pid} is gone: expected a live hypervisor")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// The number belongs to another process now.
    #[error(
        "process {pid} began at tick {found} since boot, expected {expected}: its number was given to another one"
    )]
    Reused {
        /// The number.
        pid: u32,
        /// When the process meant was started, in clock ticks since boot.
        expected: u64,
        /// When the one found was.
        found: u64,
    },
    /// The host has nowhere to page out to.
    #[error(
        "the host has no swap: expected an area in /proc/swaps; make one and turn it on with swapon"
    )]
    NoSwap,
    /// More would be in use than is allowed.
    #[error(
        "swap: {used} of {total} in use, expected less than {bound}: free some, or raise the bound"
    )]
    SwapFull {
        /// In use.
        used: Bytes,
        /// Altogether.
        total: Bytes,
        /// What may be in use.
        bound: Bytes,
    },
    /// The system does not let this process.
    #[error("process {pid}: not permitted to {what}: expected {needs}")]
    Permission {
        /// The process to be acted on.
        pid: u32,
        /// What was to be done.
        what: &'static str,
        /// What permits it.
        needs: &'static str,
    },
    /// The kernel cannot do it.
    #[error("this kernel does not know {call}: expected Linux {since} or later")]
    KernelTooOld {
        /// What is missing.
        call: &'static str,
        /// The first version that has it.
        since: &'static str,
    },
    /// Pages are of another size than everything here counts in.
    #[error("pages of this host are of {found}, expected 4KiB")]
    PageSize {
        /// Their size.
        found: Bytes,
    },
    /// No memory that could be a guest's.
    #[error("process {pid}: none of its mappings is guest memory: expected {expected}")]
    NoGuestMemory {
        /// The process.
        pid: u32,
        /// What it was told by.
        expected: String,
    },
    /// All guest memory is of a kind that stays where it is.
    #[error(
        "process {pid}: all of its guest memory is locked or in huge pages of hugetlbfs: expected memory that can be swapped"
    )]
    Unmovable {
        /// The process.
        pid: u32,
    },
    /// A file of the kernel could not be read or understood.
    #[error("{path}: {why}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said, or what was expected where.
        why: String,
    },
    /// The process's memory is not counted in a group of its own.
    #[error("process {pid} has no memory cgroup to be squeezed in: {why}")]
    NoCgroup {
        /// The process.
        pid: u32,
        /// Why.
        why: &'static str,
    },
    /// Whoever is in the group would be squeezed along.
    #[error(
        "{path}: {others} processes other than {pid} are in this cgroup: expected one for the guest alone",
        path = path.display()
    )]
    SharedCgroup {
        /// The group.
        path: PathBuf,
        /// The guest's process.
        pid: u32,
        /// How many others.
        others: usize,
    },
    /// The group cannot be asked this way.
    #[error("{path}: not there: expected {needs}", path = path.display())]
    CgroupLacks {
        /// The file.
        path: PathBuf,
        /// What has it.
        needs: &'static str,
    },
    /// The group refused a figure.
    #[error("{path}: cannot write `{text}`: {why}", path = path.display())]
    Cgroup {
        /// The file.
        path: PathBuf,
        /// What was written.
        text: String,
        /// What the system said.
        why: String,
    },
}

/// What [`Refusal::Permission`] asks for where another process's memory is acted on.
pub(crate) const NEEDS_NICE: &str =
    "CAP_SYS_NICE, and permission to trace it: the same user, or CAP_SYS_PTRACE";
/// The same, where it is only looked at.
pub(crate) const NEEDS_TRACE: &str = "permission to trace it: the same user, or CAP_SYS_PTRACE";

impl Refusal {
    /// Stable word for machines.
    pub const fn code(&self) -> &'static str {
        match self {
            Refusal::Gone { .. } => "gone",
            Refusal::Reused { .. } => "reused",
            Refusal::NoSwap => "no-swap",
            Refusal::SwapFull { .. } => "swap-full",
            Refusal::Permission { .. } => "permission",
            Refusal::KernelTooOld { .. } => "kernel-too-old",
            Refusal::PageSize { .. } => "page-size",
            Refusal::NoGuestMemory { .. } => "no-guest-memory",
            Refusal::Unmovable { .. } => "unmovable",
            Refusal::Unreadable { .. } => "unreadable",
            Refusal::NoCgroup { .. } => "no-cgroup",
            Refusal::SharedCgroup { .. } => "shared-cgroup",
            Refusal::CgroupLacks { .. } => "cgroup-lacks",
            Refusal::Cgroup { .. } => "cgroup",
        }
    }

    /// Whether it will be the same as long as the process lives and the host is set up as it is.
    pub const fn is_lasting(&self) -> bool {
        !matches!(
            self,
            Refusal::SwapFull { .. }
                | Refusal::NoSwap
                | Refusal::NoGuestMemory { .. }
                | Refusal::Unreadable { .. }
                | Refusal::Cgroup { .. }
        )
    }

    /// Whether it is for want of permission or of kernel support that pages of a process may not be chosen: then its
    /// cgroup may be left ([`GroupOut`](crate::GroupOut)).
    pub const fn leaves_cgroup(&self) -> bool {
        matches!(self, Refusal::Permission { .. } | Refusal::KernelTooOld { .. })
    }

    pub(crate) fn unreadable(path: &Path, why: impl ToString) -> Refusal {
        Refusal::Unreadable { path: path.to_owned(), why: why.to_string() }
    }

    /// Of a file of process `pid` that could not be opened or read.
    pub(crate) fn of_process(pid: u32, path: &Path, what: &'static str, error: Errno) -> Refusal {
        match error {
            Errno::NOENT | Errno::SRCH => Refusal::Gone { pid },
            Errno::ACCESS | Errno::PERM => Refusal::Permission { pid, what, needs: NEEDS_TRACE },
            error => Refusal::unreadable(path, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_word_of_its_own_and_says_what_was_expected() {
        let path = || PathBuf::from("/sys/x");
        let all = [
            Refusal::Gone { pid: 7 },
            Refusal::Reused { pid: 7, expected: 1, found: 2 },
            Refusal::NoSwap,
            Refusal::SwapFull { used: Bytes::mib(3), total: Bytes::mib(4), bound: Bytes::mib(2) },
            Refusal::Permission { pid: 7, what: "page out", needs: NEEDS_NICE },
            Refusal::KernelTooOld { call: "process_madvise", since: "5.10" },
            Refusal::PageSize { found: Bytes::kib(64) },
            Refusal::NoGuestMemory { pid: 7, expected: "one of 64MiB".into() },
            Refusal::Unmovable { pid: 7 },
            Refusal::unreadable(&path(), "line 1: expected more"),
            Refusal::NoCgroup { pid: 7, why: "it is in the root group, expected another" },
            Refusal::SharedCgroup { path: path(), pid: 7, others: 2 },
            Refusal::CgroupLacks { path: path(), needs: "version 2" },
            Refusal::Cgroup { path: path(), text: "1".into(), why: "no, expected".into() },
        ];
        let mut codes: Vec<_> = all.iter().map(Refusal::code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all.len());
        for refusal in &all {
            let text = refusal.to_string();
            assert!(text.contains("expected"), "{text}");
            assert!(text.starts_with(|c: char| c.is_lowercase() || c == '/'), "{text}");
        }
    }

    #[test]
    fn what_the_system_says_of_a_process_is_told_apart() {
        let code = |error| Refusal::of_process(7, Path::new("/x"), "look", error).code();
        assert_eq!(code(Errno::SRCH), "gone");
        assert_eq!(code(Errno::NOENT), "gone");
        assert_eq!(code(Errno::ACCESS), "permission");
        assert_eq!(code(Errno::IO), "unreadable");
    }
}
