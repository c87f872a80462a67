//! Settings of migrations.

use std::time::Duration;

/// Settings of the planner. The checker takes the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetSettings {
    /// Most migrations at once in the fleet, including those under way.
    pub migrations_max: usize,
    /// Least rest after a migration: for this time, or for as long as the migration took if that
    /// was longer, the guest is not moved again. It doubles with each further move within 24 hours.
    pub cooldown_min: Duration,
    /// Longest rest, however often the guest was moved.
    pub cooldown_max: Duration,
    /// Time over which the misses that a migration saves are counted.
    pub horizon: Duration,
    /// Misses that have to be saved for each page copied.
    pub misses_per_page: u64,
    /// A record older than this is stale: its host neither gives nor receives guests.
    pub stale_after: Duration,
}

impl Default for FleetSettings {
    /// Four migrations at once; a rest of a quarter of an hour to six hours; four misses saved
    /// within an hour for each page copied; records stale after three missed ones, at one in ten
    /// seconds.
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
