//! The recent allocations of one guest.
//!
//! Idea: statistics describe the guest some time ago, so they must be compared with the allocation
//! of that time. Most guests hold the same for hours, so successive equal readings are kept as one
//! run. While a balloon moves there is a reading every 100 ms: runs within [`MERGED_WITHIN`] are
//! merged to one, with the least and the most of their readings. If there are still too many, two
//! neighbours are merged whose span is the smallest part of their age. So the history reaches back
//! as far as statistics that are acted on can be old. Merging only widens the range of what the
//! guest can have held, because a guest that seems to have held less than it did is shrunk further.
//! Cost: O(runs kept), at most [`RUNS_MAX`]; no memory on the heap while the allocation stays.
//! Limits: for times before the oldest reading, the oldest run is returned. Merged runs blur a time
//! by half a second, or by a third of its age.

use std::collections::VecDeque;
use std::time::Duration;

use ballast_model::{Bytes, Timestamp};

/// Runs within this time are merged: statistics are dated to no better than a second.
const MERGED_WITHIN: Duration = Duration::from_millis(500);

/// Earlier runs kept. Two neighbours span more than [`MERGED_WITHIN`], so this many reach back 16 s
/// without a further merge: more than statistics that are acted on by default. Where two neighbours
/// span a third of their age, fewer reach back an hour.
const RUNS_MAX: usize = 64;

/// Runs that ended longer ago are forgotten first: no statistics are acted on that are older than
/// an hour (the most that `guard.stale_after` may be), and these are dated to a second.
const REACH: Duration = Duration::from_secs(3601);

/// Successive readings.
#[derive(Clone, Copy, Debug)]
struct AllocationRun {
    least: Bytes,
    most: Bytes,
    first: Timestamp,
    last: Timestamp,
}

impl AllocationRun {
    /// Adds the run that came next.
    fn merge(&mut self, next: AllocationRun) {
        self.least = self.least.min(next.least);
        self.most = self.most.max(next.most);
        self.last = next.last;
    }
}

/// Past allocations.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllocationHistory {
    /// The latest run, of equal readings; `None`: no readings.
    latest: Option<AllocationRun>,
    /// Earlier runs, the oldest first.
    earlier: VecDeque<AllocationRun>,
}

impl AllocationHistory {
    /// Adds a reading, which counts as no earlier than the last one.
    pub(crate) fn push(&mut self, at: Timestamp, allocation: Bytes) {
        let at = self.latest.map_or(at, |run| at.max(run.last));
        if let Some(run) = &mut self.latest
            && run.least == allocation
        {
            run.last = at;
            return;
        }
        let begun = AllocationRun { least: allocation, most: allocation, first: at, last: at };
        if let Some(ended) = self.latest.replace(begun) {
            self.keep(ended, at);
        }
    }

    /// Keeps a run that has ended.
    fn keep(&mut self, ended: AllocationRun, now: Timestamp) {
        if let Some(before) = self.earlier.back_mut()
            && ended.last.saturating_since(before.first) <= MERGED_WITHIN
        {
            before.merge(ended);
            return;
        }
        if self.earlier.len() >= RUNS_MAX {
            self.make_room(now);
        }
        self.earlier.push_back(ended);
    }

    /// Forgets the oldest run if it is out of reach; else merges the two neighbours whose span is
    /// the smallest part of their age.
    fn make_room(&mut self, now: Timestamp) {
        if self.earlier.front().is_some_and(|run| now.saturating_since(run.last) > REACH) {
            self.earlier.pop_front();
            return;
        }
        let part = |(older, newer): (&AllocationRun, &AllocationRun)| {
            let since = |at: Timestamp| at.as_millis().saturating_sub(older.first.as_millis());
            since(newer.last).saturating_mul(1024) / since(now).max(1)
        };
        let neighbours = self.earlier.iter().zip(self.earlier.iter().skip(1));
        let smallest = neighbours.map(part).enumerate().min_by_key(|(_, part)| *part);
        if let Some((place, _)) = smallest
            && let Some(newer) = self.earlier.remove(place + 1)
            && let Some(older) = self.earlier.get_mut(place)
        {
            older.merge(newer);
        }
    }

    /// The smallest and the largest allocation the guest can have had from `from` to `until`;
    /// `None` without readings.
    ///
    /// Between two readings the allocation moved from one to the other, so both count.
    pub(crate) fn between(&self, from: Timestamp, until: Timestamp) -> Option<(Bytes, Bytes)> {
        let latest = self.latest?;
        let (mut least, mut most) = (latest.least, latest.most);
        if latest.first <= from {
            return Some((least, most));
        }
        // Backwards: readings after the first one at or after `until` do not count.
        for run in self.earlier.iter().rev() {
            (least, most) = match run.last < until {
                true => (least.min(run.least), most.max(run.most)),
                false => (run.least, run.most),
            };
            if run.first <= from {
                break;
            }
        }
        Some((least, most))
    }

