//! When to ask a guest for figures that are read every few seconds.
//!
//! Idea: guests that were found together must not all be asked in the same tick. So each has its
//! own moment in every interval, by a number that differs between guests, and is asked in the first
//! tick from that moment on. A late tick asks many at once. They then return to their moments, each
//! by asking up to [`CATCH_UP`] earlier than an interval later: no guest is asked less often.
//!
//! Cost: O(1) a tick. Source: ours; the multiplier is Knuth's (volume 3, 6.4), for 64 bits.
//! Limits: guests are spread by chance, so of 1,000 guests asked in five ticks, some tick asks 10 %
//! more than its fifth.

use std::time::Duration;

use ballast_model::Timestamp;

/// A guest may be asked earlier than an interval after its last query by at most this. With a tick
/// each second, most guests are asked in their own ticks again within four intervals.
const CATCH_UP: Duration = Duration::from_millis(1500);

/// 2^64 divided by the golden ratio: multiples of it spread well, also for numbers in a row.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// When one guest is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadQuery {
    /// Its moment in each interval.
    moment: Duration,
    due: Timestamp,
}

impl SpreadQuery {
    /// The time between two queries of a guest.
    pub const INTERVAL: Duration = Duration::from_secs(5);

    /// A guest that is found at `now`. It is asked for the first time before an interval has
    /// passed. Its `number` differs from those of most others: a PID, a position.
    pub fn new(number: u64, now: Timestamp) -> SpreadQuery {
        let interval_ms = millis(SpreadQuery::INTERVAL);
        let moment_ms = (number.wrapping_mul(MULTIPLIER) >> 32) % interval_ms;
        let mut query = SpreadQuery { moment: Duration::from_millis(moment_ms), due: now };
        let late = query.late(now);
        if late > Duration::ZERO {
            query.due = now + (SpreadQuery::INTERVAL - late);
        }
        query
    }

    /// Whether to ask at `now`; assumes that the caller does.
    pub fn take_due(&mut self, now: Timestamp) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + (SpreadQuery::INTERVAL - self.late(now).min(CATCH_UP));
        }
        is_due
    }

    /// Time since its last moment.
    fn late(&self, now: Timestamp) -> Duration {
        let interval_ms = millis(SpreadQuery::INTERVAL);
        let now_ms = now.as_millis() % interval_ms;
        Duration::from_millis((now_ms + interval_ms - millis(self.moment)) % interval_ms)
    }
}

/// For times of an interval or less.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUESTS: u64 = 1000;

    /// A thousand guests whose numbers are `apart`, found at 12.345 s.
    fn found_together(apart: u64) -> Vec<SpreadQuery> {
        let found_at = Timestamp::from_millis(12_345);
        (0..GUESTS).map(|n| SpreadQuery::new(4001 + n * apart, found_at)).collect()
    }

    /// How many guests are asked in a tick.
    fn asked(guests: &mut [SpreadQuery], now_ms: u64) -> usize {
        let now = Timestamp::from_millis(now_ms);
        let mut count = 0;
        for guest in guests {
            count += usize::from(guest.take_due(now));
        }
        count
    }

    #[test]
    fn guests_found_together_are_asked_in_different_ticks() {
        for apart in [1, 2, 4, 7, 12, 5000] {
            let mut guests = found_together(apart);
            for tick in 1..300 {
                // Ticks are some milliseconds early or late.
                let count = asked(&mut guests, 12_345 + tick * 1000 - tick * 31 % 7);
                assert!((150..=250).contains(&count), "{apart} apart, tick {tick}: {count}");
            }
        }
    }

    #[test]
    fn guests_spread_again_after_a_late_tick() {
        let mut guests = found_together(12);
        asked(&mut guests, 40_000);
        let counts: Vec<usize> =
            (1..60).map(|tick| asked(&mut guests, 40_000 + tick * 1000 + tick * 37 % 11)).collect();
        assert!(counts[..5].iter().any(|count| *count > 500), "all were late: {counts:?}");
        assert!(counts[20..].iter().all(|count| *count <= 250), "{counts:?}");
    }

    /// Ticks of any length: a guest is asked in the first one after five seconds at the latest, as
    /// without moments, and not within three and a half.
    #[test]
    fn no_guest_waits_longer_than_an_interval() {
        for (guest, mut query) in found_together(3).into_iter().enumerate() {
            let mut now_ms = 12_345;
            let mut last_ms = 12_345;
            let mut was_asked = false;
            for tick in 0..200 {
                now_ms += 1 + (guest as u64 * 7919 + tick * 104_729) % 3000;
                let passed_ms = now_ms - last_ms;
                if query.take_due(Timestamp::from_millis(now_ms)) {
                    assert!(!was_asked || passed_ms >= 3500, "{guest}: {passed_ms}");
                    (last_ms, was_asked) = (now_ms, true);
                } else {
                    assert!(passed_ms < 5000, "{guest}: {passed_ms}");
                }
            }
        }
    }

    #[test]
    fn any_number_and_time_has_a_moment() {
        for number in [0, 1, u64::MAX] {
            for ms in [0, 1, u64::MAX - 1, u64::MAX] {
                let now = Timestamp::from_millis(ms);
                let mut query = SpreadQuery::new(number, now);
                assert!(query.moment < SpreadQuery::INTERVAL);
                query.take_due(now + SpreadQuery::INTERVAL);
            }
        }
    }
}
