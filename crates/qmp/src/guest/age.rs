//! How old a guest's statistics are.
//!
//! Idea: QEMU stamps statistics with the wall clock, in whole seconds, when the guest sends them.
//! The wall clock is believed once, at first sight; from then on only *changes* of the stamp count,
//! timed on the monotonic clock, so that a clock set forward or back cannot make dead statistics
//! look alive or live ones dead.
//!
//! Limits: the age is an upper bound. At a change the true moment lies between this look and the
//! one before; the wall clock may place it within these two, never outside of them. A guest whose
//! stamp is in the future at first sight has no known age until it changes.

use std::time::Duration;

use ballast_model::Timestamp;

/// Follows the stamp of one guest's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsAge {
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    stamp: u64,
    looked_at: Timestamp,
    /// Moment and age then, as the moment the statistics were true may lie before the clock's origin.
    known: Option<(Timestamp, Duration)>,
}

impl StatsAge {
    /// Looks at a stamp (`last-update`, in seconds of the wall clock; 0: never) at `now`, when the
    /// wall clock says `wall_secs`, and says how old the statistics are now.
    pub fn observe(&mut self, stamp: u64, now: Timestamp, wall_secs: u64) -> Option<Duration> {
        if stamp == 0 {
            self.seen = None;
            return None;
        }
        let by_wall = wall_secs.checked_sub(stamp).map(Duration::from_secs);
        let known = match self.seen {
            Some(seen) if seen.stamp == stamp => seen.known,
            Some(seen) => {
                let longest = now.saturating_since(seen.looked_at);
                Some((now, by_wall.map_or(longest, |age| age.min(longest))))
            }
            None => by_wall.map(|age| (now, age)),
        };
        self.seen = Some(Seen { stamp, looked_at: now, known });
        self.age(now)
    }

    /// How old the statistics last looked at are at `now`; `None` if there are none or it is not
    /// known.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let (at, age_then) = self.seen?.known?;
        Some(age_then + now.saturating_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One look: stamp, monotonic milliseconds, wall-clock seconds, expected age in milliseconds.
    type Look = (u64, u64, u64, Option<u64>);

    #[test]
    fn ages_are_monotonic_time_since_the_stamp_changed() {
        let table: &[(&str, &[Look])] = &[
            ("never sent", &[(0, 0, 100, None), (0, 1000, 101, None)]),
            ("first stamp after never", &[(0, 0, 100, None), (100, 1000, 101, Some(1000))]),
            ("first sight believes the wall clock", &[(90, 5000, 100, Some(10_000))]),
            (
                "fresh every second",
                &[
                    (100, 0, 100, Some(0)),
                    (101, 1000, 101, Some(0)),
                    (102, 2000, 103, Some(1000)),
                    (102, 2500, 103, Some(1500)),
                ],
            ),
            (
                "frozen statistics age, whatever the wall clock does",
                &[
                    (100, 0, 100, Some(0)),
                    (100, 5000, 105, Some(5000)),
                    (100, 6000, 50, Some(6000)),
                    (100, 7000, 9_999_999, Some(7000)),
                ],
            ),
            (
                "wall clock set back before first sight: unknown until the stamp changes",
                &[(100, 0, 40, None), (100, 1000, 41, None), (42, 2000, 42, Some(0))],
            ),
            (
                "wall clock set forward while running",
                &[(100, 0, 100, Some(0)), (5000, 1000, 5000, Some(0))],
            ),
            (
                "wall clock set back while running: never older than since the last look",
                &[(100, 0, 100, Some(0)), (101, 1000, 30, Some(1000)), (31, 2000, 31, Some(0))],
            ),
            (
                "wall clock set forward between stamp and look: bounded by the last look",
                &[(100, 0, 100, Some(0)), (101, 1000, 9000, Some(1000))],
            ),
            (
                "long gap between looks, fresh statistics",
                &[(100, 0, 100, Some(0)), (3700, 3_600_000, 3701, Some(1000))],
            ),
            (
                "never again, after a reset",
                &[(100, 0, 100, Some(0)), (0, 1000, 101, None), (102, 2000, 102, Some(0))],
            ),
        ];
        for (case, looks) in table {
            let mut age = StatsAge::default();
            for &(stamp, ms, wall, expected) in *looks {
                let seen = age.observe(stamp, Timestamp::from_millis(ms), wall);
                assert_eq!(seen, expected.map(Duration::from_millis), "{case} at {ms} ms");
            }
        }
    }

    #[test]
    fn age_grows_between_looks() {
        let mut age = StatsAge::default();
        age.observe(100, Timestamp::from_millis(1000), 102);
        assert_eq!(age.age(Timestamp::from_millis(4500)), Some(Duration::from_millis(5500)));
    }
}
