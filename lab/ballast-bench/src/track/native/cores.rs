//! The cores that a benchmark may use.

use anyhow::Context;
use rustix::thread::CpuSet;

/// The cores for a program, its tracker, and the measuring thread.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// The program's.
    pub(super) first: usize,
    pub(super) all: Vec<usize>,
}

impl Cores {
    /// The cores that this thread may run on; call it before the thread is pinned to one.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) fn allowed() -> anyhow::Result<Cores> {
        let allowed = rustix::thread::sched_getaffinity(None)
            .context("cannot tell which cores this thread may run on")?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&it| allowed.is_set(it)).collect();
        Ok(Cores { first: all.first().copied().unwrap_or(0), all })
    }
}
