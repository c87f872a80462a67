//! Watched granules in LRU order.
//!
//! Idea: few granules are watched, and their numbers are far apart; numbered in order of their first
//! touch they are dense, which the exact stack of `mrc` wants.
//!
//! A granule that stays accessible is used on unseen until the interval ends, so its distance from the touch
//! that was seen is the most it can be. The least is that from the end of the interval: how many were
//! touched in the intervals since. Both are told.
//!
//! Cost: a hash lookup and the stack's reference a touch, and a step for each interval since the last touch,
//! [`INTERVALS_MAX`] at most; some 90 bytes for each granule ever touched.

use std::collections::VecDeque;

use ballast_mrc::{Exact, Full, Stack};
use hashbrown::HashMap;

/// Most granules kept: 4 GiB of page-sized ones, 128 GiB of 32 pages each.
pub(crate) const GRANULES_MAX: usize = 1 << 20;

/// Intervals that are told apart; of a touch before them the least distance is not known.
const INTERVALS_MAX: usize = 64;

/// Granules by their latest touch.
#[derive(Debug, Default)]
pub(crate) struct Recency {
    stack: Exact,
    numbers: HashMap<u64, u32>,
    granules: Vec<u64>,
    /// By number: the interval of the latest touch, and one.
    stamps: Vec<u32>,
    /// How many have their latest touch in an interval, from the current one backwards.
    counts: VecDeque<u32>,
    current: u32,
}

/// What a touch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many granules, itself among them, were touched since its last touch; `None` for its first.
    pub(crate) distance: Option<u32>,
    /// The same, counted from the end of the interval of its last touch; `distance` where that is not known.
    pub(crate) distance_least: Option<u32>,
    /// Whether it is its first in this interval.
    pub(crate) is_first: bool,
}

impl Recency {
    /// Touches `granule` in `interval`.
    ///
    /// # Errors
    /// [`Full`] where it is one more than [`GRANULES_MAX`].
    pub(crate) fn touch(&mut self, granule: u64, interval: u32) -> Result<Found, Full> {
        let number = match self.numbers.get(&granule) {
            Some(&number) => number,
            None if self.granules.len() >= GRANULES_MAX => return Err(Full),
            None => {
                let number = self.granules.len() as u32;
                self.numbers.insert(granule, number);
                self.granules.push(granule);
                self.stamps.push(0);
                number
            }
        };
        let mut distance = [0];
        self.stack.reference(&[u64::from(number)], &mut distance)?;
        self.begin(interval);
        let stamp = interval.wrapping_add(1);
        let latest = std::mem::replace(&mut self.stamps[number as usize], stamp);
        let distance = (distance[0] != ballast_mrc::COLD).then_some(distance[0]);
        let ago = if latest == 0 { INTERVALS_MAX } else { stamp.wrapping_sub(latest) as usize };
        let least = (ago < self.counts.len())
            .then(|| 1 + self.counts.iter().take(ago).sum::<u32>())
            .filter(|_| ago > 0);
        if let Some(count) = self.counts.get_mut(ago) {
            *count = count.saturating_sub(1);
        }
        self.counts[0] += 1;
        let distance_least = distance.map(|most| least.unwrap_or(most).min(most));
        Ok(Found { distance, distance_least, is_first: latest != stamp })
    }

    /// Goes on to `interval`, if it is another one.
    fn begin(&mut self, interval: u32) {
        let gone = interval.wrapping_sub(self.current) as usize;
        self.current = interval;
        if gone >= INTERVALS_MAX {
            self.counts.clear();
        }
        for _ in 0..gone.min(INTERVALS_MAX) {
            self.counts.push_front(0);
        }
        self.counts.truncate(INTERVALS_MAX);
        if self.counts.is_empty() {
            self.counts.push_front(0);
        }
    }

    /// Granules, latest first.
    pub(crate) fn order(&self) -> Vec<u64> {
        self.stack.order().into_iter().map(|number| self.granules[number as usize]).collect()
    }

