//! How much of a container's memory to reclaim at a time, to find out what is idle.
//!
//! Idea: what a container holds does not show what it needs, because idle memory stays with it. So
//! a little is reclaimed every few seconds: the more its tasks have just waited for memory, the
//! less is reclaimed, and nothing once they wait for a thousandth of the time. What was needed is
//! read back, and the wait for it shows in the next step.
//!
//! Cost: O(1). Source: Weiner et al., TMO (ASPLOS 2022), §3.3: reclaim = memory × ratio × max(0, 1
//! − pressure / threshold), with a ratio of 0.05 % and a threshold of 0.1 % each 6 s. The ratio
//! here is ten times that, because Ballast should find idle memory within minutes rather than days.
//! Limits: pressure counts all waiting for memory, not only for what was reclaimed here.

use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

/// Time between two steps.
pub(crate) const PERIOD: Duration = Duration::from_secs(6);

/// A step reclaims at most this part, a two-hundredth.
const PART: (u64, u64) = (1, 200);

/// Nothing is reclaimed once tasks have waited for this part of the time.
const PRESSURE_MAX: (u32, u32) = (1, 1000);

/// Most that a step reclaims: bounds its duration.
const STEP_MAX: Bytes = Bytes::mib(64);

/// After the kernel has reclaimed less than requested, the container is left alone for this long.
const REST: Duration = Duration::from_secs(60);

/// When one container was last probed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prober {
    last: Option<(Timestamp, Duration)>,
    rests_until: Timestamp,
}

impl Prober {
    /// How much to reclaim at `now` from a container that holds `holds` and must keep `least`, and
    /// whose tasks have waited for `stalled` in total; `None`: nothing.
    pub(crate) fn step(
        &mut self,
        now: Timestamp,
        stalled: Duration,
        holds: Bytes,
        least: Bytes,
    ) -> Option<Bytes> {
        let (at, before) = *self.last.get_or_insert((now, stalled));
        let passed = now.saturating_since(at);
        if passed < PERIOD || now < self.rests_until {
            return None;
        }
        self.last = Some((now, stalled));
        let waited = stalled.saturating_sub(before).as_micros();
        let most = passed.as_micros() * u128::from(PRESSURE_MAX.0) / u128::from(PRESSURE_MAX.1);
        let calm = u64::try_from(most.saturating_sub(waited)).unwrap_or(u64::MAX);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let part = holds.fraction(PART.0, PART.1).fraction(calm, most).min(STEP_MAX);
        let part = part.min(holds.saturating_sub(least)).page_floor();
        (part > Bytes::ZERO).then_some(part)
    }

    /// Records that the kernel has reclaimed less than requested.
    pub(crate) fn came_short(&mut self, now: Timestamp) {
        self.rests_until = now + REST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reclaimed 6 s after the first step, if tasks have waited for `waited` meanwhile.
    fn taken(holds: u64, least: u64, waited: Duration) -> Option<u64> {
        let mut prober = Prober::default();
        let size = Bytes::mib;
        let start = Duration::from_secs(5);
        let at = Timestamp::from_millis(1000);
        assert_eq!(prober.step(at, start, size(holds), size(least)), None, "nothing is known yet");
        let step = prober.step(at + PERIOD, start + waited, size(holds), size(least));
        step.map(|it| it.get() >> 20)
    }

    #[test]
    fn the_more_tasks_wait_the_less_is_taken() {
        let ms = Duration::from_millis;
        assert_eq!(taken(2000, 0, ms(0)), Some(10));
        assert_eq!(taken(2000, 0, ms(3)), Some(5));
        assert_eq!(taken(2000, 0, ms(6)), None);
        assert_eq!(taken(2000, 0, ms(600)), None);
        assert_eq!(taken(200_000, 0, ms(0)), Some(64), "no more at once");
        assert_eq!(taken(2000, 1996, ms(0)), Some(4), "down to its floor");
        assert_eq!(taken(2000, 2000, ms(0)), None);
    }

    #[test]
    fn it_rests_between_steps_and_longer_after_a_failure() {
        let mut prober = Prober::default();
        let mut step = |second: u64, fails: bool| {
            let now = Timestamp::from_millis(second * 1000);
            let taken = prober.step(now, Duration::ZERO, Bytes::gib(1), Bytes::ZERO).is_some();
            if fails {
                prober.came_short(now);
            }
            taken
        };
        let taken: Vec<bool> = [0, 3, 6, 9, 12].map(|second| step(second, false)).to_vec();
        assert_eq!(taken, [false, false, true, false, true]);
        assert!(step(18, true));
        assert!(!step(77, false) && step(78, false));
    }
}
