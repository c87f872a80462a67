//! The watched granules of a region, as ranges to revoke at the start of an interval.
//!
//! The list is made once per region and mode. Ranges are revoked in batches of about a millisecond,
//! because the hypervisor waits for the current batch before it unmaps memory.
//!
//! Cost: a hash per granule of the region to make the list; 16 bytes per range.
//! Limits: [`RANGES_LISTED_MAX`] ranges per region.

use ballast_tracker_proto::{PAGE_SIZE, RefusalReason, WatchMode};

use crate::kernel::{Extent, RANGES_MAX};
use crate::slots::TrackedMemory;

/// Most ranges per region: 16 MiB.
const RANGES_LISTED_MAX: usize = 1 << 20;
/// Longest range, and most memory per batch.
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// The watched ranges of one region.
#[derive(Debug, Default)]
pub(crate) struct WatchedRanges {
    ranges: Vec<Extent>,
    /// Granules in the ranges.
    pub(crate) granules: u64,
}

impl WatchedRanges {
    /// Lists the watched ranges of a region.
    ///
    /// # Errors
    /// [`RefusalReason::TooManyGranules`].
    pub(crate) fn list(
        tracked: TrackedMemory,
        mode: WatchMode,
    ) -> Result<WatchedRanges, RefusalReason> {
        let TrackedMemory { extent, first_page } = tracked;
        let granules = mode.granule.count(extent.len / PAGE_SIZE);
        let mut watched = WatchedRanges::default();
        if mode.sample.is_all() {
            let starts = (extent.start..extent.end()).step_by(BATCH_BYTES_MAX as usize);
            let range = |start| Extent::new(start, BATCH_BYTES_MAX.min(extent.end() - start));
            watched.ranges = starts.map(range).collect();
            watched.granules = granules;
            return Ok(watched);
        }
        let granule_bytes = mode.granule.pages() * PAGE_SIZE;
        let first = mode.granule.of(first_page);
        for number in (0..granules).filter(|number| mode.sample.has(first + number)) {
            let start = extent.start + number * granule_bytes;
            let len = granule_bytes.min(extent.end() - start);
            watched.granules += 1;
            if let Some(last) = watched.ranges.last_mut()
                && last.end() == start
                && last.len + len <= BATCH_BYTES_MAX
            {
                last.len += len;
            } else if watched.ranges.len() < RANGES_LISTED_MAX {
                watched.ranges.push(Extent::new(start, len));
            } else {
                return Err(RefusalReason::TooManyGranules);
            }
        }
        Ok(watched)
    }

    /// The ranges, in batches.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &[Extent]> {
        let mut rest = self.ranges.as_slice();
        std::iter::from_fn(move || {
            let mut bytes = 0;
            let fits = |range: &&Extent| {
                bytes += range.len;
                bytes <= BATCH_BYTES_MAX
            };
            let count = rest.iter().take(RANGES_MAX).take_while(fits).count();
            let (batch, after) = rest.split_at(count);
            rest = after;
            (!batch.is_empty()).then_some(batch)
        })
    }
}

#[cfg(test)]
mod tests {
    use ballast_tracker_proto::{Granule, GranuleSample, HashKind};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn mode(pages: u32, rate: f64) -> WatchMode {
        let sample = GranuleSample::rate(HashKind::multiply_add(3), rate);
        WatchMode { granule: Granule::new(pages).unwrap(), sample }
    }

    fn tracked(len: u64) -> TrackedMemory {
        TrackedMemory { extent: Extent::new(1 << 40, len), first_page: 1 << 20 }
    }

    #[test]
    fn a_fully_watched_region_is_a_few_ranges() {
        let watched = WatchedRanges::list(tracked(130 * MIB + 4096), mode(32, 1.0)).unwrap();
        assert_eq!(watched.granules, 130 * 8 + 1);
        let batches: Vec<_> = watched.batches().collect();
        let lens: Vec<u64> = batches.iter().map(|batch| batch[0].len).collect();
        assert_eq!(lens, [64 * MIB, 64 * MIB, 2 * MIB + 4096]);
    }

    #[test]
    fn ranges_contain_exactly_the_sampled_granules() {
        for pages in [1, 8, 32] {
            let (tracked, mode) = (tracked(40 * MIB + 4096), mode(pages, 0.25));
            let watched = WatchedRanges::list(tracked, mode).unwrap();
            let has = |address| watched.ranges.iter().any(|range| range.has(address));
            let mut granules = std::collections::BTreeSet::new();
            for page in 0..tracked.extent.len / PAGE_SIZE {
                let granule = mode.granule.of(tracked.first_page + page);
                let address = tracked.extent.start + page * PAGE_SIZE;
                assert_eq!(has(address), mode.sample.has(granule), "page {page} of {pages}");
                if has(address) {
                    granules.insert(granule);
                }
            }
            assert_eq!(watched.granules, granules.len() as u64);
            let batches: Vec<_> = watched.batches().collect();
            assert_eq!(batches.concat(), watched.ranges);
            for batch in batches {
                let bytes: u64 = batch.iter().map(|range| range.len).sum();
                assert!(batch.len() <= RANGES_MAX && bytes <= BATCH_BYTES_MAX);
            }
        }
    }

    #[test]
    fn too_many_ranges_are_refused() {
        // Eight million pages at a rate of one half: a quarter of them begins a run.
        let sample = GranuleSample::rate(HashKind::Mix { seed: 1 }, 0.5);
        let mode = WatchMode { granule: Granule::PAGE, sample };
        let refused = WatchedRanges::list(tracked(32 << 30), mode);
        assert_eq!(refused.err(), Some(RefusalReason::TooManyGranules));
    }
}