    /// These and no others, latest first. Of those beyond [`GRANULES_MAX`] nothing is kept.
    pub(crate) fn restore(&mut self, order: &[u64]) {
        *self = Recency::default();
        let kept = &order[..order.len().min(GRANULES_MAX)];
        for &granule in kept.iter().rev() {
            // Interval 0 of a stamp is none: the next touch is the first of its interval.
            if self.touch(granule, u32::MAX).is_err() {
                break;
            }
        }
        // Of none of them it is known when they were touched.
        self.counts.clear();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.granules.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_example_by_hand() {
        let mut recency = Recency::default();
        let mut touch = |granule, interval| {
            let found = recency.touch(granule, interval).unwrap();
            (found.distance, found.is_first)
        };
        assert_eq!(touch(70, 0), (None, true));
        assert_eq!(touch(1 << 40, 0), (None, true));
        assert_eq!(touch(70, 0), (Some(2), false));
        assert_eq!(touch(70, 1), (Some(1), true));
        assert_eq!(recency.order(), [70, 1 << 40]);
        recency.restore(&[5, 6]);
        assert_eq!((recency.len(), recency.order()), (2, vec![5, 6]));
        let found = Found { distance: Some(2), distance_least: Some(2), is_first: true };
        assert_eq!(recency.touch(6, 0), Ok(found));
    }

    /// 1 to 4 in an interval, then 2, 1 and, after an interval without any, 3, 1. At the end of the first
    /// all four may be the latest, so 2 comes back at 1 at least, and 1 behind 2; since then 2 and 1 were
    /// touched, so 3 is behind both.
    #[test]
    fn least_distances_count_from_the_end_of_an_interval() {
        let mut recency = Recency::default();
        let mut touch = |granule, interval| {
            let found = recency.touch(granule, interval).unwrap();
            (found.distance, found.distance_least)
        };
        for granule in 1..=4 {
            assert_eq!(touch(granule, 0), (None, None));
        }
        assert_eq!(touch(2, 1), (Some(3), Some(1)));
        assert_eq!(touch(1, 1), (Some(4), Some(2)));
        assert_eq!(touch(3, 3), (Some(4), Some(3)));
        assert_eq!(touch(1, 3), (Some(2), Some(2)));
        assert_eq!(touch(3, 3), (Some(2), Some(2)), "again in the interval: as it was seen");
        assert_eq!(touch(4, 200), (Some(4), Some(4)), "too long ago");
    }

    proptest! {
        #[test]
        fn least_distances_are_those_of_sets(
            touches in prop::collection::vec((0..20_u64, 0..3_u32), 0..200)
        ) {
            let mut recency = Recency::default();
            let mut all: Vec<(u64, u32)> = Vec::new();
            let mut interval = 0;
            for (granule, step) in touches {
                interval += step;
                let found = recency.touch(granule, interval).unwrap();
                let before = all.iter().rev().find(|(other, _)| *other == granule);
                let least = before.map(|&(_, latest)| {
                    let since = all.iter().filter(|(_, at)| *at > latest);
                    let others: std::collections::BTreeSet<u64> =
                        since.map(|&(other, _)| other).collect();
                    others.len() as u32 + 1
                });
                let least = if found.is_first { least } else { found.distance };
                let is_long_ago = before.is_some_and(|&(_, at)| interval - at >= INTERVALS_MAX as u32);
                prop_assert!(is_long_ago || found.distance_least == least, "{:?} {:?}", found, least);
                prop_assert!(found.distance_least <= found.distance);
                all.push((granule, interval));
            }
        }

        #[test]
        fn distances_are_those_of_a_list(granules in prop::collection::vec(0..30_u64, 0..200)) {
            let mut recency = Recency::default();
            let mut list: Vec<u64> = Vec::new();
            for granule in granules {
                let place = list.iter().position(|&other| other == granule);
                place.map(|place| list.remove(place));
                list.insert(0, granule);
                let expected = place.map(|place| place as u32 + 1);
                prop_assert_eq!(recency.touch(granule, 3).unwrap().distance, expected);
            }
            prop_assert_eq!(recency.order(), list);
        }
    }
}
