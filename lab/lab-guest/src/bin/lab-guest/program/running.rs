//! The interface of a running program.

/// A running program whose data is loaded.
pub(super) trait RunningProgram {
    /// Lets it work for a few tenths of a second, longer only if memory is short. Returns its work
    /// since it was started.
    fn work(&mut self) -> Result<u64, String>;
}
