//! The interface of a running program.

use std::time::Duration;

/// The usual time per call of [`RunningProgram::work`].
pub(super) const WORK_TIME: Duration = Duration::from_millis(200);

/// A running program whose data is loaded.
pub(super) trait RunningProgram {
    /// Lets it work for a few tenths of a second, longer only if memory is short. Returns its work
    /// since it was started.
    fn work(&mut self) -> Result<u64, String>;
}
