//! Errors of sampling by DAMON.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why DAMON cannot be used, or its use ended.
#[derive(Debug, Error)]
pub enum DamonError {
    /// The kernel has no DAMON, or no sysfs interface to it.
    #[error(
        "this kernel has no DAMON ({0} is missing): it needs CONFIG_DAMON_SYSFS, as Debian's 6.12 has"
    )]
    Absent(PathBuf),
    /// Its DAMON cannot watch chosen addresses of a process.
    #[error(
        "this kernel's DAMON cannot watch chosen addresses: it has `{0}`, expected `fvaddr` (Linux 5.19 \
         with CONFIG_DAMON_VADDR)"
    )]
    Operations(String),
    /// Tracefs is not mounted.
    #[error("tracefs is not mounted on {0}: `mount -t tracefs tracefs {0}`")]
    NoTracefs(PathBuf),
    /// The kernel has no `damon_aggregated`.
    #[error("this kernel cannot tell what DAMON saw ({0} is missing): it needs CONFIG_TRACING")]
    NoTracepoint(PathBuf),
    /// The kernel is locked down against tracing.
    #[error("the kernel is locked down (confidentiality), so what DAMON saw cannot be read")]
    Lockdown,
    /// Another program of Ballast uses it.
    #[error("another program of Ballast uses DAMON: stop `ballast track`, or the other daemon")]
    Ours,
    /// Another program uses its sysfs files.
    #[error(
        "DAMON is in use by somebody else ({kdamonds} kdamonds in {admin}): it is left alone; stop that \
         use, or write 0 to nr_kdamonds there if nobody needs it"
    )]
    Foreign {
        /// Number of kernel threads that are set up.
        kdamonds: u64,
        /// The folder of its sysfs files.
        admin: PathBuf,
    },
    /// A module of the kernel uses it exclusively.
    #[error(
        "DAMON is in use by the kernel itself (DAMON_RECLAIM, DAMON_LRU_SORT or DAMON_STAT): see \
         /sys/module/damon_*/parameters/enabled"
    )]
    Kernel,
    /// Too many or too few pages to sample.
    #[error("{0} pages to sample: expected 3 to {max}", max = crate::SAMPLES_MAX)]
    Samples(usize),
    /// The kernel thread has ended: all guests are gone, or it was turned off.
    #[error("DAMON has stopped: all sampled guests have ended, or somebody turned it off")]
    Stopped,
    /// A file has unexpected contents.
    #[error("{path}: `{found}`: expected {expected}")]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// Its contents.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The system refused something.
    #[error("cannot {what} {path}: {source}")]
    System {
        /// The operation, a verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl DamonError {
    /// Whether the error lasts as long as this kernel runs, so that a retry is useless.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            DamonError::Absent(_)
                | DamonError::Operations(_)
                | DamonError::NoTracepoint(_)
                | DamonError::Lockdown
        )
    }

    pub(crate) fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DamonError {
        move |source| DamonError::System { what, path: path.to_owned(), source }
    }
}
