//! Which pages of a guest are cold, for the host to page out first.
//!
//! Idea: coldest is what was not touched in all the last intervals in which it was watched, in any order; then what
//! was touched longest ago. What was touched last, as much of it as the working set, is hot. Of what was not watched
//! nothing is known.
//!
//! Cost: some 5 ns a page of the guest, 50 ns a granule ever touched.
//! Source: MEB §3.1 keeps the LRU order; using it to page out is ours.
//! Limits: of a sample only the pages of the sample are known; [`PARTS_MAX`] granules of either kind are told. While
//! tracking rests it is as old as the rest.

use std::collections::{HashSet, VecDeque};

use ballast_model::Bytes;
use ballast_reclaim::{Coldness, FilePart};
use ballast_track_wire::{Granule, Mode, PAGE_SIZE, RegionSpec, Sample};

/// Intervals in which a page has to have been watched in vain to be called cold: fewer see of a guest only what it does
/// all the time.
const LOOKS: usize = 4;
/// Most granules told of either kind: half a GiB of single pages.
const PARTS_MAX: usize = 1 << 17;

/// What was watched in the last intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Looks {
    granule: Granule,
    samples: VecDeque<Sample>,
    regions: Vec<RegionSpec>,
}

impl Looks {
    /// Takes in that an interval was watched so. Of other memory, or in other granules, all begins anew.
    pub(super) fn add(&mut self, mode: Mode, regions: &[RegionSpec]) {
        if self.granule != mode.granule || self.regions != regions {
            *self = Looks {
                granule: mode.granule,
                samples: VecDeque::new(),
                regions: regions.to_vec(),
            };
        }
        self.samples.push_front(mode.sample);
        self.samples.truncate(LOOKS);
    }

    /// What follows of a guest whose granules ever touched are `order`, latest first, and of which `working_set` is in
    /// use; `None` as long as it was watched for too short a time. `seed` orders what was never touched.
    pub(super) fn coldness(
        &self,
        order: &[u64],
        working_set: Bytes,
        seed: u64,
    ) -> Option<Coldness> {
        let latest = self.samples.front().filter(|_| self.samples.len() >= LOOKS)?;
        let hot = working_set.to_pages() as f64 * latest.share();
        let hot = (hot / self.granule.pages() as f64).ceil() as usize;
        let (hot, cold) = order.split_at(hot.min(order.len()));
        let touched: HashSet<u64> = order.iter().copied().collect();
        let was_watched = |granule: &u64| self.samples.iter().all(|sample| sample.has(*granule));
        let granules = self.regions.iter().flat_map(|it| self.granules(it));
        let mut untouched: Vec<u64> =
            granules.filter(was_watched).filter(|granule| !touched.contains(granule)).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut untouched);
        let coldest = untouched.into_iter().chain(cold.iter().rev().copied());
        Some(Coldness {
            cold: coldest.take(PARTS_MAX).filter_map(|granule| self.part(granule)).collect(),
            hot: hot.iter().take(PARTS_MAX).rev().filter_map(|it| self.part(*it)).collect(),
        })
    }

    fn granules(&self, region: &RegionSpec) -> std::ops::Range<u64> {
        let first = self.granule.of(region.first_page);
        first..first + self.granule.count(region.pages())
    }

    /// Where a granule is.
    fn part(&self, granule: u64) -> Option<FilePart> {
        let page = self.granule.first_page(granule);
        let has = |region: &&RegionSpec| {
            (region.first_page..region.first_page + region.pages()).contains(&page)
        };
        let region = self.regions.iter().find(has)?;
        let inside = (page - region.first_page) * PAGE_SIZE;
        let len = (self.granule.pages() * PAGE_SIZE).min(region.len - inside);
        Some(FilePart {
            device: region.device,
            inode: region.inode,
            offset: region.offset + inside,
            len: Bytes::new(len),
        })
    }
}

#[cfg(test)]
mod tests {
    use ballast_track_wire::{HashKind, RegionName};

    use super::*;

    /// 8 pages from number 0, then 4 from number 1,024.
    fn regions() -> Vec<RegionSpec> {
        let region = |id: u8, first_page, pages: u64| RegionSpec {
            id,
            device: (0, 1),
            inode: 40 + u64::from(id),
            offset: 0,
            len: pages * PAGE_SIZE,
            first_page,
            name: RegionName::new("memfd"),
        };
        vec![region(0, 0, 8), region(1, 1024, 4)]
    }

    const ALL: Mode = Mode { granule: Granule::PAGE, sample: Sample::ALL };

    fn looks(modes: &[Mode]) -> Looks {
        let mut looks = Looks::default();
        modes.iter().for_each(|mode| looks.add(*mode, &regions()));
        looks
    }

    /// File and page in it of each part.
    fn pages(parts: &[FilePart]) -> Vec<(u64, u64)> {
        parts.iter().map(|part| (part.inode, part.offset / PAGE_SIZE)).collect()
    }

    #[test]
    fn what_was_never_touched_goes_first_then_what_was_touched_longest_ago() {
        let order = [2, 1025, 5, 0];
        let told = looks(&[ALL; LOOKS]).coldness(&order, Bytes::pages(2), 7).unwrap();
        let cold = pages(&told.cold);
        let mut untouched = cold[..8].to_vec();
        untouched.sort_unstable();
        let expected = [(40, 1), (40, 3), (40, 4), (40, 6), (40, 7), (41, 0), (41, 2), (41, 3)];
        assert_eq!(untouched, expected);
        assert_ne!(cold[..8], expected, "not by address");
        assert_eq!(cold[8..], [(40, 0), (40, 5)]);
        assert_eq!(pages(&told.hot), [(41, 1), (40, 2)], "the latest last");
        assert!(told.cold.iter().all(|part| part.len == Bytes::pages(1)));
    }

    #[test]
    fn only_what_was_watched_all_the_time_is_called_untouched() {
        let hash = HashKind::Mix { seed: 3 };
        let half = Mode { sample: Sample::rate(hash, 0.5), ..ALL };
        let whole = Mode { sample: Sample { hash, limit: u64::MAX }, ..ALL };
        let told = looks(&[half, half, whole, whole]).coldness(&[], Bytes::ZERO, 1).unwrap();
        let numbers = (0..8).chain(1024..1028);
        let watched = numbers.filter(|page| half.sample.has(*page)).count();
        assert_eq!((told.cold.len(), told.hot.len()), (watched, 0));
        assert!((1..12).contains(&watched), "{watched} tell nothing");
    }

    #[test]
    fn few_intervals_or_other_memory_tell_nothing() {
        assert_eq!(looks(&[ALL; LOOKS - 1]).coldness(&[1], Bytes::ZERO, 1), None);
        let mut looks = looks(&[ALL; LOOKS]);
        looks.add(ALL, &regions()[..1]);
        assert_eq!(looks.coldness(&[1], Bytes::ZERO, 1), None);
    }

    #[test]
    fn granules_are_cut_off_where_their_memory_ends() {
        let mode = Mode { granule: Granule::new(8).unwrap(), ..ALL };
        let told = looks(&[mode; LOOKS]).coldness(&[0], Bytes::pages(8), 1).unwrap();
        assert_eq!(pages(&told.cold), [(41, 0)]);
        assert_eq!(told.cold[0].len, Bytes::pages(4));
        assert_eq!((pages(&told.hot), told.hot[0].len), (vec![(40, 0)], Bytes::pages(8)));
    }
}
