//! Addresses in the hypervisor's process, in whole pages.

use std::collections::BTreeMap;

use ballast_model::{Bytes, PAGE_SIZE};

/// Addresses from `start` up to, and without, `end`; both are whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    start: u64,
    end: u64,
}

impl AddressRange {
    /// The whole pages between `start` and `end`, both in bytes; empty where there are none.
    pub const fn new(start: u64, end: u64) -> AddressRange {
        let end = end - end % PAGE_SIZE;
        let start = match start.checked_next_multiple_of(PAGE_SIZE) {
            Some(start) if start < end => start,
            _ => end,
        };
        AddressRange { start, end }
    }

    /// The first address, in bytes.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The address after the last, in bytes.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Its length.
    pub const fn len(self) -> Bytes {
        Bytes::new(self.end - self.start)
    }

    /// Whether it has no page.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// What both have.
    pub fn intersection(self, other: AddressRange) -> AddressRange {
        AddressRange::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The first `len` of it, and the rest; `len` in whole pages, rounded down.
    pub(crate) fn split(self, len: Bytes) -> (AddressRange, AddressRange) {
        let at = self.start + len.min(self.len()).page_floor().get();
        (AddressRange { end: at, ..self }, AddressRange { start: at, ..self })
    }
}

/// Ranges in order, of which no two touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(Vec<AddressRange>);

impl FromIterator<AddressRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = AddressRange>>(ranges: I) -> RangeSet {
        let mut all: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        all.sort_unstable();
        let mut joined: Vec<AddressRange> = Vec::with_capacity(all.len());
        for range in all {
            match joined.last_mut().filter(|last| last.end >= range.start) {
                Some(last) => last.end = last.end.max(range.end),
                None => joined.push(range),
            }
        }
        RangeSet(joined)
    }
}

impl RangeSet {
    /// Its ranges, lowest first.
    pub fn ranges(&self) -> &[AddressRange] {
        &self.0
    }

    /// Memory in it.
    pub fn len(&self) -> Bytes {
        self.0.iter().map(|range| range.len()).sum()
    }

    /// Whether it has no page.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the page at `address`, in bytes, is in it.
    pub fn contains(&self, address: u64) -> bool {
        let after = self.0.partition_point(|range| range.end <= address);
        self.0.get(after).is_some_and(|range| range.start <= address)
    }

    /// The parts of `range` that are in it, lowest first.
    pub(crate) fn within(&self, range: AddressRange) -> impl Iterator<Item = AddressRange> + '_ {
        let first = self.0.partition_point(|it| it.end <= range.start);
        let touching = self.0[first..].iter().take_while(move |it| it.start < range.end);
        touching.map(move |it| it.intersection(range)).filter(|it| !it.is_empty())
    }

    /// The parts of `range` that are not, lowest first.
    pub(crate) fn without(&self, range: AddressRange) -> impl Iterator<Item = AddressRange> + '_ {
        let ends = [AddressRange { start: range.end, end: range.end }];
        let mut from = range.start;
        self.within(range).chain(ends).filter_map(move |taken| {
            let gap = AddressRange { start: from, end: taken.start };
            from = taken.end;
            (!gap.is_empty()).then_some(gap)
        })
    }
}

/// What was seen so far of ranges that come in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(BTreeMap<u64, u64>);

impl Seen {
    /// Adds `range`; the parts of it that were not seen before, lowest first.
    pub(crate) fn add(&mut self, range: AddressRange) -> Vec<AddressRange> {
        if range.is_empty() {
            return Vec::new();
        }
        let touching = |seen: &BTreeMap<u64, u64>| {
            seen.range(..=range.end).next_back().map(|(&start, &end)| (start, end))
        };
        let mut joined = range;
        let mut overlaps = Vec::new();
        while let Some((start, end)) = touching(&self.0).filter(|&(_, end)| end >= range.start) {
            self.0.remove(&start);
            joined = AddressRange { start: joined.start.min(start), end: joined.end.max(end) };
            overlaps.push(AddressRange { start, end });
        }
        self.0.insert(joined.start, joined.end);
        overlaps.into_iter().collect::<RangeSet>().without(range).collect()
    }

    /// All that was seen, lowest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = AddressRange> + '_ {
        self.0.iter().map(|(&start, &end)| AddressRange { start, end })
    }
}

/// Adjacent pages of which `is_in` is true, as ranges; `pages` begins at address `start`.
pub(crate) fn runs<T>(
    start: u64,
    pages: &[T],
    is_in: impl Fn(&T) -> bool,
) -> impl Iterator<Item = AddressRange> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = at + pages[at..].iter().position(&is_in)?;
        let len = pages[first..].iter().position(|it| !is_in(it)).unwrap_or(pages.len() - first);
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
        fn sets_are_as_a_list_of_pages(
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
            let asked = range(first, len);
            let (inside, outside): (Vec<u64>, Vec<u64>) =
                pages([asked]).into_iter().partition(|page| oracle.contains(page));
            prop_assert_eq!(pages(set.within(asked)), inside);
            prop_assert_eq!(pages(set.without(asked)), outside);
        }

        #[test]
        fn what_was_seen_is_not_seen_again(parts in prop::collection::vec((0u64..60, 0u64..9), 0..20)) {
            let mut oracle = BTreeSet::new();
            let mut seen = Seen::default();
            for (first, len) in parts {
                let range = range(first, len);
                let new: Vec<u64> = pages([range]).into_iter().filter(|it| oracle.insert(*it)).collect();
                prop_assert_eq!(pages(seen.add(range)), new);
            }
            prop_assert_eq!(pages(seen.ranges()), Vec::from_iter(oracle));
        }

        #[test]
        fn runs_are_the_pages_that_are_in(bits in prop::collection::vec(any::<bool>(), 0..40)) {
            let start = 7 * PAGE_SIZE;
            let found: Vec<_> = runs(start, &bits, |bit| *bit).collect();
            let oracle: Vec<u64> =
                bits.iter().enumerate().filter(|(_, bit)| **bit).map(|(at, _)| 7 + at as u64).collect();
            prop_assert!(found.windows(2).all(|two| two[0].end < two[1].start));
            prop_assert_eq!(pages(found), oracle);
        }
    }
}
