//! Granules: how many pages are revoked and restored together.
//!
//! The number is a power of two, so a page's granule is a shift. A trap costs the same for any
//! size, and restoring a page costs 0.4 to 1.2 µs; large granules need few traps and reveal little.
//! Source: MEB §3.1.2 (32 and 512 pages), and its sweep from 1 to 1,024.

use thiserror::Error;

/// Bytes per page. Memory in huge pages is not tracked.
pub const PAGE_SIZE: u64 = 4096;

/// Pages per granule: 1, 2, 4 … 1,024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Granule {
    shift: u8,
}

/// An invalid number of pages per granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a granule of {pages} pages: expected a power of two up to {max}", max = Granule::PAGES_MAX)]
pub struct NotAGranule {
    /// The number.
    pub pages: u32,
}

impl Granule {
    /// One page.
    pub const PAGE: Granule = Granule { shift: 0 };
    /// Most pages per granule.
    pub const PAGES_MAX: u32 = 1024;

    /// A granule of `pages`.
    ///
    /// # Errors
    /// [`NotAGranule`] unless `pages` is a power of two up to [`Self::PAGES_MAX`].
    pub const fn new(pages: u32) -> Result<Granule, NotAGranule> {
        if pages.is_power_of_two() && pages <= Granule::PAGES_MAX {
            Ok(Granule { shift: pages.trailing_zeros() as u8 })
        } else {
            Err(NotAGranule { pages })
        }
    }

    /// Pages per granule.
    pub const fn pages(self) -> u64 {
        1 << self.shift
    }

    /// The granule of `page`.
    pub const fn of(self, page: u64) -> u64 {
        page >> self.shift
    }

    /// The first page of a granule.
    pub const fn first_page(self, granule: u64) -> u64 {
        granule << self.shift
    }

    /// The number of granules in a run of `pages` that begins with a granule.
    pub const fn count(self, pages: u64) -> u64 {
        pages.div_ceil(self.pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_up_to_the_bound_are_granules() {
        for pages in 0..3000 {
            let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].contains(&pages);
            assert_eq!(Granule::new(pages).is_ok(), expected, "{pages}");
        }
        assert!(Granule::new(u32::MAX).is_err());
    }

    #[test]
    fn pages_convert_to_granules_and_back() {
        let granule = Granule::new(32).unwrap();
        assert_eq!([31, 32, 95].map(|page| granule.of(page)), [0, 1, 2]);
        assert_eq!((granule.first_page(2), granule.count(64), granule.count(65)), (64, 2, 3));
        assert_eq!(Granule::default(), Granule::PAGE);
    }
}
