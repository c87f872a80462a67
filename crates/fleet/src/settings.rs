//! What an operator can set about migrations.

use std::time::Duration;

/// Settings of the planner; the checker takes the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Most migrations at once in the fleet, those under way among them.
    pub migrations_max: usize,
    /// A guest that was moved rests for this, or as long as its migration took if that is longer.
    pub cooldown_min: Duration,
    /// And at most for this, however often it was moved.
    pub cooldown_max: Duration,
    /// Time over which the misses that a migration saves are counted.
    pub horizon: Duration,
    /// Misses that have to be saved for each page copied.
    pub misses_per_page: u64,
    /// A host whose record is older than this takes part in nothing.
    pub stale_after: Duration,
}

impl Default for FleetSettings {
    /// Four migrations at once; a quarter of an hour to six hours of rest; a page copied has to
    /// save four misses within an hour; three missed records of ten seconds are too old.
    fn default() -> FleetSettings {
        FleetSettings {
            migrations_max: 4,
            cooldown_min: Duration::from_secs(15 * 60),
            cooldown_max: Duration::from_secs(6 * 3600),
            horizon: Duration::from_secs(3600),
            misses_per_page: 4,
            stale_after: Duration::from_secs(30),
        }
    }
}
