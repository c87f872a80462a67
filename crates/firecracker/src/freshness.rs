//! The age of statistics that carry no time.
//!
//! Idea: Firecracker returns the guest's last report, and does not say when it was made. Figures
//! that differ between two queries were reported after the first query; figures that are the same
//! may be as old as their last change. So the statistics of a guest that stops reporting age, as
//! they must.
//! Limits: an age is too high by at most the time between two queries. A guest in which nothing at
//! all happens (no page fault, no allocation) seems to have stopped reporting, too. The age of the
//! first report is unknown.

use std::time::Duration;

use ballast_model::Timestamp;

/// Follows the figures of one guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness<T> {
    last: Option<Look<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look<T> {
    figures: T,
    asked_at: Timestamp,
    /// The earliest time at which they can have been reported; `None` if it is not known.
    since: Option<Timestamp>,
}

impl<T: PartialEq> Freshness<T> {
    /// Takes in `figures`, which were queried at `asked_at`.
    pub fn observe(&mut self, figures: T, asked_at: Timestamp) {
        let since = match &self.last {
            None => None,
            Some(last) if last.figures == figures => last.since,
            Some(last) => Some(last.asked_at),
        };
        self.last = Some(Look { figures, asked_at, since });
    }

    /// The figures and their greatest possible age at `now`; `None` if it is not known.
    pub fn aged(&self, now: Timestamp) -> Option<(&T, Duration)> {
        let last = self.last.as_ref()?;
        Some((&last.figures, now.saturating_since(last.since?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_as_old_as_their_last_change() {
        let at = |secs: u64| Timestamp::from_millis(secs * 1000);
        let mut freshness = Freshness::default();
        let mut age = |figure: u64, asked: u64, now: u64| {
            freshness.observe(figure, at(asked));
            freshness.aged(at(now)).map(|(_, age)| age.as_secs())
        };
        assert_eq!(age(7, 10, 10), None, "who knows");
        assert_eq!(age(7, 11, 11), None, "it may be from yesterday");
        assert_eq!(age(8, 12, 12), Some(1), "after it was last asked for");
        assert_eq!(age(8, 20, 20), Some(9), "silent, or idle");
        assert_eq!(age(9, 21, 24), Some(4), "an answer that was late");
    }
}
