//! The share of granules to watch, chosen so that watching stays within its CPU budget.
//!
//! Idea: the cost of watching is nearly proportional to the share of granules watched. When an
//! interval costs more than allowed, the share is halved at once, as many times as the excess
//! requires. After two intervals below two fifths of the allowance it is doubled once or twice,
//! which leaves it below four fifths; so a guest with steady accesses settles at one share. The
//! allowance is worth using up: the sampling error of a small working set falls with the square
//! root of the share.
//!
//! The limit holds on average. An interval of rest adds what it leaves of its allowance to the
//! savings, up to [`SAVED_MAX_S`] seconds' worth; an interval may cost the limit plus an eighth of
//! the savings. A guest watched only when its phase changes is then watched up to 3.5 times as
//! closely:
//!
//! ```text
//! allowed = limit + saved / 8
//! saved   = min(saved + limit · length − cost, limit · 20 s)   after an interval of rest
//! saved   = max(saved − (cost − limit · length), 0)            after one that cost more than the limit
//! ```
//!
//! If no interval costs more than allowed, the mean cost stays within the limit.
//!
//! At least [`GRANULES_MIN`] granules are watched whatever they cost; fewer would tell nothing. If
//! they cost more than [`OVERRUN_MAX`] times the limit, intervals are skipped until the mean is
//! within it: results come later but are as accurate.
//!
//! Cost: O(1). Source: ours.
//! Limits: shares are powers of two; at most [`PAUSE_MAX`] intervals are skipped in a row.

use std::time::Duration;

/// The share is 0.5 to the power of a shift. This is the first: the cost of 1 in 128 is too small
/// to measure.
const SHIFT_FIRST: u32 = 7;
/// The shift of the smallest share.
const SHIFT_MAX: u32 = 20;
/// Fewest granules watched, if the guest has that many.
const GRANULES_MIN: u64 = 512;
/// Part of the allowance below which the share may double.
const ROOM: f64 = 0.4;
/// Multiple of the limit that the fewest granules may cost.
const OVERRUN_MAX: f64 = 2.0;
/// Most intervals skipped in a row: a result older than that many seconds is out of date.
const PAUSE_MAX: u32 = 3;
/// Intervals below [`ROOM`] before the share doubles.
const CALM: u32 = 2;
/// Most doublings at once: a guest that was idle for a moment must not become far too expensive.
const DOUBLINGS_MAX: f64 = 2.0;
/// Most seconds' worth of the limit that can be saved.
const SAVED_MAX_S: f64 = 20.0;
/// Part of the limit for what signals a new phase at rest: most of it is worth saving for the new
/// phase itself.
const REST_PART: f64 = 0.5;
/// Seconds over which savings are spent: a little more than a phase detector needs to see a new
/// phase.
const SPENT_IN_S: f64 = 8.0;

/// A limit out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchBudgetError(pub f64);

impl std::fmt::Display for WatchBudgetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "budget of {} of a core: expected above 0 and at most 1", self.0)
    }
}

impl std::error::Error for WatchBudgetError {}

/// Chooses the share of granules to watch from the cost of earlier intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchBudget {
    limit: f64,
    shift: u32,
    calm: u32,
    /// Greatest part of the allowance used in the intervals that `calm` counts.
    calm_used: f64,
    pause: u32,
    /// Seconds of processor time.
    saved: f64,
}

impl Default for WatchBudget {
    /// 0.5 % of a core.
    fn default() -> WatchBudget {
        WatchBudget {
            limit: 0.005,
            shift: SHIFT_FIRST,
            calm: 0,
            calm_used: 0.0,
            pause: 0,
            saved: 0.0,
        }
    }
}

impl WatchBudget {
    /// A budget with `limit` as a share of one core.
    ///
    /// # Errors
    /// `limit` is not above 0 and at most 1.
    pub fn new(limit: f64) -> Result<WatchBudget, WatchBudgetError> {
        if limit > 0.0 && limit <= 1.0 {
            return Ok(WatchBudget { limit, ..WatchBudget::default() });
        }
        Err(WatchBudgetError(limit))
    }

    /// The limit, as a share of one core.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Sets the limit of later intervals, as a share of one core above 0 and at most 1; savings
    /// shrink with it.
    pub fn set_limit(&mut self, limit: f64) {
        debug_assert!(limit > 0.0 && limit <= 1.0, "{limit}");
        self.limit = limit;
        self.saved = self.saved.min(limit * SAVED_MAX_S);
    }

    /// The share of a guest's `granules` to watch, above 0 and at most 1.
    pub fn share(&self, granules: u64) -> f64 {
        0.5_f64.powi(self.shift_of(granules) as i32)
    }

    /// Intervals to skip after the last update.
    pub fn pause(&self) -> u32 {
        self.pause
    }

    /// Adds what an interval of rest left of its allowance to the savings; if it cost more, the
    /// difference is taken from them.
    pub fn rest(&mut self, cost: Duration, length: Duration) {
        let saved = self.saved + self.limit * length.as_secs_f64() - cost.as_secs_f64();
        self.saved = saved.clamp(0.0, self.limit * SAVED_MAX_S);
    }

    /// What an interval of rest of this `length` may cost: half the limit.
    pub fn rest_allowance(&self, length: Duration) -> Duration {
        length.mul_f64(self.limit * REST_PART)
    }

