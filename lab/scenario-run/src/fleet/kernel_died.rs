//! A guest that died in a turn through no fault of Ballast's.
//!
//! Idea: under emulation QEMU 7.2 can lose a write that a guest makes while its memory is copied;
//! its kernel may die of that. Such a turn is worth nothing, and is played again.

use crate::fleet_record::DiscardedRun;

/// A guest's kernel died while it was moved, or after: the run is worth nothing.
#[derive(Debug, thiserror::Error)]
#[error("the kernel of guest {guest} died: {console}")]
pub(crate) struct KernelDied {
    pub(super) guest: String,
    pub(super) console: String,
}

impl KernelDied {
    /// For the record of the run that counts instead.
    pub(crate) fn record(&self) -> DiscardedRun {
        DiscardedRun { guest: self.guest.clone(), console: self.console.clone() }
    }
}
