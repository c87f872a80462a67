//! The age of a guest's statistics.
//!
//! Idea: QEMU stamps statistics with the wall clock, in whole seconds, when the guest sends them.
//! The wall clock is trusted only for the first stamp. After that a *change* of the stamp is timed
//! on the monotonic clock. So setting the wall clock cannot make stale statistics look fresh, nor
//! fresh ones stale.
//!
//! Limits: stamps are whole seconds, so an age is too low by up to a second, and too high by at
//! most the time between two observations. A changed stamp was made after the previous request,
//! however late that was answered; the wall clock may narrow that interval but never widen it. If
//! the first stamp is in the future, the age is unknown until the stamp changes.

use std::time::Duration;

use ballast_model::Timestamp;

/// Tracks the stamp of one guest's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsAge {
    last: Option<ObservedStamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ObservedStamp {
    stamp: u64,
    /// When the request was sent whose reply had the stamp.
    asked_at: Timestamp,
    /// A time, and the age at that time: the time of the statistics may be before the clock's
    /// origin, so it is not stored.
    known: Option<(Timestamp, Duration)>,
}

impl StatsAge {
    /// Observes a stamp (`last-update`, in seconds of the wall clock; 0: none yet) at `now`, when
    /// the wall clock says `wall_secs`. The reply is to a request sent at `asked_at`. Returns the
    /// age of the statistics; `None`: there are none, or it is unknown.
    pub fn observe(
        &mut self,
        stamp: u64,
        asked_at: Timestamp,
        now: Timestamp,
        wall_secs: u64,
    ) -> Option<Duration> {
        if stamp == 0 {
            self.last = None;
            return None;
        }
        let by_wall = wall_secs.checked_sub(stamp).map(Duration::from_secs);
        let known = match self.last {
            Some(last) if last.stamp == stamp => last.known,
            Some(last) => {
                let longest = now.saturating_since(last.asked_at);
                Some((now, by_wall.map_or(longest, |age| age.min(longest))))
            }
            None => by_wall.map(|age| (now, age)),
        };
        self.last = Some(ObservedStamp { stamp, asked_at, known });
        self.age(now)
    }

    /// The age at `now` of the statistics last observed; `None` if there are none or it is unknown.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let (at, age_then) = self.last?.known?;
        Some(age_then + now.saturating_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stamp, monotonic milliseconds, wall-clock seconds, expected age in milliseconds.
    type Observation = (u64, u64, u64, Option<u64>);

    #[test]
    fn ages_are_monotonic_time_since_the_stamp_changed() {
        let table: &[(&str, &[Observation])] = &[
            ("never sent", &[(0, 0, 100, None), (0, 1000, 101, None)]),
            ("first stamp after never", &[(0, 0, 100, None), (100, 1000, 101, Some(1000))]),
            ("the first stamp trusts the wall clock", &[(90, 5000, 100, Some(10_000))]),
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
                "wall clock set back before the first stamp: unknown until the stamp changes",
                &[(100, 0, 40, None), (100, 1000, 41, None), (42, 2000, 42, Some(0))],
            ),
            (
                "wall clock set forward while running",
                &[(100, 0, 100, Some(0)), (5000, 1000, 5000, Some(0))],
            ),
            (
                "wall clock set back while running: at most the time since the last observation",
                &[(100, 0, 100, Some(0)), (101, 1000, 30, Some(1000)), (31, 2000, 31, Some(0))],
            ),
            (
                "wall clock set forward between stamp and observation: bounded by the last one",
                &[(100, 0, 100, Some(0)), (101, 1000, 9000, Some(1000))],
            ),
            (
                "long gap between observations, fresh statistics",
                &[(100, 0, 100, Some(0)), (3700, 3_600_000, 3701, Some(1000))],
            ),
            (
                "never again, after a reset",
                &[(100, 0, 100, Some(0)), (0, 1000, 101, None), (102, 2000, 102, Some(0))],
            ),
        ];
        for (case, observations) in table {
            let mut age = StatsAge::default();
            for &(stamp, ms, wall, expected) in *observations {
                let now = Timestamp::from_millis(ms);
                let found = age.observe(stamp, now, now, wall);
                assert_eq!(found, expected.map(Duration::from_millis), "{case} at {ms} ms");
            }
        }
    }

    #[test]
    fn age_grows_between_observations() {
        let mut age = StatsAge::default();
        let now = Timestamp::from_millis(1000);
        age.observe(100, now, now, 102);
        assert_eq!(age.age(Timestamp::from_millis(4500)), Some(Duration::from_millis(5500)));
    }

    #[test]
    fn a_late_answer_makes_no_old_statistics_fresh() {
        let at = |secs: u64| Timestamp::from_millis(secs * 1000);
        let mut age = StatsAge::default();
        age.observe(100, at(0), at(0), 100);
        // This reply was held back for 14 s. Meanwhile the guest renewed its statistics, 9 s ago.
        assert_eq!(age.observe(101, at(1), at(15), 115), Some(Duration::from_secs(14)));
        assert_eq!(age.observe(106, at(15), at(15), 115), Some(Duration::from_secs(9)));
    }
}
