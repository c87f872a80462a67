//! A token bucket: limits bytes per second.
//!
//! Idea: the bucket starts full, refills at the rate and holds at most one burst; moving bytes
//! takes tokens from it. Bytes moved beyond what was available are owed: the kernel may take more
//! than it is asked for (`memory.reclaim` twice as much, with the multi-generational LRU).
//! Limits: over any span of time it permits at most a burst, plus the rate times the span, plus the
//! excess of the last move. The resolution is a millisecond.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

/// A limit on bytes per second.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: Bytes,
    burst: Bytes,
    /// In thousandths of a byte, so that nothing is lost to rounding within a millisecond; negative
    /// while something is owed.
    credit: i128,
    last: Option<Timestamp>,
}

impl TokenBucket {
    /// A bucket for `per_second` bytes a second and at most `burst` at once; zero permits nothing.
    pub fn new(per_second: Bytes, burst: Bytes) -> TokenBucket {
        TokenBucket { per_second, burst, credit: thousandths(burst), last: None }
    }

    /// How much may be moved at `now`. A time before an earlier call's counts as that call's.
    pub fn available(&mut self, now: Timestamp) -> Bytes {
        let last = self.last.map_or(now, |last| last.max(now));
        let since = last.saturating_since(self.last.unwrap_or(now)).as_millis();
        self.last = Some(last);
        let since = i128::try_from(since).unwrap_or(i128::MAX);
        let filled = i128::from(self.per_second.get()).saturating_mul(since);
        self.credit = self.credit.saturating_add(filled).min(thousandths(self.burst));
        Bytes::new(u64::try_from((self.credit / 1000).max(0)).unwrap_or(u64::MAX))
    }

    /// Takes tokens for bytes that were moved, also more than there are.
    pub fn spend(&mut self, moved: Bytes) {
        self.credit = self.credit.saturating_sub(thousandths(moved));
    }

    /// When `wanted` may be moved if nothing else is; `None` if never: more than a burst, or no
    /// rate.
    pub fn ready_at(&self, wanted: Bytes) -> Option<Timestamp> {
        if wanted > self.burst || self.per_second == Bytes::ZERO {
            return None;
        }
        let missing = thousandths(wanted) - self.credit;
        let missing = u128::try_from(missing).unwrap_or(0);
        let ms = missing.div_ceil(u128::from(self.per_second.get()));
        Some(self.last? + Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
    }
}

fn thousandths(bytes: Bytes) -> i128 {
    i128::from(bytes.get()) * 1000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_bucket_starts_full_and_refills_to_the_burst() {
        let mut rate = TokenBucket::new(Bytes::new(1000), Bytes::new(500));
        assert_eq!(rate.available(at(10)), Bytes::new(500));
        rate.spend(Bytes::new(500));
        assert_eq!(rate.available(at(10)), Bytes::ZERO);
        assert_eq!(rate.ready_at(Bytes::new(40)), Some(at(50)));
        assert_eq!(rate.available(at(49)), Bytes::new(39));
        assert_eq!(rate.available(at(50)), Bytes::new(40));
        assert_eq!(rate.available(at(20)), Bytes::new(40), "time does not run backwards");
        assert_eq!(rate.available(at(9_000)), Bytes::new(500));
        assert_eq!(rate.ready_at(Bytes::new(501)), None);
        let mut none = TokenBucket::new(Bytes::ZERO, Bytes::ZERO);
        assert_eq!((none.available(at(1)), none.ready_at(Bytes::new(1))), (Bytes::ZERO, None));
    }

    #[test]
    fn what_was_moved_beyond_the_burst_is_owed() {
        let mut rate = TokenBucket::new(Bytes::new(1000), Bytes::new(500));
        assert_eq!(rate.available(at(0)), Bytes::new(500));
        rate.spend(Bytes::new(700));
        assert_eq!(rate.available(at(200)), Bytes::ZERO);
        assert_eq!(rate.ready_at(Bytes::new(40)), Some(at(240)));
        assert_eq!(rate.available(at(240)), Bytes::new(40));
    }

    proptest! {
        #[test]
        fn no_interval_exceeds_the_burst_plus_the_rate(
            per_second in 0u64..1 << 40,
            burst in 0u64..1 << 30,
            steps in prop::collection::vec((0u64..3000, any::<prop::sample::Index>()), 1..40),
        ) {
            let mut rate = TokenBucket::new(Bytes::new(per_second), Bytes::new(burst));
            let (mut now, mut moved) = (0, Vec::new());
            for (wait, part) in steps {
                now += wait;
                let available = rate.available(at(now)).get();
                let taken = part.index(available as usize + 1) as u64;
                rate.spend(Bytes::new(taken));
                moved.push((now, taken));
            }
            for from in 0..moved.len() {
                let mut sum = 0u128;
                for &(end, taken) in &moved[from..] {
                    sum += u128::from(taken);
                    let ms = u128::from(end - moved[from].0);
                    prop_assert!(sum <= u128::from(burst) + u128::from(per_second) * ms / 1000 + 1);
                }
            }
        }

        #[test]
        fn the_amount_is_available_at_its_ready_time(
            per_second in 1u64..1 << 40, burst in 1u64..1 << 30, part: prop::sample::Index,
        ) {
            let mut rate = TokenBucket::new(Bytes::new(per_second), Bytes::new(burst));
            let full = rate.available(at(0));
            rate.spend(full);
            let wanted = Bytes::new(part.index(burst as usize) as u64 + 1);
            let ready = rate.ready_at(wanted).unwrap();
            prop_assert!(rate.available(ready) >= wanted);
        }
    }
}
