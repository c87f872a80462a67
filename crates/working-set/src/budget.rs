//! How much may be watched, so that it costs no more than allowed.
//!
//! Idea: what watching costs is close to proportional to the share of granules watched. Above what is allowed
//! the share is halved as often as the excess asks for, at once; when the cost has been below two fifths of that for
//! two intervals it is doubled, once or twice, after which it is below four fifths: a guest whose
//! accesses do not change ends at one share. What is allowed is worth taking: chance in what a sample says of a
//! small working set falls with the root of its share.
//!
//! The limit is one of the mean. Intervals of rest cost nothing, and what they leave is saved up, as much as
//! [`SAVED_MAX_S`] seconds bring; an interval may cost the limit and an eighth of what is saved. So a guest
//! that is watched when its phase changes, and not between, is watched up to three and a half times as closely then:
//!
//! ```text
//! allowed = limit + saved / 8
//! saved   = min(saved + limit · length, limit · 20 s)       after an interval of rest
//! saved   = max(saved − (cost − limit · length), 0)         after one that cost more than the limit
//! ```
//!
//! As long as no interval costs more than is allowed, all together cost no more than the limit.
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
const ROOM: f64 = 0.4;
/// Times the limit that the fewest granules may cost.
const DEAR: f64 = 2.0;
/// Intervals left out in a row at most: what is older than that many seconds is no news of a guest.
const PAUSE_MAX: u32 = 3;
/// Intervals of room before it is taken.
const CALM: u32 = 2;
/// Doublings at once, at most: a guest that was idle for a moment may not be watched much too closely.
const DOUBLINGS_MAX: f64 = 2.0;
/// Seconds of the limit that are saved at most.
const SAVED_MAX_S: f64 = 20.0;
/// Seconds in which what is saved may be spent: some more than a phase detector needs to see a new phase.
const SPENT_IN_S: f64 = 8.0;

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
    /// The greatest part of what is allowed that was used in the intervals of room.
    calm_used: f64,
    pause: u32,
    /// Seconds of processor time.
    saved: f64,
}

impl Default for Budget {
    /// 0.5 % of a core.
    fn default() -> Budget {
        Budget { limit: 0.005, shift: SHIFT_FIRST, calm: 0, calm_used: 0.0, pause: 0, saved: 0.0 }
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

    /// Takes in an interval of rest, which cost nothing.
    pub fn rest(&mut self, length: Duration) {
        let saved = self.saved + self.limit * length.as_secs_f64();
        self.saved = saved.min(self.limit * SAVED_MAX_S);
    }

    /// Takes in what an interval of `length` cost with the share that was told for `granules`.
    pub fn update(&mut self, cost: Duration, length: Duration, granules: u64) {
        if length.is_zero() {
            return;
        }
        self.shift = self.shift_of(granules);
        let (cost, length) = (cost.as_secs_f64(), length.as_secs_f64());
        let used = cost / length / (self.limit + self.saved / SPENT_IN_S);
        self.saved = (self.saved - (cost - self.limit * length).max(0.0)).max(0.0);
        let is_least = self.shift == Budget::shift_most(granules);
        let times = if is_least { (used / DEAR).ceil() } else { 1.0 };
        // Saturating, and no number is 0.
        self.pause = (times as u32).saturating_sub(1).min(PAUSE_MAX);
        if used > 1.0 {
            let halvings = used.log2().ceil().max(1.0) as u32;
            self.shift = (self.shift + halvings).min(SHIFT_MAX);
        }
        self.calm = if used < ROOM { self.calm + 1 } else { 0 };
        self.calm_used = if self.calm > 1 { self.calm_used.max(used) } else { used };
        if self.calm >= CALM {
            let doublings = (2.0 * ROOM / self.calm_used).log2().floor().min(DOUBLINGS_MAX);
            self.shift = self.shift.saturating_sub(doublings as u32);
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

    /// At the limit nothing changes; 3 times the limit are two halvings; a fifth of it, twice, two
    /// doublings.
    #[test]
    fn an_example_by_hand() {
        let mut budget = Budget::new(0.01).unwrap();
        let mut cost = |ms| {
            budget.update(Duration::from_millis(ms), SECOND, MANY);
            budget.share(MANY).log2()
        };
        assert_eq!(
            [cost(10), cost(30), cost(2), cost(2), cost(2), cost(4), cost(2)].map(|it| -it),
            [7.0, 9.0, 9.0, 7.0, 7.0, 7.0, 7.0]
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

    /// Of a limit of 10 ms a second. Ten seconds of rest leave 100 ms, of which an eighth may be spent at once:
    /// 20 ms are no excess, but 10 more than the limit; then 90, 80 and so on are left.
    #[test]
    fn what_rest_leaves_is_spent_when_the_guest_is_watched_again() {
        let mut budget = Budget::new(0.01).unwrap();
        for _ in 0..10 {
            budget.rest(SECOND);
        }
        let mut cost = |ms| {
            budget.update(Duration::from_millis(ms), SECOND, MANY);
            (-budget.share(MANY).log2(), (budget.saved * 1000.0).round())
        };
        assert_eq!([cost(20), cost(20), cost(5)], [(7.0, 90.0), (7.0, 80.0), (7.0, 80.0)]);
        // Two fifths of 10 and an eighth of 80 are 8.
        assert_eq!([cost(7), cost(7)], [(6.0, 80.0), (6.0, 80.0)]);
        assert_eq!([cost(21), cost(100)], [(7.0, 69.0), (10.0, 0.0)]);
        for _ in 0..100 {
            budget.rest(SECOND);
        }
        assert_eq!((budget.saved * 1000.0).round(), 200.0);
    }

    proptest! {
        /// Whatever the order of rest and watching, a guest whose cost is in proportion to the share costs no
        /// more than the limit, but for the intervals in which its first share was too large.
        #[test]
        fn in_the_mean_it_is_no_more_than_the_limit(
            is_watched in prop::collection::vec(any::<bool>(), 1..200),
            full_cost_s in 0.0..50.0_f64,
            limit in 0.0001..1.0_f64,
        ) {
            let mut budget = Budget::new(limit).unwrap();
            let (mut spent, mut excess) = (0.0, 0.0);
            for &is_watched in &is_watched {
                if !is_watched {
                    budget.rest(SECOND);
                    continue;
                }
                let cost = full_cost_s * budget.share(MANY);
                let allowed = limit + budget.saved / SPENT_IN_S;
                spent += cost;
                excess += (cost - allowed).max(0.0);
                budget.update(SECOND.mul_f64(cost), SECOND, MANY);
            }
            prop_assert!(spent <= limit * is_watched.len() as f64 * 1.001 + excess);
        }

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
            prop_assert!(last == 1.0 || full_cost_s * last >= limit * ROOM * 0.999 || is_least);
        }
    }
}
