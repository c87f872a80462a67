//! How much may be moved by when.
//!
//! Idea: a bucket fills at the rate and holds a bounded burst; what is moved is taken from it. It begins full.
//! Limits: over any time no more than a burst and the rate times that time; in milliseconds, as time is.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

/// A bound on bytes per second.
#[derive(Clone, Debug)]
pub struct Rate {
    per_second: Bytes,
    burst: Bytes,
    /// In thousandths of a byte, so that nothing is lost between two milliseconds.
    credit: u128,
    last: Option<Timestamp>,
}

impl Rate {
    /// `per_second` bytes a second, and at most `burst` at once; zero allows nothing.
    pub fn new(per_second: Bytes, burst: Bytes) -> Rate {
        Rate { per_second, burst, credit: thousandths(burst), last: None }
    }

    /// What may be moved at `now`. A time before that of an earlier call counts as that one.
    pub fn available(&mut self, now: Timestamp) -> Bytes {
        let last = self.last.map_or(now, |last| last.max(now));
        let since = last.saturating_since(self.last.unwrap_or(now)).as_millis();
        self.last = Some(last);
        let filled = u128::from(self.per_second.get()).saturating_mul(since);
        self.credit = self.credit.saturating_add(filled).min(thousandths(self.burst));
        Bytes::new(u64::try_from(self.credit / 1000).unwrap_or(u64::MAX))
    }

    /// Takes what was moved.
    pub fn spend(&mut self, moved: Bytes) {
        self.credit = self.credit.saturating_sub(thousandths(moved));
    }

    /// When `wanted` may be moved, as things stand; `None` if never, as more than a burst is.
    pub fn ready_at(&self, wanted: Bytes) -> Option<Timestamp> {
        if wanted > self.burst || self.per_second == Bytes::ZERO {
            return None;
        }
        let missing = thousandths(wanted).saturating_sub(self.credit);
        let ms = missing.div_ceil(u128::from(self.per_second.get()));
        Some(self.last? + Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
    }
}

fn thousandths(bytes: Bytes) -> u128 {
    u128::from(bytes.get()) * 1000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn it_begins_full_and_fills_to_the_burst() {
        let mut rate = Rate::new(Bytes::new(1000), Bytes::new(500));
        assert_eq!(rate.available(at(10)), Bytes::new(500));
        rate.spend(Bytes::new(500));
        assert_eq!(rate.available(at(10)), Bytes::ZERO);
        assert_eq!(rate.ready_at(Bytes::new(40)), Some(at(50)));
        assert_eq!(rate.available(at(49)), Bytes::new(39));
        assert_eq!(rate.available(at(50)), Bytes::new(40));
        assert_eq!(rate.available(at(20)), Bytes::new(40), "time does not run backwards");
        assert_eq!(rate.available(at(9_000)), Bytes::new(500));
        assert_eq!(rate.ready_at(Bytes::new(501)), None);
        let mut none = Rate::new(Bytes::ZERO, Bytes::ZERO);
        assert_eq!((none.available(at(1)), none.ready_at(Bytes::new(1))), (Bytes::ZERO, None));
    }

    proptest! {
        #[test]
        fn over_no_time_more_than_a_burst_and_the_rate(
            per_second in 0u64..1 << 40,
            burst in 0u64..1 << 30,
            steps in prop::collection::vec((0u64..3000, any::<prop::sample::Index>()), 1..40),
        ) {
            let mut rate = Rate::new(Bytes::new(per_second), Bytes::new(burst));
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
        fn what_is_said_to_be_ready_then_is(per_second in 1u64..1 << 40, burst in 1u64..1 << 30, part: prop::sample::Index) {
            let mut rate = Rate::new(Bytes::new(per_second), Bytes::new(burst));
            let full = rate.available(at(0));
            rate.spend(full);
            let wanted = Bytes::new(part.index(burst as usize) as u64 + 1);
            let ready = rate.ready_at(wanted).unwrap();
            prop_assert!(rate.available(ready) >= wanted);
        }
    }
}
