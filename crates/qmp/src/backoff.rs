//! Waits between connection attempts.
//!
//! Idea: each failure doubles the wait up to a limit. The wait is random within its upper half, so
//! that a hundred guests do not all reconnect at once after their host was frozen. The random
//! numbers come from a seed: same seed, same waits.

use std::time::Duration;

/// First wait: long enough for a starting hypervisor to bind its socket.
pub const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// Longest wait: how late a returning guest may be noticed.
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// The waits of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    random: u64,
    attempts: u32,
}

impl Backoff {
    /// No failure yet; `seed` determines the random numbers.
    pub fn new(seed: u64) -> Self {
        Backoff { random: seed, attempts: 0 }
    }

    /// A connection succeeded: the next wait is short again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// A connection failed: returns the wait before the next attempt, between [`BACKOFF_MIN`]/2 and
    /// [`BACKOFF_MAX`].
    pub fn next_wait(&mut self) -> Duration {
        let full = BACKOFF_MIN.saturating_mul(1 << self.attempts.min(16)).min(BACKOFF_MAX);
        self.attempts = self.attempts.saturating_add(1);
        let half = full / 2;
        let spread_ms = u64::try_from(half.as_millis()).unwrap_or(u64::MAX);
        half + Duration::from_millis(self.random() % (spread_ms + 1))
    }

    /// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_limits_until_reset() {
        let mut backoff = Backoff::new(7);
        for attempt in 0..40 {
            let full = (BACKOFF_MIN * (1 << attempt.min(10))).min(BACKOFF_MAX);
            let wait = backoff.next_wait();
            assert!(full / 2 <= wait && wait <= full, "attempt {attempt}: {wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait() <= BACKOFF_MIN);
    }

    #[test]
    fn the_seed_determines_the_waits_and_spreads_them() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed);
            (0..8).map(|_| backoff.next_wait()).collect::<Vec<_>>()
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
