//! Watched granules in LRU order.
//!
//! Idea: few granules are watched, and their numbers are far apart; numbered in order of their first
//! touch they are dense, which the exact stack of `mrc` wants.
//! Cost: a hash lookup and the stack's reference a touch; some 90 bytes for each granule ever touched.

use ballast_mrc::{Exact, Full, Stack};
use hashbrown::HashMap;

/// Most granules kept: 4 GiB of page-sized ones, 128 GiB of 32 pages each.
pub(crate) const GRANULES_MAX: usize = 1 << 20;

/// Granules by their latest touch.
#[derive(Debug, Default)]
pub(crate) struct Recency {
    stack: Exact,
    numbers: HashMap<u64, u32>,
    granules: Vec<u64>,
    /// By number: the interval of the latest touch, and one.
    stamps: Vec<u32>,
}

/// What a touch found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many granules, itself among them, were touched since its last touch; `None` for its first.
    pub(crate) distance: Option<u32>,
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
        let stamp = interval.wrapping_add(1);
        let latest = std::mem::replace(&mut self.stamps[number as usize], stamp);
        let distance = (distance[0] != ballast_mrc::COLD).then_some(distance[0]);
        Ok(Found { distance, is_first: latest != stamp })
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
                return;
            }
        }
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
        assert_eq!(recency.touch(6, 0), Ok(Found { distance: Some(2), is_first: true }));
    }

    proptest! {
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
