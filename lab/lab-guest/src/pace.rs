//! Keeping a workload to its rate.
//!
//! Idea: a token bucket of a tenth of a second. Time lost waiting for memory is lost: a rate is the
//! most a workload does, and what it does not reach is what thrashing costs it.
//! Limits: no clock; the caller says how much time has passed.

use std::time::Duration;

/// Time for which touches can be saved up.
const BURST_S: f64 = 0.1;
/// Longest wait proposed, so that a workload that hardly does anything still keeps its schedule.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A rate and what may be done at once.
#[derive(Clone, Debug)]
pub struct Pace {
    per_s: f64,
    saved: f64,
    last: Duration,
}

impl Pace {
    /// At most `per_s` touches a second; not negative.
    pub const fn new(per_s: f64) -> Self {
        Pace { per_s, saved: 0.0, last: Duration::ZERO }
    }

    /// Touches allowed now, `elapsed` after the start.
    pub fn allowed(&mut self, elapsed: Duration) -> u64 {
        let since = elapsed.saturating_sub(self.last);
        self.last = self.last.max(elapsed);
        let most = (self.per_s * BURST_S).max(1.0);
        self.saved = (self.saved + since.as_secs_f64() * self.per_s).min(most);
        self.saved as u64
    }

    /// Accounts for touches done.
    pub fn spend(&mut self, touches: u64) {
        self.saved = (self.saved - touches as f64).max(0.0);
    }

    /// How long to wait before it is worth asking again.
    pub fn wait(&self) -> Duration {
        // A quarter of the burst at once: fewer wake-ups than one for each touch.
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
    fn a_stall_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0);
        assert_eq!(pace.allowed(50 * MS), 50);
        pace.spend(50);
        assert_eq!(pace.allowed(10_000 * MS), 100);
    }

    #[test]
    fn a_slow_pace_still_gets_its_touch() {
        let mut pace = Pace::new(0.5);
        assert_eq!(pace.allowed(1_900 * MS), 0);
        assert_eq!(pace.allowed(2_000 * MS), 1);
    }

    #[test]
    fn nothing_a_second_is_nothing() {
        let mut pace = Pace::new(0.0);
        assert_eq!(pace.allowed(1_000_000 * MS), 0);
        assert_eq!(pace.wait(), WAIT_MAX);
    }

    proptest! {
        #[test]
        fn never_faster_and_not_much_slower(per_s in 1.0f64..1e6, asks in prop::collection::vec(0u32..50, 100)) {
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
