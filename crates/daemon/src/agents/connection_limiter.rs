//! Limits how often connections of one guest are accepted.
//!
//! Idea: a token bucket, kept as the moment at which it is full again. Each connection moves that
//! moment on by what one takes to refill; one that would move it too far is refused. So a program
//! that connects without end costs the daemon no more than the refusals.
//! Limits: [`BURST`] at once, and one more for each [`REFILL`].

use std::time::Duration;

use ballast_model::Timestamp;

/// Connections at once: those of an agent that is started again a few times.
const BURST: u32 = 8;
/// Time after which one more is let in. A guest is served no more often than this anyway.
const REFILL: Duration = Duration::from_millis(500);

/// A limit on connections; new, it lets in [`BURST`].
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter {
    full_at: Timestamp,
}

impl ConnectionLimiter {
    /// Whether a connection is let in at `now`. One that is refused counts for nothing.
    pub(super) fn admits(&mut self, now: Timestamp) -> bool {
        let full_at = self.full_at.max(now) + REFILL;
        let is_let_in = full_at.saturating_since(now) <= REFILL * BURST;
        if is_let_in {
            self.full_at = full_at;
        }
        is_let_in
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
