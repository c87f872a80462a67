//! How far an advice can be relied on.
//!
//! Idea: a record is rated in four respects, each from 0 to 100 %, and the advice is as good as the
//! worst of them:
//!
//! - *coverage*: how much time was recorded. 100 % is a week, which has every day of the week; 80 %
//!   a day, which has every hour; 50 % an hour; in between in proportion.
//! - *freshness*: the share of the guests' time in which their figures could be acted on.
//! - *source*: what the demand was derived from, on average over the guests' time with an estimate:
//!   the confidence that the estimator states (60 % for memory in use, more for tracked working
//!   sets).
//! - *visibility*: the share of the guests' time in which a guest did not read back from swap, or
//!   an agent reported what is in there. Otherwise it is not visible what the guest needs.

use std::time::Duration;

/// How far an advice can be relied on, in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceConfidence {
    /// How much time was recorded.
    pub coverage: u8,
    /// How much of it had figures that could be acted on.
    pub freshness: u8,
    /// What the demand was derived from.
    pub source: u8,
    /// How much of it showed what guests need.
    pub visibility: u8,
}

impl AdviceConfidence {
    /// The worst of the four.
    pub fn percent(self) -> u8 {
        self.coverage.min(self.freshness).min(self.source).min(self.visibility)
    }

    /// What limits it, and how to improve that.
    pub fn weakest(self) -> &'static str {
        let percent = self.percent();
        if percent == self.coverage && percent < 100 {
            "little time is recorded: ask again after a week"
        } else if percent == self.freshness && percent < 100 {
            "guests without fresh statistics: see below, or ballast doctor guests"
        } else if percent == self.visibility && percent < 100 {
            "guests that swap and have no agent hide what they need: see below"
        } else if percent < 100 {
            "demand is memory in use: [tracking] or the agent tell more"
        } else {
            "nothing is missing"
        }
    }
}

/// Confidence by the time that was recorded.
pub(crate) fn coverage(covered: Duration) -> u8 {
    const HOUR: u64 = 3600;
    const STEPS: [(u64, u64); 4] = [(0, 0), (HOUR, 50), (24 * HOUR, 80), (7 * 24 * HOUR, 100)];
    let seconds = covered.as_secs();
    for pair in STEPS.windows(2) {
        let [(from, low), (to, high)] = [pair[0], pair[1]];
        if seconds < to {
            let part = (high - low) * (seconds - from) / (to - from);
            return u8::try_from(low + part).unwrap_or(100);
        }
    }
    100
}

/// `part` of `whole` in per cent, rounded down; 0 if `whole` is 0.
pub(crate) fn percent(part: u128, whole: u128) -> u8 {
    u8::try_from(part * 100 / whole.max(1)).unwrap_or(100).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_grows_to_a_week() {
        for (hours, expected) in [(0, 0), (1, 50), (24, 80), (96, 90), (168, 100), (9999, 100)] {
            assert_eq!(coverage(Duration::from_secs(hours * 3600)), expected, "{hours}");
        }
        let seconds = (0..700_000).step_by(997).map(Duration::from_secs);
        assert!(seconds.map(coverage).is_sorted());
    }

    #[test]
    fn advice_is_as_good_as_its_worst_part() {
        let all = AdviceConfidence { coverage: 100, freshness: 90, source: 60, visibility: 70 };
        assert_eq!(all.percent(), 60);
        assert!(all.weakest().contains("memory in use"));
        let short = AdviceConfidence { coverage: 50, ..all };
        assert!(short.percent() == 50 && short.weakest().contains("after a week"));
    }
}
