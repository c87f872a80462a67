//! Chooses the pages of a guest that are sampled.
//!
//! Idea: a page is identified by its number within the guest's memory; the pages whose numbers have
//! the smallest hashes are sampled, as many as wanted ([`GranuleSample`], as in the tracker). The
//! multiply-add hash spreads them evenly, so that the sampled share of a run of memory is close to
//! that of all memory.
//! Cost: one multiplication per page of the guest, and O(log samples) for some pages.
//! Source: Waldspurger 2015 (SHARDS).
//! Limits: if the guest's memory changes its size, the sample changes, too.

use std::ops::Range;

use ballast_model::PAGE_SIZE;
use ballast_tracker_proto::{GranuleSample, HashKind};

/// The sampled pages of a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChosenPages {
    /// Their addresses in the hypervisor's process, ascending.
    pub addresses: Vec<u64>,
    /// Their numbers within the guest's memory, in the same order.
    pub numbers: Vec<u64>,
    /// Number of all pages of the guest.
    pub all: u64,
}

impl ChosenPages {
    /// The share of pages sampled, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.addresses.len() as f64 / self.all as f64 }
    }
}

/// Chooses `count` pages of `regions`, or all if there are fewer. Regions are address ranges of
/// whole pages, ascending; `seed` determines the sample.
pub fn choose_pages(regions: &[Range<u64>], count: usize, seed: u64) -> ChosenPages {
    let pages = |region: &Range<u64>| region.end.saturating_sub(region.start) / PAGE_SIZE;
    let all: u64 = regions.iter().map(pages).sum();
    let sample = GranuleSample::exactly(HashKind::multiply_add(seed), count, 0..all);
    let mut chosen = ChosenPages { all, ..ChosenPages::default() };
    if count == 0 {
        return chosen;
    }
    let mut first = 0;
    for region in regions {
        for number in (first..first + pages(region)).filter(|&number| sample.has(number)) {
            chosen.addresses.push(region.start + (number - first) * PAGE_SIZE);
            chosen.numbers.push(number);
        }
        first += pages(region);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REGIONS: [Range<u64>; 2] = [0x1000_0000..0x1800_0000, 0x7000_0000..0x7800_0000];

    #[test]
    fn no_memory_or_no_samples_choose_nothing() {
        assert!(choose_pages(&[], 5, 1).addresses.is_empty());
        assert!(choose_pages(&REGIONS, 0, 1).addresses.is_empty());
        assert_eq!(choose_pages(&[], 5, 1).share(), 0.0);
    }

    /// A run of memory has its share of the samples, within a few.
    #[test]
    fn a_run_of_memory_has_its_part_of_the_sample() {
        let chosen = choose_pages(&REGIONS, 1024, 1);
        assert_eq!((chosen.addresses.len(), chosen.all), (1024, 65_536));
        for mib in [24_u64, 48, 72] {
            let run = mib * 256;
            for first in (0..65_536 - run).step_by(1000) {
                let within = |number: &&u64| (first..first + run).contains(*number);
                let seen = chosen.numbers.iter().filter(within).count() as f64;
                let expected = run as f64 / 64.0;
                assert!((seen - expected).abs() <= 6.0, "{mib} MiB at {first}: {seen}");
            }
        }
    }

    /// The naive way: hash every page, sort, take the first.
    fn naive(regions: &[Range<u64>], count: usize, seed: u64) -> Vec<u64> {
        let addresses: Vec<u64> =
            regions.iter().flat_map(|it| it.clone().step_by(PAGE_SIZE as usize)).collect();
        let hash = HashKind::multiply_add(seed);
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_by_key(|&number| hash.of(number as u64));
        let mut chosen: Vec<u64> = order.iter().take(count).map(|&at| addresses[at]).collect();
        chosen.sort_unstable();
        chosen
    }

    proptest! {
        #[test]
        fn the_choice_equals_that_of_sorted_hashes(
            sizes in prop::collection::vec((1..300_u64, 1..20_u64), 0..4),
            count in 0..400_usize,
            seed: u64,
        ) {
            let mut at = 0;
            let regions: Vec<Range<u64>> = sizes
                .iter()
                .map(|(pages, gap)| {
                    let start = at + gap * PAGE_SIZE;
                    at = start + pages * PAGE_SIZE;
                    start..at
                })
                .collect();
            let chosen = choose_pages(&regions, count, seed);
            prop_assert_eq!(&chosen.addresses, &naive(&regions, count, seed));
            prop_assert_eq!(chosen.numbers.len(), chosen.addresses.len());
            prop_assert!(chosen.numbers.is_sorted() && chosen.share() <= 1.0);
        }
    }
}
