//! The number of pages per tag (MEB §3.1.2).

use std::fmt;

/// Pages per tag: a power of two from 1 to [`Granularity::PAGES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granularity {
    shift: u8,
}

impl Granularity {
    /// The greatest number of pages per tag: 2^20, which is 4 GiB with pages of 4 KiB.
    pub const PAGES_MAX: u64 = 1 << 20;
    /// Every page is a tag of its own.
    pub const PAGE: Self = Self { shift: 0 };

    /// Tags of `pages` pages; `None` unless that is a power of two up to [`Self::PAGES_MAX`].
    #[must_use]
    pub fn new(pages: u64) -> Option<Self> {
        let fits = pages.is_power_of_two() && pages <= Self::PAGES_MAX;
        fits.then(|| Self { shift: pages.trailing_zeros() as u8 })
    }

    /// Pages per tag.
    #[must_use]
    pub fn pages(self) -> u64 {
        1 << self.shift
    }

    /// The tag of a page number.
    #[must_use]
    pub fn tag(self, page: u64) -> u64 {
        page >> self.shift
    }

    /// Converts the tags in `order`, which are of this size and most recent first, to tags of size
    /// `to`.
    ///
    /// Coarser: each coarse tag once, at the place of the first of its members. Finer: a tag is
    /// replaced by all its parts in rising order, including those that were never referenced. So
    /// the number of finer tags and their distances are too large if only parts of tags are used.
    #[must_use]
    pub fn regroup(self, to: Self, order: &[u64]) -> Vec<u64> {
        if to.shift >= self.shift {
            let by = to.shift - self.shift;
            let mut seen = hashbrown::HashSet::new();
            return order.iter().map(|tag| tag >> by).filter(|&tag| seen.insert(tag)).collect();
        }
        let by = self.shift - to.shift;
        let parts = |&tag: &u64| (0..1_u64 << by).map(move |part| (tag << by) | part);
        order.iter().flat_map(parts).collect()
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pages().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn granularity(pages: u64) -> Granularity {
        Granularity::new(pages).unwrap()
    }

    #[test]
    fn only_powers_of_two() {
        for pages in [0, 3, 1 << 21, u64::MAX] {
            assert_eq!(Granularity::new(pages), None, "{pages}");
        }
        assert_eq!(Granularity::new(1), Some(Granularity::PAGE));
        assert_eq!(granularity(512).pages(), 512);
        assert_eq!(format!("{:>5}", granularity(512)), "  512");
    }

    #[test]
    fn orders_by_name() {
        let cases = [
            (1, 1, vec![3, 1, 2], vec![3, 1, 2]),
            (1, 4, vec![9, 1, 2, 8, 5, 0], vec![2, 0, 1]),
            (4, 1, vec![2, 0], vec![8, 9, 10, 11, 0, 1, 2, 3]),
            (32, 512, vec![16, 31, 0, 17], vec![1, 0]),
            (1, 2, vec![], vec![]),
            (2, 1, vec![u64::MAX >> 1], vec![u64::MAX - 1, u64::MAX]),
        ];
        for (from, to, order, expected) in cases {
            assert_eq!(granularity(from).regroup(granularity(to), &order), expected, "{from} {to}");
        }
    }

    proptest! {
        #[test]
        fn coarser_is_the_first_place_of_any_member(
            order in prop::collection::vec(0..200_u64, 0..100), shift in 0..6_u32,
        ) {
            let mut expected = Vec::new();
            for tag in order.iter().map(|tag| tag / (1 << shift)) {
                if !expected.contains(&tag) {
                    expected.push(tag);
                }
            }
            let coarser = Granularity::PAGE.regroup(granularity(1 << shift), &order);
            prop_assert_eq!(&coarser, &expected);
            // Finer and back again loses nothing.
            let finer = granularity(1 << shift).regroup(Granularity::PAGE, &coarser);
            prop_assert_eq!(finer.len(), coarser.len() << shift);
            prop_assert_eq!(Granularity::PAGE.regroup(granularity(1 << shift), &finer), coarser);
        }
    }
}
