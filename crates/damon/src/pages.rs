//! Chooses the pages of a guest that are sampled.
//!
//! Idea: a page is identified by its number within the guest's memory. That memory is divided into
//! as many equal parts as pages are wanted, and a hash picks one page of each part. So the samples
//! are spread evenly: of a run of memory they are its part of all samples, within two.
//! Cost: O(samples + regions), whatever the size of the memory: a hypervisor may map any amount of
//! address space without using it.
//! Source: Waldspurger 2015 (SHARDS) for pages that are always or never sampled; Cochran 1977 §5
//! for one sample in each part.
//! Limits: if the guest's memory changes its size, the sample changes, too.

use std::ops::Range;

use ballast_model::PAGE_SIZE;
use ballast_tracker_proto::HashKind;

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
    let count = all.min(count as u64);
    let hash = HashKind::Mix { seed };
    let mut chosen = ChosenPages { all, ..ChosenPages::default() };
    // The place of the last page's region, and the number of that region's first page.
    let (mut region_index, mut first) = (0, 0_u64);
    for part in 0..count {
        let (begin, end) = (begin_of(part, count, all), begin_of(part + 1, count, all));
        let number = begin + below(hash.of(part), end - begin);
        while let Some(region) = regions.get(region_index)
            && number - first >= pages(region)
        {
            first += pages(region);
            region_index += 1;
        }
        let Some(region) = regions.get(region_index) else { break };
        chosen.addresses.push(region.start + (number - first) * PAGE_SIZE);
        chosen.numbers.push(number);
    }
    chosen
}

/// The first page of part number `part` of `count` equal parts of `all` pages. No part is empty,
/// because there are at most as many as pages.
fn begin_of(part: u64, count: u64, all: u64) -> u64 {
    (u128::from(part) * u128::from(all) / u128::from(count)) as u64
}

/// A number less than `end`, which is above 0, by a `hash`: each is as likely as the others.
fn below(hash: u64, end: u64) -> u64 {
    ((u128::from(hash) * u128::from(end)) >> 64) as u64
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
                assert!((seen - expected).abs() <= 2.0, "{mib} MiB at {first}: {seen}");
            }
        }
    }

    /// A walk over all of these pages would not end while anybody waits.
    #[test]
    fn the_size_of_mapped_memory_costs_nothing() {
        let huge = 0x2000_0000..1_u64 << 62;
        let chosen = choose_pages(&[REGIONS[0].clone(), huge.clone()], 1024, 1);
        assert_eq!(chosen.addresses.len(), 1024);
        let inside = |address: &&u64| huge.contains(*address);
        assert_eq!(chosen.addresses[1..].iter().filter(inside).count(), 1023);
    }

    proptest! {
        #[test]
        fn each_equal_part_of_memory_has_one_sample(
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
            let all: Vec<u64> =
                regions.iter().flat_map(|it| it.clone().step_by(PAGE_SIZE as usize)).collect();
            let count = count.min(all.len());
            prop_assert_eq!((chosen.numbers.len(), chosen.all), (count, all.len() as u64));
            let at: Vec<u64> = chosen.numbers.iter().map(|&number| all[number as usize]).collect();
            prop_assert_eq!(&chosen.addresses, &at);
            for (part, &number) in chosen.numbers.iter().enumerate() {
                let part = part * all.len() / count..(part + 1) * all.len() / count;
                prop_assert!(part.contains(&(number as usize)), "{} in {:?}", number, part);
            }
            prop_assert!(chosen.share() <= 1.0);
        }
    }
}