    /// The allocation, if all readings from `from` to the latest one are the same, and there is one
    /// at or before `from` and one at or after `until`, which is later than `from`.
    pub(crate) fn throughout(&self, from: Timestamp, until: Timestamp) -> Option<Bytes> {
        let run = self.latest.filter(|run| run.first <= from && until <= run.last)?;
        Some(run.least)
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
    fn an_allocation_is_steady_between_two_readings_of_it() {
        let mut history = AllocationHistory::default();
        assert_eq!(history.throughout(at(1), at(2)), None);
        for (second, mib) in [(1, 900), (2, 700)] {
            history.push(at(second), Bytes::mib(mib));
        }
        assert_eq!(history.throughout(at(2), at(3)), None, "one reading");
        history.push(at(4), Bytes::mib(700));
        assert_eq!(history.throughout(at(2), at(3)), Some(Bytes::mib(700)));
        assert_eq!(history.throughout(at(1), at(3)), None);
        assert_eq!(history.throughout(at(3), at(5)), None);
    }

    /// A balloon takes 10 MiB every 100 ms for a minute.
    #[test]
    fn what_was_held_seconds_ago_is_known_while_balloons_move() {
        let mut history = AllocationHistory::default();
        for tick in 0..600 {
            history.push(Timestamp::from_millis(tick * 100), Bytes::mib(10_000 - 10 * tick));
        }
        let (from, until) = (Timestamp::from_millis(52_900), Timestamp::from_millis(53_900));
        let (least, most) = history.between(from, until).unwrap();
        let (least, most) = (least.get() >> 20, most.get() >> 20);
        assert!((4450..=4610).contains(&least) && (4710..=4900).contains(&most), "{least} {most}");
    }

    #[test]
    fn runs_are_bounded_and_those_out_of_reach_forgotten() {
        let mut history = AllocationHistory::default();
        for mib in 0..1000 {
            history.push(at(7), Bytes::mib(mib));
        }
        assert_eq!(history.earlier.len(), 1);
        let all = |history: &AllocationHistory| history.between(at(0), at(20_000)).unwrap();
        assert_eq!(all(&history), (Bytes::ZERO, Bytes::mib(999)));
        for second in 8..3_000 {
            history.push(at(second), Bytes::mib(second % 2));
            assert!(history.earlier.len() <= RUNS_MAX);
        }
        assert_eq!(all(&history), (Bytes::ZERO, Bytes::mib(999)), "within reach");
        for second in 3_000..14_400 {
            history.push(at(second), Bytes::mib(second % 2));
        }
        assert_eq!(all(&history), (Bytes::ZERO, Bytes::mib(1)));
        assert_eq!(history.earlier.len(), RUNS_MAX);
    }

    /// The oracle: a list of all readings.
    #[derive(Default)]
    struct Readings(Vec<(Timestamp, Bytes)>);

    impl Readings {
        fn push(&mut self, at: Timestamp, allocation: Bytes) {
            let at = self.0.last().map_or(at, |(before, _)| at.max(*before));
            self.0.push((at, allocation));
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
        /// Readings up to 350 ms apart, for up to two minutes.
        #[test]
        fn nothing_held_is_missed_and_times_blur_by_age(
            steps in prop::collection::vec((0..300_u64, 0..50_u64, 0..100_u64), 1..400),
            asked in prop::collection::vec((0..90_000_u64, 0..3_000_u64), 1..20),
        ) {
            let (mut history, mut readings) = (AllocationHistory::default(), Readings::default());
            let mut now = 10_000;
            for (later, age, mib) in steps {
                now += later;
                let at = Timestamp::from_millis(now - age);
                history.push(at, Bytes::mib(mib));
                readings.push(at, Bytes::mib(mib));
            }
            prop_assert!(history.earlier.len() <= RUNS_MAX);
            let ms = Timestamp::from_millis;
            for (ago, span) in asked {
                let from = now.saturating_sub(ago);
                let until = from + span;
                let (least, most) = history.between(ms(from), ms(until)).unwrap();
                let (low, high) = readings.between(ms(from), ms(until)).unwrap();
                prop_assert!(least <= low && high <= most, "{} to {}", from, until);
                // What spans a third of its age is blurred by half the age of its end.
                let blur = |at: u64| 1_500 + now.saturating_sub(at) / 2;
                // Before the oldest reading is the oldest run.
                let until = until.max(readings.0[0].0.as_millis());
                let (from, until) = (from.saturating_sub(blur(from)), until + blur(until));
                let (low, high) = readings.between(ms(from), ms(until)).unwrap();
                prop_assert!(low <= least && most <= high, "{} to {}", from, until);
            }
        }

        #[test]
        fn few_readings_that_are_apart_are_known_exactly(
            steps in prop::collection::vec((501..1_500_u64, 0..4_u64), 1..64),
            asked in prop::collection::vec((0..90_000_u64, 0..9_000_u64), 1..40),
        ) {
            let (mut history, mut readings) = (AllocationHistory::default(), Readings::default());
            let mut now = 10_000;
            for (later, mib) in steps {
                now += later;
                history.push(Timestamp::from_millis(now), Bytes::mib(mib));
                readings.push(Timestamp::from_millis(now), Bytes::mib(mib));
                for (ago, span) in &asked {
                    let from = now.saturating_sub(*ago);
                    let (from, until) =
                        (Timestamp::from_millis(from), Timestamp::from_millis(from + span));
                    prop_assert_eq!(history.between(from, until), readings.between(from, until));
                }
            }
        }
    }
}
