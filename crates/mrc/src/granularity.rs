//! How many pages share a tag (MEB §3.1.2).

use std::fmt;

/// Pages per tag: a power of two from 1 to [`Granularity::PAGES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granularity {
    shift: u8,
}

impl Granularity {
    /// Most pages per tag: 2^20, which at 4 KiB is 4 GiB.
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

    /// The tags of size `to` in the order of `order`, which are of this size, most recent first.
    ///
    /// Coarser: each tag once, where the first of its members is. Finer: in the place of a tag all
    /// its parts, in rising order, also those that were never referenced. So the number of finer
    /// tags and their distances are overstated where tags are used in part.
    #[must_use]
    pub fn regroup(self, to: Self, order: &[u64]) -> Vec<u64> {
        if to.shift >= self.shift {
            let by = to.shift - self.shift;
            let mut seen = hashbrown::HashSet::new();
            return order.iter().map(|tag| tag >> by).filter(|&tag| seen.insert(tag)).collect();
        }
        let by = self.shift - to.shift;
        order.iter().flat_map(|&tag| (tag << by)..((tag + 1) << by)).collect()
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pages().fmt(f)
    }
}
