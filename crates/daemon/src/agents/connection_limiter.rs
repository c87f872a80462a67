//! Limits how often connections of one guest are accepted.
//!
//! Idea: a token bucket. Instead of a count of tokens it keeps the moment at which the bucket is
//! full again; each accepted connection moves that moment by [`REFILL`]. A connection that finds
//! the bucket empty is refused, so a program that connects without end costs only the refusals.
//! Limits: [`BURST`] connections at once, then one in each [`REFILL`].

use std::time::Duration;

use ballast_model::Timestamp;

/// Tokens of a full bucket: enough for an agent that is restarted a few times.
const BURST: u32 = 8;
/// Time in which one token is refilled. A guest is served no more often than this anyway.
const REFILL: Duration = Duration::from_millis(500);

/// The token bucket of one guest, full at first.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter {
    full_at: Timestamp,
}

impl ConnectionLimiter {
    /// Whether a connection is accepted at `now`. A refused one takes no token.
    pub(super) fn admits(&mut self, now: Timestamp) -> bool {
        let full_at = self.full_at.max(now) + REFILL;
        let is_accepted = full_at.saturating_since(now) <= REFILL * BURST;
        if is_accepted {
            self.full_at = full_at;
        }
        is_accepted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_burst_passes_and_then_one_for_each_refill() {
        let mut limiter = ConnectionLimiter::default();
        let mut admitted = |ms| (0..100).filter(|_| limiter.admits(at(ms))).count();
        assert_eq!([admitted(7), admitted(506), admitted(507), admitted(1007)], [8, 0, 1, 1]);
        assert_eq!(admitted(60_000), 8);
    }

    proptest! {
        #[test]
        fn no_span_has_more_than_the_burst_and_its_refills(
            waits in prop::collection::vec(0u64..400, 1..200),
        ) {
            let mut limiter = ConnectionLimiter::default();
            let (mut now, mut admitted) = (0, Vec::new());
            for wait in waits {
                now += wait;
                if limiter.admits(at(now)) {
                    admitted.push(now);
                }
            }
            for (first, from) in admitted.iter().enumerate() {
                for (last, to) in admitted.iter().enumerate().skip(first) {
                    let most = u64::from(BURST) + (to - from) / 500;
                    prop_assert!((last - first + 1) as u64 <= most, "{admitted:?}");
                }
            }
        }

        #[test]
        fn who_connects_no_faster_than_the_refill_is_never_refused(
            waits in prop::collection::vec(500u64..2000, 1..100),
        ) {
            let mut limiter = ConnectionLimiter::default();
            let mut now = 0;
            for wait in waits {
                now += wait;
                prop_assert!(limiter.admits(at(now)));
            }
        }
    }
}
