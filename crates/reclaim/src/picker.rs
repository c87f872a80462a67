//! The order in which pages are paged out.
//!
//! Idea: the host does not know which pages a guest needs. In order of addresses it would take
//! memory that the guest's kernel allocated together; in order of age, from a guest that scans its
//! memory in a loop, the pages that it needs next. A random order takes a part of everything, and
//! no workload is its worst case. Pages known to be cold go first, in the order given; pages known
//! to be hot go last.
//!
//! Cost: below 0.1 µs a page; no list of pages ([`Permutation`]).
//! Source: flexmemd §3.2.2; random replacement as in VMware ESX Server, Waldspurger, OSDI 2002.
//! Limits: covers the regions that exist when the first page is drawn; memory plugged in later
//! waits for the next job.

use std::collections::VecDeque;

use ballast_model::{Bytes, PAGE_SIZE};

use crate::permutation::Permutation;
use crate::ranges::{AddressRange, CoveredRanges, RangeSet};

/// Most pages in a granule.
pub const GRANULE_PAGES_MAX: u64 = 512;

/// Settings of the order.
#[derive(Clone, Debug)]
pub struct Picker {
    seed: u64,
    granule_pages: u64,
    cold: Vec<AddressRange>,
    hot: Vec<AddressRange>,
}

impl Picker {
    /// Random order of single pages; the same `seed` gives the same order of the same memory.
    pub fn new(seed: u64) -> Picker {
        Picker { seed, granule_pages: 1, cold: Vec::new(), hot: Vec::new() }
    }

    /// Takes granules of `pages` neighbours, 1 to [`GRANULE_PAGES_MAX`]. Large granules are
    /// coarser, faster to write and read back, and split fewer transparent huge pages.
    pub fn granule_pages(self, pages: u64) -> Picker {
        Picker { granule_pages: pages.clamp(1, GRANULE_PAGES_MAX), ..self }
    }

    /// Takes these first, in this order.
    pub fn cold(self, cold: Vec<AddressRange>) -> Picker {
        Picker { cold, ..self }
    }

    /// Takes these last, in this order; pages that are also in the cold list count as cold.
    pub fn hot(self, hot: Vec<AddressRange>) -> Picker {
        Picker { hot, ..self }
    }
}

/// Draws each page of some memory once, in the order of a picker.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    /// Drawn next: at first the cold pages, later the rest of the last granule.
    queue: VecDeque<AddressRange>,
    /// The hot pages, drawn last.
    last: VecDeque<AddressRange>,
    /// Pages that are not drawn at random: cold or hot.
    excluded: RangeSet,
    /// Each region with the number of its first granule.
    regions: Vec<(u64, AddressRange)>,
    granule_bytes: u64,
    order: Permutation,
    /// Next position in `order`.
    position: u64,
}

impl Draw {
    pub(crate) fn new(picker: &Picker, regions: impl Iterator<Item = AddressRange>) -> Draw {
        let memory: RangeSet = regions.collect();
        let mut covered = CoveredRanges::default();
        let mut not_yet_listed = |list: &[AddressRange]| {
            let mut new = VecDeque::new();
            for &range in list {
                for part in memory.within(range) {
                    new.extend(covered.add(part));
                }
            }
            new
        };
        let queue = not_yet_listed(&picker.cold);
        let last = not_yet_listed(&picker.hot);
        let excluded = covered.ranges().collect();
        let granule_bytes = picker.granule_pages * PAGE_SIZE;
        let mut granules = 0;
        let mut regions = Vec::new();
        for &range in memory.ranges() {
            regions.push((granules, range));
            granules += range.end().div_ceil(granule_bytes) - range.start() / granule_bytes;
        }
        let order = Permutation::new(granules, picker.seed);
        Draw { queue, last, excluded, regions, granule_bytes, order, position: 0 }
    }

    /// The next range, of at most `most` and at least a page; `None` when all was drawn. The pages
    /// need not be in memory. The range is empty if the next granule has only cold or hot pages:
    /// one call does little work.
    pub(crate) fn next(&mut self, most: Bytes) -> Option<AddressRange> {
        if self.queue.is_empty() {
            match self.order.at(self.position) {
                Some(granule) => {
                    self.position += 1;
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

    /// All pages in the order drawn, `most` at a time.
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
        fn every_page_is_drawn_once_cold_first_hot_last(
            seed: u64, granule in 0u64..40, most in 1u64..50,
            regions in ranges(), cold in ranges(), hot in ranges(),
        ) {
            let picker =
                Picker::new(seed).granule_pages(granule).cold(cold.clone()).hot(hot.clone());
            let order = drawn(&picker, &regions, most);
            let memory = BTreeSet::from_iter(pages(&regions));
            prop_assert_eq!(order.len(), memory.len(), "each once");
            prop_assert_eq!(BTreeSet::from_iter(order.iter().copied()), memory.clone());
            let mut seen = BTreeSet::new();
            let mut listed = |ranges: &[AddressRange]| -> Vec<u64> {
                let all = pages(ranges).into_iter();
                all.filter(|page| memory.contains(page) && seen.insert(*page)).collect()
            };
            let (first, last) = (listed(&cold), listed(&hot));
            prop_assert_eq!(&order[..first.len()], &first[..], "cold pages first, in order");
            prop_assert_eq!(&order[order.len() - last.len()..], &last[..], "hot pages last");
            prop_assert_eq!(drawn(&picker, &regions, most), order, "same seed, same order");
        }

        #[test]
        fn pages_of_a_granule_are_drawn_together(seed: u64, granule in 1u64..40) {
            let picker = Picker::new(seed).granule_pages(granule);
            let order = drawn(&picker, &[range(3, 400)], granule);
            for two in order.windows(2).filter(|two| two[1] % granule != 0 && two[1] != 3) {
                prop_assert_eq!(two[0] + 1, two[1]);
            }
        }
    }

    #[test]
    fn the_rest_of_a_granule_comes_next() {
        let mut draw = Draw::new(&Picker::new(1).granule_pages(8), [range(0, 64)].into_iter());
        let head = draw.next(Bytes::pages(3)).unwrap();
        let tail = draw.next(Bytes::MAX).unwrap();
        assert_eq!((head.len(), tail.len()), (Bytes::pages(3), Bytes::pages(5)));
        assert_eq!(head.end(), tail.start());
        assert_eq!(Draw::new(&Picker::new(1), [].into_iter()).next(Bytes::MAX), None);
    }

    #[test]
    fn the_order_is_spread_and_depends_on_the_seed() {
        let of = |seed| drawn(&Picker::new(seed), &[range(100, 4000), range(9000, 4000)], 1);
        let (one, two) = (of(1), of(2));
        let first = |order: &[u64]| BTreeSet::from_iter(order[..2000].iter().copied());
        // By chance each has a quarter of the other's pages.
        let both = first(&one).intersection(&first(&two)).count();
        assert!((350..650).contains(&both), "{both}");
        let upper = one[..2000].iter().filter(|page| **page >= 9000).count();
        assert!((850..1150).contains(&upper), "{upper}");
        let neighbours = one.windows(2).filter(|two| two[0] + 1 == two[1]).count();
        assert!(neighbours < 20, "{neighbours}");
    }
}
