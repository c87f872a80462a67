//! The recent allocations of one guest.
//!
//! Idea: statistics describe the guest some time ago, so they must be compared with the allocation
//! of that time. A few past readings are enough to find it. Most guests hold the same for hours, so
//! successive equal readings are kept as one run.
//! Cost: O(runs kept), at most [`READINGS_MAX`]; no memory on the heap while the allocation stays.
//! Limits: for times before the oldest reading, the oldest reading is returned.

use std::collections::VecDeque;

use ballast_model::{Bytes, Timestamp};

/// Readings kept. At one a second they reach back further than any statistics that are acted on.
const READINGS_MAX: u32 = 32;

/// Successive readings of one allocation.
#[derive(Clone, Copy, Debug)]
struct Run {
    allocation: Bytes,
    first: Timestamp,
    last: Timestamp,
    /// Time of the reading before the last; for a single reading, `last`.
    before_last: Timestamp,
    readings: u32,
}

/// Past allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocationHistory {
    /// The latest run; `None`: no readings.
    latest: Option<Run>,
    /// Earlier runs, the oldest first.
    earlier: VecDeque<Run>,
    /// Number of readings in all runs.
    readings: u32,
}

impl AllocationHistory {
    /// Adds a reading; it replaces the last one if it is not later, and counts as no earlier than
    /// the one before that.
    pub(crate) fn push(&mut self, at: Timestamp, allocation: Bytes) {
        if self.latest.is_some_and(|run| at <= run.last) {
            self.drop_last();
        }
        self.readings += 1;
        match &mut self.latest {
            Some(run) if run.allocation == allocation => {
                (run.before_last, run.last) = (run.last, at.max(run.last));
                run.readings += 1;
            }
            latest => {
                let at = latest.map_or(at, |run| at.max(run.last));
                let begun = Run { allocation, first: at, last: at, before_last: at, readings: 1 };
                self.earlier.extend(latest.replace(begun));
            }
        }
        if self.readings > READINGS_MAX {
            self.drop_first();
        }
    }

    fn drop_last(&mut self) {
        self.readings -= 1;
        match &mut self.latest {
            Some(run) if run.readings > 1 => {
                run.readings -= 1;
                run.last = run.before_last;
            }
            latest => *latest = self.earlier.pop_back(),
        }
    }

    /// The time of the first remaining reading does not matter: the oldest one stands for all times
    /// before it.
    fn drop_first(&mut self) {
        self.readings -= 1;
        let Some(oldest) = self.earlier.front_mut().or(self.latest.as_mut()) else { return };
        oldest.readings -= 1;
        if oldest.readings == 0 {
            self.earlier.pop_front();
        }
    }

    /// The smallest and the largest allocation the guest can have had from `from` to `until`;
    /// `None` without readings.
    ///
    /// Between two readings the allocation moved from one to the other, so both count.
    pub(crate) fn between(&self, from: Timestamp, until: Timestamp) -> Option<(Bytes, Bytes)> {
        let latest = self.latest?;
        let (mut least, mut most) = (latest.allocation, latest.allocation);
        if latest.first <= from {
            return Some((least, most));
        }
        // Backwards: readings after the first one at or after `until` do not count.
        for Run { allocation, first, last, .. } in self.earlier.iter().rev() {
            (least, most) = match *last < until {
                true => (least.min(*allocation), most.max(*allocation)),
                false => (*allocation, *allocation),
            };
            if *first <= from {
                break;
            }
        }
        Some((least, most))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn between_finds_the_extremes_of_a_span() {
        let mut history = AllocationHistory::default();
        assert_eq!(history.between(at(0), at(9)), None);
        for (second, mib) in [(1, 900), (2, 700), (3, 500), (4, 600)] {
            history.push(at(second), Bytes::mib(mib));
        }
        for (from, until, least, most) in [
            (0, 1, 900, 900),
            (1, 2, 700, 900),
            (2, 3, 500, 700),
            (3, 3, 500, 500),
            (3, 4, 500, 600),
            (4, 9, 600, 600),
            (9, 9, 600, 600),
        ] {
            let found = history.between(at(from), at(until));
            assert_eq!(found, Some((Bytes::mib(least), Bytes::mib(most))), "{from} to {until}");
        }
    }

    #[test]
    fn readings_are_bounded_even_with_a_stopped_clock() {
        let mut history = AllocationHistory::default();
        for n in 0..1000 {
            history.push(at(7), Bytes::mib(n));
        }
        assert_eq!(history.readings, 1);
        for n in 0..1000 {
            history.push(at(8 + n), Bytes::mib(n));
        }
        let every = history.between(at(0), at(5000)).unwrap();
        assert_eq!(every, (Bytes::mib(968), Bytes::mib(999)), "the last 32");
    }

    /// The oracle: a list of readings.
    #[derive(Default)]
    struct Readings(Vec<(Timestamp, Bytes)>);

    impl Readings {
        fn push(&mut self, at: Timestamp, allocation: Bytes) {
            if self.0.last().is_some_and(|(last, _)| at <= *last) {
                self.0.pop();
            }
            let at = self.0.last().map_or(at, |(before, _)| at.max(*before));
            self.0.push((at, allocation));
            if self.0.len() > READINGS_MAX as usize {
                self.0.remove(0);
            }
        }

        fn between(&self, from: Timestamp, until: Timestamp) -> Option<(Bytes, Bytes)> {
            let first = self.0.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
            let last = self.0.iter().position(|(at, _)| *at >= until);
            let last = last.unwrap_or(self.0.len().checked_sub(1)?).max(first);
            let sizes = || self.0[first..=last].iter().map(|(_, size)| *size);
            sizes().min().zip(sizes().max())
        }
    }

    proptest! {
        #[test]
        fn runs_tell_what_single_readings_do(
            steps in prop::collection::vec((0..5_u64, 0..4_u64, 0..3_u64), 1..120),
            asked in prop::collection::vec((0..240_u64, 0..9_u64), 1..40),
        ) {
            let (mut history, mut readings) = (AllocationHistory::default(), Readings::default());
            let mut now = 10;
            for (later, age, mib) in steps {
                now += later;
                let at = Timestamp::from_millis(now - age);
                history.push(at, Bytes::mib(mib));
                readings.push(at, Bytes::mib(mib));
                for (from, span) in &asked {
                    let (from, until) =
                        (Timestamp::from_millis(*from), Timestamp::from_millis(from + span));
                    prop_assert_eq!(history.between(from, until), readings.between(from, until));
                }
            }
        }
    }
}
