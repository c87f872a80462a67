//! Which pages go.
//!
//! Idea: the host does not know which pages a guest needs. By address it would take what the guest's kernel put together,
//! and by age what the guest last read through; at random it takes of everything its part, and no workload is
//! its worst case. What somebody does know goes before: pages known to be cold go first, in the order they are
//! told; pages known to be hot go last.
//!
//! Cost: below 0.1 µs a page; no list of pages ([`Permutation`]).
//! Source: flexmemd §3.2.2; random replacement as in VMware ESX Server, Waldspurger, OSDI 2002.
//! Limits: the regions of the moment the first page is drawn; memory plugged in later waits for the next order.

use std::collections::VecDeque;

use ballast_model::{Bytes, PAGE_SIZE};

use crate::permutation::Permutation;
use crate::ranges::Seen;
use crate::{AddressRange, RangeSet};

/// Most pages that can go together.
pub const GRANULE_PAGES_MAX: u64 = 512;

/// How pages are chosen.
#[derive(Clone, Debug)]
pub struct Picker {
    seed: u64,
    granule_pages: u64,
    cold: Vec<AddressRange>,
    hot: Vec<AddressRange>,
}

impl Picker {
    /// At random, each page by itself; the same `seed` gives the same choice of the same memory.
    pub fn new(seed: u64) -> Picker {
        Picker { seed, granule_pages: 1, cold: Vec::new(), hot: Vec::new() }
    }

    /// Takes `pages` neighbours together, 1 to [`GRANULE_PAGES_MAX`]: coarser, and faster, to read back as well. Of
    /// transparent huge pages fewer are split.
    pub fn granule_pages(self, pages: u64) -> Picker {
        Picker { granule_pages: pages.clamp(1, GRANULE_PAGES_MAX), ..self }
    }

    /// Takes these first, in this order.
    pub fn cold(self, cold: Vec<AddressRange>) -> Picker {
        Picker { cold, ..self }
    }

    /// Takes these when nothing else is left, in this order; not those that are said to be cold as well.
    pub fn hot(self, hot: Vec<AddressRange>) -> Picker {
        Picker { hot, ..self }
    }
}

/// Draws of a picker from some memory, each page at most once.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    /// What was drawn last and not all taken, and before all else what is cold.
    queue: VecDeque<AddressRange>,
    /// Drawn when all else was.
    last: VecDeque<AddressRange>,
    /// Not drawn at random: cold, or hot.
    excluded: RangeSet,
    /// Each region with the number of its first granule.
    regions: Vec<(u64, AddressRange)>,
    granule_bytes: u64,
    order: Permutation,
    at: u64,
}

impl Draw {
    /// From `regions`.
    pub(crate) fn new(picker: &Picker, regions: impl Iterator<Item = AddressRange>) -> Draw {
        let memory: RangeSet = regions.collect();
        let mut seen = Seen::default();
        let mut list = |told: &[AddressRange]| -> VecDeque<AddressRange> {
            told.iter()
                .flat_map(|&range| memory.within(range))
                .flat_map(|it| seen.add(it))
                .collect()
        };
        let (queue, last) = (list(&picker.cold), list(&picker.hot));
        let excluded = seen.ranges().collect();
        let granule_bytes = picker.granule_pages * PAGE_SIZE;
        let mut granules = 0;
        let numbered = memory.ranges().iter().map(|&range| {
            let first = granules;
            granules += range.end().div_ceil(granule_bytes) - range.start() / granule_bytes;
            (first, range)
        });
        let regions = numbered.collect();
        let order = Permutation::new(granules, picker.seed);
        Draw { queue, last, excluded, regions, granule_bytes, order, at: 0 }
    }

    /// Up to `most`, and at least a page, of what goes next; `None` when all was drawn. It may be in memory or not. Empty
    /// where what comes next is not for chance to draw, so that each call does little.
    pub(crate) fn next(&mut self, most: Bytes) -> Option<AddressRange> {
        if self.queue.is_empty() {
            match self.order.at(self.at) {
                Some(granule) => {
                    self.at += 1;
                    self.queue.extend(self.excluded.without(self.granule(granule)));
                }
                None if self.last.is_empty() => return None,
                None => self.queue = std::mem::take(&mut self.last),
            }
        }
        let Some(next) = self.queue.pop_front() else { return Some(AddressRange::new(0, 0)) };
        let (taken, rest) = next.split(most.max(Bytes::pages(1)));
        if !rest.is_empty() {
            self.queue.push_front(rest);
        }
        Some(taken)
    }

