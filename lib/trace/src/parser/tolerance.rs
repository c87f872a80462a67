//! How bad records are handled: the first is an error, or all are counted.

use crate::Fault;

/// How bad records are handled.
pub(super) struct Tolerance {
    pub(super) skip_bad: bool,
    pub(super) skipped: u64,
}

impl Tolerance {
    /// Counts a bad record, or returns it as an error.
    pub(super) fn bad(&mut self, fault: impl FnOnce() -> Fault) -> Result<(), Fault> {
        if !self.skip_bad {
            return Err(fault());
        }
        self.skipped += 1;
        Ok(())
    }
}
