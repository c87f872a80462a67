//! Watched granules in LRU order.
//!
//! Idea: watched granules are few and their numbers sparse. The exact stack of `mrc` needs dense
//! numbers, so granules are renumbered in order of their first touch.
//!
//! After its touch a granule stays accessible until the interval ends, and later uses go unseen.
//! Its stack distance therefore lies between two bounds, and both are returned: counted from the
//! touch that was seen (most), and from the end of that touch's interval (least).
//!
//! Cost: each touch takes a hash lookup, one stack reference, and one step for each interval since
//! the last touch, at most [`INTERVALS_MAX`]; about 90 bytes for each granule ever touched.

use std::collections::VecDeque;

use ballast_mrc::{Exact, Full, Stack};
use hashbrown::HashMap;

/// Most granules remembered: 4 GiB in granules of one page, 128 GiB in granules of 32 pages.
pub(crate) const GRANULES_MAX: usize = 1 << 20;

/// Intervals counted separately. The least distance from an older touch is unknown.
const INTERVALS_MAX: usize = 64;

/// Granules in order of their latest touch.
#[derive(Debug, Default)]
pub(crate) struct Recency {
    stack: Exact,
    numbers: HashMap<u64, u32>,
    granules: Vec<u64>,
    /// By granule number: the interval of the latest touch plus one; 0 before the first.
    stamps: Vec<u32>,
    /// Granules whose latest touch was in each interval, from the current one backwards.
    counts: VecDeque<u32>,
    current: u32,
}

/// The stack distance of one touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    /// Granules touched since this one's last touch, itself included; `None`: never touched before.
    pub(crate) distance: Option<u32>,
    /// The same, counted from the end of the interval of the last touch; `distance` if unknown.
    pub(crate) distance_min: Option<u32>,
    /// Whether this is the granule's first touch in this interval.
    pub(crate) is_first: bool,
}

impl Recency {
    /// Records a touch of `granule` in `interval`.
    ///
    /// # Errors
    /// [`Full`]: the granule is new and [`GRANULES_MAX`] are remembered already.
    pub(crate) fn touch(&mut self, granule: u64, interval: u32) -> Result<Touch, Full> {
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
        let last = std::mem::replace(&mut self.stamps[number as usize], stamp);
        let distance = (distance[0] != ballast_mrc::COLD).then_some(distance[0]);
        let ago = if last == 0 { INTERVALS_MAX } else { stamp.wrapping_sub(last) as usize };
        let is_counted = 0 < ago && ago < self.counts.len();
        let least = is_counted.then(|| 1 + self.counts.iter().take(ago).sum::<u32>());
        if let Some(count) = self.counts.get_mut(ago) {
            *count = count.saturating_sub(1);
        }
        self.counts[0] += 1;
        let distance_min = distance.map(|most| least.unwrap_or(most).min(most));
        Ok(Touch { distance, distance_min, is_first: last != stamp })
    }

    /// Moves on to `interval` if it is not the current one.
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

    /// Whether a granule was ever touched.
    pub(crate) fn has(&self, granule: u64) -> bool {
        self.numbers.contains_key(&granule)
    }

    /// All granules, latest touch first.
    pub(crate) fn order(&self) -> Vec<u64> {
        self.stack.order().into_iter().map(|number| self.granules[number as usize]).collect()
    }

    /// These granules, latest touch first, cut off at [`GRANULES_MAX`].
    pub(crate) fn of(order: &[u64]) -> Recency {
        let mut recency = Recency::default();
        let kept = &order[..order.len().min(GRANULES_MAX)];
        for &granule in kept.iter().rev() {
            // This leaves its stamp at 0, so the next touch is the first of its interval.
            if recency.touch(granule, u32::MAX).is_err() {
                break;
            }
        }
        // It is not known when they were touched.
        recency.counts.clear();
        recency
    }