    fn granule(&self, number: u64) -> AddressRange {
        let at = self.regions.partition_point(|&(first, _)| first <= number).saturating_sub(1);
        let (first, region) = self.regions[at];
        let start = (region.start() / self.granule_bytes + (number - first)) * self.granule_bytes;
        AddressRange::new(start, start.saturating_add(self.granule_bytes)).intersection(region)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(first: u64, len: u64) -> AddressRange {
        AddressRange::new(first * PAGE_SIZE, (first + len) * PAGE_SIZE)
    }

    fn pages(ranges: &[AddressRange]) -> Vec<u64> {
        let of = |range: &AddressRange| range.start() / PAGE_SIZE..range.end() / PAGE_SIZE;
        ranges.iter().flat_map(of).collect()
    }

    /// All that is drawn, `most` pages at a time.
    fn drawn(picker: &Picker, regions: &[AddressRange], most: u64) -> Vec<u64> {
        let mut draw = Draw::new(picker, regions.iter().copied());
        let all: Vec<_> = std::iter::from_fn(|| draw.next(Bytes::pages(most))).collect();
        assert!(all.iter().all(|it| it.len() <= Bytes::pages(most)));
        pages(&all)
    }

    fn ranges() -> impl Strategy<Value = Vec<AddressRange>> {
        prop::collection::vec(
            (0u64..300, 0u64..60).prop_map(|(first, len)| range(first, len)),
            0..8,
        )
    }

    proptest! {
        #[test]
        fn all_that_may_go_is_drawn_once_and_nothing_else(
            seed: u64, granule in 0u64..40, most in 1u64..50,
            regions in ranges(), cold in ranges(), hot in ranges(),
        ) {
            let picker =
                Picker::new(seed).granule_pages(granule).cold(cold.clone()).hot(hot.clone());
            let order = drawn(&picker, &regions, most);
            let may_go = BTreeSet::from_iter(pages(&regions));
            prop_assert_eq!(order.len(), may_go.len(), "each once");
            prop_assert_eq!(BTreeSet::from_iter(order.iter().copied()), may_go.clone());
            let mut told = BTreeSet::new();
            let mut listed = |ranges: &[AddressRange]| -> Vec<u64> {
                let all = pages(ranges).into_iter();
                all.filter(|page| may_go.contains(page) && told.insert(*page)).collect()
            };
            let (first, last) = (listed(&cold), listed(&hot));
            prop_assert_eq!(&order[..first.len()], &first[..], "cold ones first, as told");
            prop_assert_eq!(&order[order.len() - last.len()..], &last[..], "hot ones last, as told");
            prop_assert_eq!(drawn(&picker, &regions, most), order, "the same seed, the same choice");
        }

        #[test]
        fn granules_stay_together(seed: u64, granule in 1u64..40) {
            let picker = Picker::new(seed).granule_pages(granule);
            let order = drawn(&picker, &[range(3, 400)], granule);
            for two in order.windows(2).filter(|two| two[1] % granule != 0 && two[1] != 3) {
                prop_assert_eq!(two[0] + 1, two[1]);
            }
        }
    }

    #[test]
    fn what_was_not_taken_of_a_granule_comes_next() {
        let mut draw = Draw::new(&Picker::new(1).granule_pages(8), [range(0, 64)].into_iter());
        let head = draw.next(Bytes::pages(3)).unwrap();
        let tail = draw.next(Bytes::MAX).unwrap();
        assert_eq!((head.len(), tail.len()), (Bytes::pages(3), Bytes::pages(5)));
        assert_eq!(head.end(), tail.start());
        assert_eq!(Draw::new(&Picker::new(1), [].into_iter()).next(Bytes::MAX), None);
    }

    #[test]
    fn the_choice_is_spread_and_another_seed_chooses_others() {
        let of = |seed| drawn(&Picker::new(seed), &[range(100, 4000), range(9000, 4000)], 1);
        let (one, two) = (of(1), of(2));
        let first = |order: &[u64]| BTreeSet::from_iter(order[..2000].iter().copied());
        // A quarter of either is in the other by chance.
        let both = first(&one).intersection(&first(&two)).count();
        assert!((350..650).contains(&both), "{both}");
        let upper = one[..2000].iter().filter(|page| **page >= 9000).count();
        assert!((850..1150).contains(&upper), "{upper}");
        let neighbours = one.windows(2).filter(|two| two[0] + 1 == two[1]).count();
        assert!(neighbours < 20, "{neighbours}");
    }
}
