//! The rate limiter of a workload.
//!
//! Idea: a token bucket of a tenth of a second. A workload does not catch up on touches it missed
//! while it waited for memory: the rate is an upper limit, and the shortfall is what thrashing
//! cost.
//! Limits: no clock; the caller passes the elapsed time.

use std::time::Duration;

/// Size of the bucket, in seconds at full rate.
const BURST_S: f64 = 0.1;
/// The least the bucket holds: a slow workload keeps the fraction of a touch that it has saved when
/// the next whole one comes.
const TOUCHES_MIN: f64 = 2.0;
/// Longest wait proposed, so that even a very slow workload follows its schedule of sizes.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A token bucket of touches.
#[derive(Clone, Debug)]
pub struct Pace {
    per_s: f64,
    saved: f64,
    last: Duration,
}

impl Pace {
    /// Allows at most `per_s` touches per second; `per_s` is not negative.
    pub const fn new(per_s: f64) -> Self {
        Pace { per_s, saved: 0.0, last: Duration::ZERO }
    }

    /// Number of touches allowed now, `elapsed` after the start.
    pub fn allowed(&mut self, elapsed: Duration) -> u64 {
        let since = elapsed.saturating_sub(self.last);
        self.last = self.last.max(elapsed);
        let most = (self.per_s * BURST_S).max(TOUCHES_MIN);
        self.saved = (self.saved + since.as_secs_f64() * self.per_s).min(most);
        self.saved as u64
    }

    /// Takes tokens for touches done.
    pub fn spend(&mut self, touches: u64) {
        self.saved = (self.saved - touches as f64).max(0.0);
    }

    /// Time to wait before calling [`Pace::allowed`] again.
    pub fn wait(&self) -> Duration {
        // Waits for a quarter of the bucket: fewer wake-ups than one per touch.
        let worth = (self.per_s * BURST_S / 4.0).max(1.0);
        let wait = Duration::try_from_secs_f64((worth - self.saved).max(0.0) / self.per_s);
        wait.unwrap_or(WAIT_MAX).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn stall_is_not_caught_up() {
        let mut pace = Pace::new(1000.0);
        assert_eq!(pace.allowed(50 * MS), 50);
        pace.spend(50);
        assert_eq!(pace.allowed(10_000 * MS), 100);
    }

    #[test]
    fn slow_rate_still_allows_single_touches() {
        let mut pace = Pace::new(0.5);
        assert_eq!(pace.allowed(1_900 * MS), 0);
        assert_eq!(pace.allowed(2_000 * MS), 1);
    }

    #[test]
    fn zero_rate_allows_no_touch() {
        let mut pace = Pace::new(0.0);
        assert_eq!(pace.allowed(1_000_000 * MS), 0);
        assert_eq!(pace.wait(), WAIT_MAX);
    }

    proptest! {
        #[test]
        fn fractions_of_a_touch_are_kept_at_slow_rates(per_s in 1.0f64..40.0, ms in 1u32..50) {
            let mut pace = Pace::new(per_s);
            let mut done = 0;
            for ask in 1..=1000 {
                let allowed = pace.allowed(MS * ms * ask);
                pace.spend(allowed);
                done += allowed;
            }
            let ideal = f64::from(ms) * per_s;
            prop_assert!((done as f64 - ideal).abs() <= 2.0, "{} of {}", done, ideal);
        }

        #[test]
        fn touches_stay_close_below_the_rate(per_s in 1.0f64..1e6, asks in prop::collection::vec(0u32..50, 100)) {
            let mut pace = Pace::new(per_s);
            let (mut elapsed, mut done) = (Duration::ZERO, 0);
            for ms in asks {
                elapsed += MS * ms;
                let allowed = pace.allowed(elapsed);
                pace.spend(allowed);
                done += allowed;
            }
            let ideal = elapsed.as_secs_f64() * per_s;
            prop_assert!(done as f64 <= ideal + 1.0, "{} of {}", done, ideal);
            prop_assert!(done as f64 >= ideal - 2.0 - ideal * 1e-6, "{} of {}", done, ideal);
        }
    }
}
