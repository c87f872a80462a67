//! The interface of all shrinkers.

use std::time::Instant;

/// A program or cache that can give memory back.
pub trait Shrinker: Send {
    /// Its name, unique within an agent.
    fn name(&self) -> &str;

    /// How much it can give, in bytes.
    ///
    /// # Errors
    /// Why it cannot give anything, or cannot be asked.
    fn can_give(&mut self) -> Result<u64, String>;

    /// Gives up to `bytes` before `deadline`; returns how much it gave.
    ///
    /// # Errors
    /// Why it gave nothing.
    fn give(&mut self, bytes: u64, deadline: Instant) -> Result<u64, String>;

    /// Lets it grow again.
    ///
    /// # Errors
    /// Why its limit could not be restored.
    fn release(&mut self) -> Result<(), String>;
}

/// Lets all shrinkers grow again; logs failures to standard error. Returns whether none failed.
pub fn release_all(shrinkers: &mut [Box<dyn Shrinker>]) -> bool {
    let mut has_failed = false;
    for shrinker in shrinkers {
        if let Err(error) = shrinker.release() {
            eprintln!("ballast-agent: cannot restore the limit of {}: {error}", shrinker.name());
            has_failed = true;
        }
    }
    !has_failed
}
