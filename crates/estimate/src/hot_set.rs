//! Chooses the size of the hot set: pages that can be accessed without trapping.
//!
//! Idea: with good locality a small hot set suffices to make traps rare; with poor locality it must
//! be large. Locality shows in the miss-ratio curve:
//!
//! ```text
//! α = MRC⁻¹(50 %) / (WSS / 2)
//! α > 1/3   HSS = min(upper, max(WSS / 12, 1.2 HSS))
//! α < 1/5   HSS = max(lower, 0.9 HSS)
//! ```
//!
//! Compared as whole numbers: `α > 1/3` is `6 MRC⁻¹(50 %) > WSS`, and `α < 1/5` is
//! `10 MRC⁻¹(50 %) < WSS`.
//!
//! Cost: O(1). Source: MEB §3.4; the first size and the bounds are ours, the paper gives none.
//! Limits: sizes are in pages, whatever the granularity of the list. Every update clamps the size
//! to its bounds, even with fair locality.

use ballast_model::Bytes;

/// Pages at first.
const PAGES_FIRST: u64 = 1024;
/// Fewest pages.
const PAGES_MIN: u64 = 256;
/// At most one in this many pages of the allocation is hot. Accesses to hot pages are estimated;
/// with more of them, more would be guessed than seen.
const ALLOCATION_PART: u64 = 4;
/// With poor locality, at least one in this many pages of the working set is hot.
const WSS_PART: u64 = 12;

/// Inputs of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotSetInput {
    /// The working set.
    pub wss: Bytes,
    /// The least memory in which at most half of the warm references miss: `MRC⁻¹(50 %)`.
    pub half_miss: Bytes,
    /// The guest's allocation.
    pub allocation: Bytes,
}

/// Locality of a guest's accesses, from its miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// `α < 1/5`: few pages take most references. The hot set shrinks.
    Good,
    /// Between the two. The hot set keeps its size.
    Fair,
    /// `α > 1/3`: references are spread over the working set. The hot set grows.
    Poor,
}

impl Locality {
    /// Locality of a working set of `wss` with `MRC⁻¹(50 %)` of `half_miss`; fair if it is empty.
    pub fn of(half_miss: Bytes, wss: Bytes) -> Locality {
        let (half, wss) = (u128::from(half_miss.get()), u128::from(wss.get()));
        if wss == 0 {
            Locality::Fair
        } else if 6 * half > wss {
            Locality::Poor
        } else if 10 * half < wss {
            Locality::Good
        } else {
            Locality::Fair
        }
    }
}

/// The size of one guest's hot set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSet {
    pages: u64,
}

impl Default for HotSet {
    fn default() -> Self {
        HotSet { pages: PAGES_FIRST }
    }
}

impl HotSet {
    /// The size in pages, at least 256.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Sets the size after an interval, and returns the locality it follows.
    pub fn update(&mut self, input: HotSetInput) -> Locality {
        let locality = Locality::of(input.half_miss, input.wss);
        let upper = (input.allocation.to_pages() / ALLOCATION_PART).max(PAGES_MIN);
        // The products cannot overflow: the size is at most a quarter of 2^52 pages.
        self.pages = match locality {
            Locality::Poor => (input.wss.to_pages() / WSS_PART).max(self.pages * 6 / 5),
            Locality::Good => self.pages * 9 / 10,
            Locality::Fair => self.pages,
        }
        .clamp(PAGES_MIN, upper);
        locality
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A working set of 1,200 MiB (307,200 pages) in 4 GiB (at most 262,144 hot pages).
    fn update(hot: &mut HotSet, half_mib: u64) -> (Locality, u64) {
        let locality = hot.update(HotSetInput {
            wss: Bytes::mib(1200),
            half_miss: Bytes::mib(half_mib),
            allocation: Bytes::gib(4),
        });
        (locality, hot.pages())
    }

    /// `WSS/12` is 25,600 pages; growing adds a fifth, shrinking removes a tenth.
    #[test]
    fn sizes_follow_locality_as_computed_by_hand() {
        let mut hot = HotSet::default();
        assert_eq!(hot.pages(), 1024);
        assert_eq!(update(&mut hot, 120), (Locality::Fair, 1024), "α = 1/5");
        assert_eq!(update(&mut hot, 201), (Locality::Poor, 25_600), "α just over 1/3");
        assert_eq!(update(&mut hot, 600), (Locality::Poor, 30_720));
        assert_eq!(update(&mut hot, 200), (Locality::Fair, 30_720), "α = 1/3");
        assert_eq!(update(&mut hot, 119), (Locality::Good, 27_648), "α just under 1/5");
    }

    #[test]
    fn repeated_updates_end_at_the_bounds() {
        let mut hot = HotSet::default();
        for _ in 0..100 {
            update(&mut hot, 600);
        }
        assert_eq!(hot.pages(), 262_144);
        for _ in 0..100 {
            update(&mut hot, 1);
        }
        assert_eq!(hot.pages(), 256);
    }

    #[test]
    fn an_empty_working_set_has_fair_locality() {
        assert_eq!(Locality::of(Bytes::MAX, Bytes::ZERO), Locality::Fair);
    }

    proptest! {
        #[test]
        fn any_input_keeps_the_size_within_bounds(
            updates in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20),
        ) {
            let mut hot = HotSet::default();
            for (wss, half, allocation) in updates {
                let (wss, half_miss) = (Bytes::new(wss), Bytes::new(half));
                let allocation = Bytes::new(allocation);
                hot.update(HotSetInput { wss, half_miss, allocation });
                let upper = (allocation.to_pages() / 4).max(256);
                prop_assert!((256..=upper).contains(&hot.pages()));
            }
        }

        #[test]
        fn a_larger_half_miss_never_gives_a_smaller_hot_set(
            wss: u64,
            halves in any::<(u64, u64)>(),
            size in 256u64..1 << 40,
        ) {
            let of = |half: u64| {
                let mut hot = HotSet { pages: size };
                hot.update(HotSetInput {
                    wss: Bytes::new(wss),
                    half_miss: Bytes::new(half),
                    allocation: Bytes::MAX,
                });
                hot.pages()
            };
            let (less, more) = (halves.0.min(halves.1), halves.0.max(halves.1));
            prop_assert!(of(less) <= of(more));
        }
    }
}