    /// Adapts to the cost of an interval of `length`, watched with the share for `granules`.
    pub fn update(&mut self, cost: Duration, length: Duration, granules: u64) {
        if length.is_zero() {
            return;
        }
        self.shift = self.shift_of(granules);
        let (cost, length) = (cost.as_secs_f64(), length.as_secs_f64());
        let used = cost / length / (self.limit + self.saved / SPENT_IN_S);
        self.saved = (self.saved - (cost - self.limit * length).max(0.0)).max(0.0);
        let is_least = self.shift == WatchBudget::shift_most(granules);
        let times = if is_least { (used / OVERRUN_MAX).ceil() } else { 1.0 };
        // The cast saturates, and turns NaN to 0.
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

    /// The shift, reduced where too few granules would be watched.
    fn shift_of(&self, granules: u64) -> u32 {
        self.shift.min(WatchBudget::shift_most(granules))
    }

    /// The greatest shift with which at least [`GRANULES_MIN`] of `granules` are watched.
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
    fn limits_out_of_range_are_refused() {
        for limit in [0.0, -1.0, 1.1, f64::NAN] {
            assert!(WatchBudget::new(limit).is_err(), "{limit}");
        }
        assert_eq!(WatchBudget::new(1.0).unwrap().limit(), 1.0);
    }

    /// At the limit nothing changes; at 3 times the limit the share is halved twice; at a fifth of
    /// it, twice in a row, doubled twice.
    #[test]
    fn shares_follow_costs_computed_by_hand() {
        let mut budget = WatchBudget::new(0.01).unwrap();
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
    fn at_least_512_granules_are_watched_at_any_cost() {
        let mut budget = WatchBudget::default();
        budget.update(SECOND, SECOND, MANY);
        assert_eq!(budget.share(4096), 1.0 / 8.0);
        assert_eq!((budget.share(1023), budget.share(0)), (1.0, 1.0));
    }

    /// With a limit of 1 % the fewest granules may cost 2 %. At 5 % two of three intervals are
    /// skipped, and at any cost at most three of four.
    #[test]
    fn intervals_are_skipped_when_the_fewest_granules_exceed_the_limit() {
        let mut budget = WatchBudget::new(0.01).unwrap();
        let mut pause = |ms, granules| {
            budget.update(Duration::from_millis(ms), SECOND, granules);
            budget.pause()
        };
        assert_eq!([20, 21, 50, 1000, 3].map(|ms| pause(ms, 1024)), [0, 1, 2, 3, 0]);
        assert_eq!(pause(1000, MANY), 0, "the share can still be halved");
    }

    /// The limit is 10 ms a second. Ten seconds of rest save 100 ms, and an eighth of it may be
    /// spent in one interval. A cost of 20 ms is within the allowance but takes 10 ms from the
    /// savings: 90, then 80 are left.
    #[test]
    fn savings_from_rest_are_spent_when_watched_again() {
        let mut budget = WatchBudget::new(0.01).unwrap();
        for _ in 0..10 {
            budget.rest(Duration::ZERO, SECOND);
        }
        let mut cost = |ms| {
            budget.update(Duration::from_millis(ms), SECOND, MANY);
            (-budget.share(MANY).log2(), (budget.saved * 1000.0).round())
        };
        assert_eq!([cost(20), cost(20), cost(5)], [(7.0, 90.0), (7.0, 80.0), (7.0, 80.0)]);
        // Two fifths of the allowance, 10 plus an eighth of 80, are 8.
        assert_eq!([cost(7), cost(7)], [(6.0, 80.0), (6.0, 80.0)]);
        assert_eq!([cost(21), cost(100)], [(7.0, 69.0), (10.0, 0.0)]);
        for _ in 0..100 {
            budget.rest(Duration::ZERO, SECOND);
        }
        assert_eq!((budget.saved * 1000.0).round(), 200.0);
    }

    #[test]
    fn a_lower_limit_holds_at_once_and_takes_savings_along() {
        let mut budget = WatchBudget::new(0.01).unwrap();
        (0..20).for_each(|_| budget.rest(Duration::ZERO, SECOND));
        budget.set_limit(0.002);
        assert_eq!((budget.saved * 1000.0).round(), 40.0);
        // Allowed are 2 ms and an eighth of 40; 28 ms are four times as much.
        budget.update(Duration::from_millis(28), SECOND, MANY);
        assert_eq!(-budget.share(MANY).log2(), 9.0);
    }

    proptest! {
        /// In any order of rest and watching, with a cost proportional to the share, only intervals
        /// that exceed their allowance can bring the mean above the limit. A signal at rest costs
        /// up to the limit.
        #[test]
        fn mean_cost_stays_within_the_limit(
            is_watched in prop::collection::vec(any::<bool>(), 1..200),
            full_cost_s in 0.0..50.0_f64,
            rest_part in 0.0..1.0_f64,
            limit in 0.0001..1.0_f64,
        ) {
            let mut budget = WatchBudget::new(limit).unwrap();
            let (mut spent, mut excess) = (0.0, 0.0);
            for &is_watched in &is_watched {
                if !is_watched {
                    budget.rest(SECOND.mul_f64(limit * rest_part), SECOND);
                    spent += limit * rest_part;
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

        /// With a cost proportional to the share, the share settles within the limit or at the
        /// smallest.
        #[test]
        fn the_share_of_a_steady_guest_settles(
            full_cost_s in 0.0..50.0_f64,
            limit in 0.0001..1.0_f64,
        ) {
            let mut budget = WatchBudget::new(limit).unwrap();
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