    /// Number of granules remembered.
    pub(crate) fn len(&self) -> usize {
        self.granules.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn touches_by_hand_give_distances_and_order() {
        let mut recency = Recency::default();
        let mut touch = |granule, interval| {
            let touched = recency.touch(granule, interval).unwrap();
            (touched.distance, touched.is_first)
        };
        assert_eq!(touch(70, 0), (None, true));
        assert_eq!(touch(1 << 40, 0), (None, true));
        assert_eq!(touch(70, 0), (Some(2), false));
        assert_eq!(touch(70, 1), (Some(1), true));
        assert_eq!(recency.order(), [70, 1 << 40]);
        assert!(recency.has(70) && !recency.has(71));
        let mut recency = Recency::of(&[5, 6]);
        assert_eq!((recency.len(), recency.order()), (2, vec![5, 6]));
        let touched = Touch { distance: Some(2), distance_min: Some(2), is_first: true };
        assert_eq!(recency.touch(6, 0), Ok(touched));
    }

    /// Granules 1 to 4 in one interval, then 2, 1 and, after an idle interval, 3, 1. Any of the
    /// four may have been used last in the first interval, so 2 returns at a distance of at least
    /// 1, and 1 after it at 2. Both were touched since, so 3 returns at 3.
    #[test]
    fn least_distances_count_from_the_end_of_an_interval() {
        let mut recency = Recency::default();
        let mut touch = |granule, interval| {
            let touched = recency.touch(granule, interval).unwrap();
            (touched.distance, touched.distance_min)
        };
        for granule in 1..=4 {
            assert_eq!(touch(granule, 0), (None, None));
        }
        assert_eq!(touch(2, 1), (Some(3), Some(1)));
        assert_eq!(touch(1, 1), (Some(4), Some(2)));
        assert_eq!(touch(3, 3), (Some(4), Some(3)));
        assert_eq!(touch(1, 3), (Some(2), Some(2)));
        assert_eq!(touch(3, 3), (Some(2), Some(2)), "touched in this interval before");
        assert_eq!(touch(4, 200), (Some(4), Some(4)), "more than INTERVALS_MAX ago");
    }

    proptest! {
        #[test]
        fn least_distances_equal_those_counted_with_sets(
            touches in prop::collection::vec((0..20_u64, 0..3_u32), 0..200)
        ) {
            let mut recency = Recency::default();
            let mut all: Vec<(u64, u32)> = Vec::new();
            let mut interval = 0;
            for (granule, step) in touches {
                interval += step;
                let touched = recency.touch(granule, interval).unwrap();
                let before = all.iter().rev().find(|(other, _)| *other == granule);
                let least = before.map(|&(_, latest)| {
                    let since = all.iter().filter(|(_, at)| *at > latest);
                    let others: std::collections::BTreeSet<u64> =
                        since.map(|&(other, _)| other).collect();
                    others.len() as u32 + 1
                });
                let least = if touched.is_first { least } else { touched.distance };
                let is_forgotten =
                    before.is_some_and(|&(_, at)| interval - at >= INTERVALS_MAX as u32);
                prop_assert!(
                    is_forgotten || touched.distance_min == least,
                    "{:?} {:?}",
                    touched,
                    least
                );
                prop_assert!(touched.distance_min <= touched.distance);
                all.push((granule, interval));
            }
        }

        #[test]
        fn distances_equal_those_of_a_move_to_front_list(
            granules in prop::collection::vec(0..30_u64, 0..200)
        ) {
            let mut recency = Recency::default();
            let mut list: Vec<u64> = Vec::new();
            for granule in granules {
                let index = list.iter().position(|&other| other == granule);
                index.map(|index| list.remove(index));
                list.insert(0, granule);
                let expected = index.map(|index| index as u32 + 1);
                prop_assert_eq!(recency.touch(granule, 3).unwrap().distance, expected);
            }
            prop_assert_eq!(recency.order(), list);
        }
    }
}
