//! A guest whose kernel died through no fault of Ballast's.
//!
//! Idea: under emulation QEMU 7.2 can lose a guest's write while the guest's memory is copied; the
//! guest's kernel may die of that. Such a run is discarded and played again.

use crate::fleet_record::DiscardedRun;

/// A guest's kernel died while the guest was moved, or later: the run has to be discarded.
#[derive(Debug, thiserror::Error)]
#[error("the kernel of guest {guest} died: {console}")]
pub(crate) struct KernelDied {
    pub(super) guest: String,
    pub(super) console: String,
}

impl KernelDied {
    /// The entry for the record of the run that is played instead.
    pub(crate) fn record(&self) -> DiscardedRun {
        DiscardedRun { guest: self.guest.clone(), console: self.console.clone() }
    }
}
