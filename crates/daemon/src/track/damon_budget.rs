//! The length of DAMON's windows.
//!
//! Idea: a window costs the same however long it is, so windows are lengthened until the kernel's
//! thread keeps within [`BUDGET`], and shortened when it costs far less.
//! Limits: windows are not longer than the longest one, even if it costs more than the budget.

use std::time::Duration;

/// Share of one core that the kernel's thread may take, for all guests.
const BUDGET: f64 = 0.01;

/// The length of later windows, if a window of all guests has `length` and costs `cost`: the same
/// while the cost is within the budget and not less than half of it, else between `shortest` and
/// `longest`, which is not less than `shortest`.
pub(super) fn window_within_budget(
    length: Duration,
    cost: Duration,
    shortest: Duration,
    longest: Duration,
) -> Duration {
    /// Keeps the next windows from being slightly beyond the budget again.
    const HEADROOM: f64 = 1.2;
    let share = cost.as_secs_f64() / length.as_secs_f64();
    if (BUDGET / 2.0..=BUDGET).contains(&share) {
        return length;
    }
    cost.mul_f64(HEADROOM / BUDGET).clamp(shortest, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(12);

    #[test]
    fn windows_lengthen_until_their_cost_is_within_the_budget() {
        let ms = Duration::from_millis;
        let next = |now, each| window_within_budget(now, ms(each), SHORTEST, LONGEST);
        assert_eq!(next(SHORTEST, 0), SHORTEST);
        assert_eq!(next(SHORTEST, 9), SHORTEST);
        assert_eq!(next(SHORTEST, 50), ms(6000));
        assert_eq!(next(ms(6000), 50), ms(6000));
        assert_eq!(next(ms(6000), 20), ms(2400));
        assert_eq!(next(ms(6000), 1), SHORTEST);
        assert_eq!(next(SHORTEST, 1000), LONGEST);
        let only = LONGEST * 5;
        assert_eq!(window_within_budget(only, ms(1), only, only), only);
    }
}
