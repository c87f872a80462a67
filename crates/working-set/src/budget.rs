//! How much may be watched, so that it costs no more than allowed.
//!
//! Idea: what watching costs is close to proportional to the share of granules watched. Above its limit
//! the share is halved as often as the excess asks for, at once; it is doubled again when the cost has
//! been below a quarter of the limit for two intervals, after which it is below half: a guest whose
//! accesses do not change ends at one share.
//!
//! Few granules ([`GRANULES_MIN`]) are watched whatever it costs, as fewer would tell nothing. Where these
//! alone cost more than [`DEAR`] times the limit, intervals are left out, so that it is no more in the mean:
//! what is told is then as right as ever, but later.
//!
//! Cost: O(1). Source: ours. Limits: shares are powers of two; at most [`PAUSE_MAX`] intervals are left out.

use std::time::Duration;

/// Shares begin at this power of a half: 1 in 128 costs nothing that could be measured.
const SHIFT_FIRST: u32 = 7;
/// The least share, as a power of a half.
const SHIFT_MAX: u32 = 20;
/// Granules watched at least, as far as there are as many.
const GRANULES_MIN: u64 = 512;
/// Below this part of the limit there is room for twice the share.
const ROOM: f64 = 0.25;
/// Times the limit that the fewest granules may cost.
const DEAR: f64 = 2.0;
/// Intervals left out in a row at most: what is older than that many seconds is no news of a guest.
const PAUSE_MAX: u32 = 3;
/// Intervals of room before it is taken.
const CALM: u32 = 2;

/// A limit that is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetError(pub f64);

impl std::fmt::Display for BudgetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a budget of {} of a core: expected above 0, at most 1", self.0)
    }
}

impl std::error::Error for BudgetError {}

/// The share of granules that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    limit: f64,
    shift: u32,
    calm: u32,
    pause: u32,
}

impl Default for Budget {
    /// 0.5 % of a core.
    fn default() -> Budget {
        Budget { limit: 0.005, shift: SHIFT_FIRST, calm: 0, pause: 0 }
    }
}

impl Budget {
    /// With a limit as a share of one core.
    ///
    /// # Errors
    /// It is not above 0 and at most 1.
    pub fn new(limit: f64) -> Result<Budget, BudgetError> {
        if limit > 0.0 && limit <= 1.0 {
            return Ok(Budget { limit, ..Budget::default() });
        }
        Err(BudgetError(limit))
    }

    /// The limit, as a share of one core.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The share of granules to watch, above 0, at most 1; of `granules` in all.
    pub fn share(&self, granules: u64) -> f64 {
        0.5_f64.powi(self.shift_of(granules) as i32)
    }

    /// How many intervals are left out after the last that was taken in.
    pub fn pause(&self) -> u32 {
        self.pause
    }

    /// Takes in what an interval of `length` cost with the share that was told for `granules`.
    pub fn update(&mut self, cost: Duration, length: Duration, granules: u64) {
        if length.is_zero() {
            return;
        }
        self.shift = self.shift_of(granules);
        let used = cost.as_secs_f64() / length.as_secs_f64() / self.limit;
        let is_least = self.shift == Budget::shift_most(granules);
        let times = if is_least { (used / DEAR).ceil() } else { 1.0 };
        // Saturating, and no number is 0.
        self.pause = (times as u32).saturating_sub(1).min(PAUSE_MAX);
        if used > 1.0 {
            let halvings = used.log2().ceil().max(1.0) as u32;
            self.shift = (self.shift + halvings).min(SHIFT_MAX);
            self.calm = 0;
        } else if used < ROOM {
            self.calm += 1;
            if self.calm >= CALM {
                self.shift = self.shift.saturating_sub(1);
                self.calm = 0;
            }
        } else {
            self.calm = 0;
        }
    }

    /// The power of a half, with which enough granules are watched.
    fn shift_of(&self, granules: u64) -> u32 {
        self.shift.min(Budget::shift_most(granules))
    }

    /// The greatest of those.
    fn shift_most(granules: u64) -> u32 {
        (granules / GRANULES_MIN).max(1).ilog2().min(SHIFT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// 16 GiB of pages.
    const MANY: u64 = 1 << 22;

    #[test]
    fn limits_that_cannot_be() {
        for limit in [0.0, -1.0, 1.1, f64::NAN] {
            assert!(Budget::new(limit).is_err(), "{limit}");
        }
        assert_eq!(Budget::new(1.0).unwrap().limit(), 1.0);
    }

    /// At the limit nothing changes; 3 times the limit are two halvings; below a quarter, twice, one
    /// doubling.
    #[test]
    fn an_example_by_hand() {
        let mut budget = Budget::new(0.01).unwrap();
        let mut cost = |ms| {
            budget.update(Duration::from_millis(ms), SECOND, MANY);
            budget.share(MANY).log2()
        };
        assert_eq!(
            [cost(10), cost(30), cost(2), cost(2), cost(2), cost(3), cost(2)].map(|it| -it),
            [7.0, 9.0, 9.0, 8.0, 8.0, 8.0, 8.0]
        );
    }

    #[test]
    fn enough_granules_are_watched_whatever_it_costs() {
        let mut budget = Budget::default();
        budget.update(SECOND, SECOND, MANY);
        assert_eq!(budget.share(4096), 1.0 / 8.0);
        assert_eq!((budget.share(1023), budget.share(0)), (1.0, 1.0));
    }

    /// Of a limit of 1 %: the fewest granules may cost 2 %; at 5 % two of three intervals are left out, and never
    /// more than three of four.
    #[test]
    fn where_the_fewest_granules_are_too_dear_intervals_are_left_out() {
        let mut budget = Budget::new(0.01).unwrap();
        let mut pause = |ms, granules| {
            budget.update(Duration::from_millis(ms), SECOND, granules);
            budget.pause()
        };
        assert_eq!([20, 21, 50, 1000, 3].map(|ms| pause(ms, 1024)), [0, 1, 2, 3, 0]);
        assert_eq!(pause(1000, MANY), 0, "fewer would do");
    }

    proptest! {
        /// A guest whose cost is in proportion to the share ends at one share, within the limit or at
        /// the least.
        #[test]
        fn a_steady_guest_ends_at_one_share(full_cost_s in 0.0..50.0_f64, limit in 0.0001..1.0_f64) {
            let mut budget = Budget::new(limit).unwrap();
            let mut shares = Vec::new();
            for _ in 0..80 {
                let share = budget.share(MANY);
                shares.push(share);
                budget.update(SECOND.mul_f64(full_cost_s * share), SECOND, MANY);
            }
            let last = shares[79];
            prop_assert!(shares[60..].iter().all(|&share| share == last), "{:?}", shares);
            let is_least = last <= GRANULES_MIN as f64 / MANY as f64;
            prop_assert!(full_cost_s * last <= limit * 1.001 || is_least);
            prop_assert!(last == 1.0 || full_cost_s * last >= limit / 4.0 * 0.999 || is_least);
        }
    }
}
