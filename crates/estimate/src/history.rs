//! The recent allocations of one guest.
//!
//! Idea: statistics describe the guest some time ago, so they must be compared with the allocation
//! of that time. A few past readings are enough to find it.
//! Cost: O(readings kept), at most [`READINGS_MAX`].
//! Limits: for times before the oldest reading, the oldest reading is returned.

use ballast_model::{Bytes, Timestamp};

/// Readings kept: at one a second they reach back further than any statistics still acted on.
const READINGS_MAX: usize = 32;

/// What a guest held at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at: Timestamp,
    allocation: Bytes,
}

/// Past allocations: a ring, without memory of its own elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocationHistory {
    readings: [Reading; READINGS_MAX],
    /// Readings ever taken in that were not replaced: the last is the one before.
    taken: usize,
}

impl AllocationHistory {
    /// Adds a reading; it replaces the last one if it is not later.
    pub(crate) fn push(&mut self, at: Timestamp, allocation: Bytes) {
        if self.back(0).is_some_and(|last| at <= last.at) {
            self.taken -= 1;
        }
        self.readings[self.taken % READINGS_MAX] = Reading { at, allocation };
        self.taken += 1;
    }

    /// The reading so many before the last.
    fn back(&self, before: usize) -> Option<Reading> {
        let place = self.taken.checked_sub(before + 1)?;
        (before < READINGS_MAX).then(|| self.readings[place % READINGS_MAX])
    }

    /// The smallest and the largest allocation the guest can have had from `from` to `until`;
    /// `None` without readings.
    ///
    /// Between two readings the allocation moved from one to the other, so both count.
    pub(crate) fn between(&self, from: Timestamp, until: Timestamp) -> Option<(Bytes, Bytes)> {
        let mut extremes: Option<(Bytes, Bytes)> = None;
        // Backwards: what was read after the first reading at or after `until` does not count.
        for before in 0.. {
            let Some(Reading { at, allocation }) = self.back(before) else { break };
            let (least, most) = match extremes {
                Some(seen) if at < until => seen,
                _ => (allocation, allocation),
            };
            extremes = Some((least.min(allocation), most.max(allocation)));
            if at <= from {
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
        assert_eq!(history.taken, 1);
        for n in 0..1000 {
            history.push(at(8 + n), Bytes::mib(n));
        }
        let every = history.between(at(0), at(5000)).unwrap();
        assert_eq!(every, (Bytes::mib(968), Bytes::mib(999)), "the last 32");
    }
}
