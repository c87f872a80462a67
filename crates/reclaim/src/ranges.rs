//! Address ranges of whole pages, and sets of them.

use std::collections::BTreeMap;

use ballast_model::{Bytes, PAGE_SIZE};

/// The addresses from `start` up to but excluding `end`; both are page-aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    start: u64,
    end: u64,
}

impl AddressRange {
    /// The whole pages between the byte addresses `start` and `end`; empty if there are none.
    pub const fn new(start: u64, end: u64) -> AddressRange {
        let end = end - end % PAGE_SIZE;
        let start = match start.checked_next_multiple_of(PAGE_SIZE) {
            Some(start) if start < end => start,
            _ => end,
        };
        AddressRange { start, end }
    }

    /// The first byte address.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The byte address after the last.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// The length.
    pub const fn len(self) -> Bytes {
        Bytes::new(self.end - self.start)
    }

    /// Whether it has no page.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The pages in both ranges.
    pub fn intersection(self, other: AddressRange) -> AddressRange {
        AddressRange::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Splits off the first `len`, rounded down to whole pages; returns both parts.
    pub(crate) fn split(self, len: Bytes) -> (AddressRange, AddressRange) {
        let at = self.start + len.min(self.len()).page_floor().get();
        (AddressRange { end: at, ..self }, AddressRange { start: at, ..self })
    }
}

/// Sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(Vec<AddressRange>);

impl FromIterator<AddressRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = AddressRange>>(ranges: I) -> RangeSet {
        let mut all: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        all.sort_unstable();
        let mut joined: Vec<AddressRange> = Vec::with_capacity(all.len());
        for range in all {
            match joined.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        RangeSet(joined)
    }
}

impl RangeSet {
    /// The ranges, lowest first.
    pub fn ranges(&self) -> &[AddressRange] {
        &self.0
    }

    /// The total length.
    pub fn len(&self) -> Bytes {
        self.0.iter().map(|range| range.len()).sum()
    }

    /// Whether it has no page.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it contains the byte address `address`.
    pub fn contains(&self, address: u64) -> bool {
        let after = self.0.partition_point(|range| range.end <= address);
        self.0.get(after).is_some_and(|range| range.start <= address)
    }

    /// The parts of `range` inside the set, lowest first.
    pub(crate) fn within(&self, range: AddressRange) -> impl Iterator<Item = AddressRange> + '_ {
        let first = self.0.partition_point(|it| it.end <= range.start);
        let touching = self.0[first..].iter().take_while(move |it| it.start < range.end);
        touching.map(move |it| it.intersection(range)).filter(|it| !it.is_empty())
    }

    /// The parts of `range` outside the set, lowest first.
    pub(crate) fn without(&self, range: AddressRange) -> impl Iterator<Item = AddressRange> + '_ {
        let end = [AddressRange { start: range.end, end: range.end }];
        let mut from = range.start;
        self.within(range).chain(end).filter_map(move |inside| {
            let gap = AddressRange { start: from, end: inside.start };
            from = inside.end;
            (!gap.is_empty()).then_some(gap)
        })
    }
}

/// A set of ranges to which ranges are added in any order. Maps the start of each range to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoveredRanges(BTreeMap<u64, u64>);

impl CoveredRanges {
    /// Adds `range`. Returns its parts that are new, lowest first.
    pub(crate) fn add(&mut self, range: AddressRange) -> Vec<AddressRange> {
        if range.is_empty() {
            return Vec::new();
        }
        let mut joined = range;
        let mut overlaps = Vec::new();
        while let Some((&start, &end)) = self.0.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            self.0.remove(&start);
            joined = AddressRange { start: joined.start.min(start), end: joined.end.max(end) };
            overlaps.push(AddressRange { start, end });
        }
        self.0.insert(joined.start, joined.end);
        overlaps.into_iter().collect::<RangeSet>().without(range).collect()
    }

    /// The whole set, lowest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = AddressRange> + '_ {
        self.0.iter().map(|(&start, &end)| AddressRange { start, end })
    }
}

