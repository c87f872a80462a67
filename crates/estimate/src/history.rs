//! The recent allocations of one guest.
//!
//! Idea: statistics describe the guest as it was some time ago, so the allocation they belong to is
//! the one of that time, not of now. A few past readings are enough to find it.
//! Cost: O(readings kept), which is at most [`READINGS_MAX`].
//! Limits: readings older than the oldest kept one are answered with the oldest.

use std::collections::VecDeque;

use ballast_model::{Bytes, Timestamp};

/// Readings kept: at one a second, older than any statistics that may be acted on.
const READINGS_MAX: usize = 32;

/// Past allocations, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocationHistory {
    readings: VecDeque<(Timestamp, Bytes)>,
}

impl AllocationHistory {
    /// Adds a reading; one that is not later than the last replaces it.
    pub(crate) fn push(&mut self, at: Timestamp, allocation: Bytes) {
        if self.readings.back().is_some_and(|&(last, _)| at <= last) {
            self.readings.pop_back();
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back((at, allocation));
    }

    /// The smallest and the largest allocation the guest can have had at any moment from `from` to
    /// `until`.
    ///
    /// Between two readings the allocation moved from one to the other, so both count; `None`
    /// without any reading.
    pub(crate) fn between(&self, from: Timestamp, until: Timestamp) -> Option<(Bytes, Bytes)> {
        let first = self.readings.iter().rposition(|&(at, _)| at <= from).unwrap_or(0);
        let mut extremes: Option<(Bytes, Bytes)> = None;
        for &(at, allocation) in self.readings.iter().skip(first) {
            let (least, most) = extremes.unwrap_or((allocation, allocation));
            extremes = Some((least.min(allocation), most.max(allocation)));
            if at >= until {
                break;
            }
        }
        extremes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn finds_what_was_held_in_a_span() {
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
    fn is_bounded_and_survives_a_clock_that_stands_still() {
        let mut history = AllocationHistory::default();
        for n in 0..1000 {
            history.push(at(7), Bytes::mib(n));
        }
        assert_eq!(history.readings.len(), 1);
        for n in 0..1000 {
            history.push(at(8 + n), Bytes::mib(n));
        }
        assert_eq!(history.readings.len(), READINGS_MAX);
    }
}
