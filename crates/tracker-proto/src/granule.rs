//! How many pages are revoked and restored as one.
//!
//! Idea: a power of two, so that the granule of a page is a shift away. A trap costs the same for any
//! size, restoring a page of it 0.4 to 1.2 µs; large granules need few traps and see little.
//! Source: MEB §3.1.2 (32 and 512 pages), and its sweep from 1 to 1,024.

use thiserror::Error;

/// Bytes of a page. Memory in huge pages is not tracked.
pub const PAGE_SIZE: u64 = 4096;

/// Pages per granule: 1, 2, 4 … 1,024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Granule {
    shift: u8,
}

/// A number of pages that is no granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a granule of {pages} pages: expected a power of two up to {max}", max = Granule::PAGES_MAX)]
pub struct NotAGranule {
    /// The number.
    pub pages: u32,
}

impl Granule {
    /// One page.
    pub const PAGE: Granule = Granule { shift: 0 };
    /// Most pages of one.
    pub const PAGES_MAX: u32 = 1024;

    /// A granule of `pages`.
    ///
    /// # Errors
    /// [`NotAGranule`] unless it is a power of two of at most [`Self::PAGES_MAX`].
    pub const fn new(pages: u32) -> Result<Granule, NotAGranule> {
        if pages.is_power_of_two() && pages <= Granule::PAGES_MAX {
            Ok(Granule { shift: pages.trailing_zeros() as u8 })
        } else {
            Err(NotAGranule { pages })
        }
    }

    /// Pages of one.
    pub const fn pages(self) -> u64 {
        1 << self.shift
    }

    /// The granule that `page` is in.
    pub const fn of(self, page: u64) -> u64 {
        page >> self.shift
    }

    /// The first page of a granule.
    pub const fn first_page(self, granule: u64) -> u64 {
        granule << self.shift
    }

    /// How many granules `pages` touch that begin at a granule's first page.
    pub const fn count(self, pages: u64) -> u64 {
        pages.div_ceil(self.pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_up_to_the_bound() {
        for pages in 0..3000 {
            let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].contains(&pages);
            assert_eq!(Granule::new(pages).is_ok(), expected, "{pages}");
        }
        assert!(Granule::new(u32::MAX).is_err());
    }

    #[test]
    fn pages_and_granules() {
        let granule = Granule::new(32).unwrap();
        assert_eq!([31, 32, 95].map(|page| granule.of(page)), [0, 1, 2]);
        assert_eq!((granule.first_page(2), granule.count(64), granule.count(65)), (64, 2, 3));
        assert_eq!(Granule::default(), Granule::PAGE);
    }
}