/// Ranges of adjacent pages for which `matches` is true, lowest first. `pages` begins at the
/// page-aligned address `start`.
pub fn runs<T>(
    start: u64,
    pages: &[T],
    matches: impl Fn(&T) -> bool,
) -> impl Iterator<Item = AddressRange> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = at + pages[at..].iter().position(&matches)?;
        let len = pages[first..].iter().position(|it| !matches(it)).unwrap_or(pages.len() - first);
        at = first + len;
        let start = start + first as u64 * PAGE_SIZE;
        Some(AddressRange { start, end: start + len as u64 * PAGE_SIZE })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn pages(ranges: impl IntoIterator<Item = AddressRange>) -> Vec<u64> {
        let of = |range: AddressRange| (range.start..range.end).step_by(PAGE_SIZE as usize);
        ranges.into_iter().flat_map(of).map(|address| address / PAGE_SIZE).collect()
    }

    fn range(first: u64, len: u64) -> AddressRange {
        AddressRange::new(first * PAGE_SIZE, (first + len) * PAGE_SIZE)
    }

    #[test]
    fn ranges_are_whole_pages() {
        for (start, end, expected) in [
            (1, 3 * PAGE_SIZE - 1, (PAGE_SIZE, 2 * PAGE_SIZE)),
            (0, PAGE_SIZE, (0, PAGE_SIZE)),
            (5, 100, (0, 0)),
            (9 * PAGE_SIZE, PAGE_SIZE, (PAGE_SIZE, PAGE_SIZE)),
            (u64::MAX, u64::MAX, (u64::MAX - PAGE_SIZE + 1, u64::MAX - PAGE_SIZE + 1)),
        ] {
            let range = AddressRange::new(start, end);
            assert_eq!((range.start, range.end), expected);
        }
        let (head, tail) = range(1, 3).split(Bytes::new(PAGE_SIZE + 5));
        assert_eq!((head, tail), (range(1, 1), range(2, 2)));
    }

    proptest! {
        #[test]
        fn a_set_behaves_like_a_list_of_pages(
            parts in prop::collection::vec((0u64..60, 0u64..9), 0..12),
            (first, len) in (0u64..60, 0u64..30),
        ) {
            let ranges: Vec<_> = parts.iter().map(|&(first, len)| range(first, len)).collect();
            let oracle: BTreeSet<u64> = pages(ranges.iter().copied()).into_iter().collect();
            let set: RangeSet = ranges.into_iter().collect();
            prop_assert_eq!(pages(set.ranges().iter().copied()), Vec::from_iter(oracle.clone()));
            prop_assert_eq!(set.len(), Bytes::pages(oracle.len() as u64));
            prop_assert!(set.ranges().windows(2).all(|two| two[0].end < two[1].start));
            for page in 0..80 {
                prop_assert_eq!(set.contains(page * PAGE_SIZE), oracle.contains(&page));
            }
            let query = range(first, len);
            let (inside, outside): (Vec<u64>, Vec<u64>) =
                pages([query]).into_iter().partition(|page| oracle.contains(page));
            prop_assert_eq!(pages(set.within(query)), inside);
            prop_assert_eq!(pages(set.without(query)), outside);
        }

        #[test]
        fn adding_a_range_returns_its_new_pages(
            parts in prop::collection::vec((0u64..60, 0u64..9), 0..20),
        ) {
            let mut oracle = BTreeSet::new();
            let mut covered = CoveredRanges::default();
            for (first, len) in parts {
                let range = range(first, len);
                let new: Vec<u64> =
                    pages([range]).into_iter().filter(|it| oracle.insert(*it)).collect();
                prop_assert_eq!(pages(covered.add(range)), new);
            }
            prop_assert_eq!(pages(covered.ranges()), Vec::from_iter(oracle));
        }

        #[test]
        fn runs_are_the_matching_pages(bits in prop::collection::vec(any::<bool>(), 0..40)) {
            let start = 7 * PAGE_SIZE;
            let found: Vec<_> = runs(start, &bits, |bit| *bit).collect();
            let set = bits.iter().enumerate().filter(|(_, bit)| **bit);
            let oracle: Vec<u64> = set.map(|(at, _)| 7 + at as u64).collect();
            prop_assert!(found.windows(2).all(|two| two[0].end < two[1].start));
            prop_assert_eq!(pages(found), oracle);
        }
    }
}
