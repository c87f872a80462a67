//! Follows one guest by DAMON, window by window.
//!
//! Idea: the touched pages of a sample go through the same analysis as the tracker's, so that a
//! working set means the same. DAMON reports which pages were touched in a window, but not in which
//! order. They are taken in a random order, fixed by a hash, as if a page were as likely to be
//! touched early in the window as late. Distances between windows are exact, and the working set
//! needs only these. Distances within a window are those of random accesses: in a loop over 76 MiB
//! every touch has that distance, but half of the touches seem to miss only below 61 to 64 MiB.
//!
//! In a huge page one touch sets the accessed bit of 2 MiB. If more than [`HUGE_MAX`] of a guest's
//! memory is in huge pages, its working set is an upper bound, marked as such, and has no curve.
//!
//! Cost: that of the analysis; every [`CHECK_WINDOWS`] windows a read of `maps` and `smaps`, some
//! 10 ms for a guest of some hundred MiB.
//! Limits: a page that is touched less than once a window looks as old as its last touched window.
//! Memory that is plugged in is sampled from the next check on, and the analysis starts anew.
//! Guest memory is recognized by size alone, so large buffers of the hypervisor count as guest
//! memory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_damon::{ChosenPages, DamonTarget, HugeShare, choose_pages};
use ballast_host::PROC;
use ballast_model::{Bytes, TrackingSource};
use ballast_reclaim::{GuestMemory, GuestRam, ReclaimError};
use ballast_tracker_proto::HashKind;
use ballast_working_set::{Analysis, AnalysisSettings, IntervalTouches, Sampling};

use super::damon_hub::{DamonHub, Membership, SAMPLES};
use super::row::{Row, WatchedInterval};
use super::source::{SourceError, WorkingSetSource};
use crate::pager::RAM_MIN;

/// Share of a guest's memory in huge pages above which its working set is an upper bound. Below it,
/// the working set is too large by at most that share of the guest's memory.
pub(super) const HUGE_MAX: f64 = 0.05;
/// Smallest piece of guest memory that is sampled. Smaller adjacent pieces are the hypervisor's
/// own, and come and go.
const PIECE_MIN: Bytes = Bytes::mib(16);
/// Pages of a huge page.
pub(super) const HUGE_PAGES: u64 = 512;
/// Windows between two checks of the guest's mappings.
const CHECK_WINDOWS: u64 = 16;
/// How long windows may fail to come, in addition to the longest wait for one.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two checks whether to go on.
const WAIT: Duration = Duration::from_millis(100);
/// How long a guest that does not run stays a member: longer than a reset, a panic's pause or the
/// end of a migration takes. Leaving and joining cost every other guest a window.
const STANDSTILL_MAX: Duration = Duration::from_secs(30);

/// A guest that is sampled. Dropping it ends the sampling without a trace.
pub struct DamonFollower {
    hub: Arc<DamonHub>,
    memory: GuestMemory,
    seed: u64,
    regions: Vec<Range<u64>>,
    chosen: ChosenPages,
    membership: Membership,
    analysis: Analysis,
    huge: HugeShare,
    windows: u64,
    began: Instant,
    known: Option<Bytes>,
}

impl DamonFollower {
    /// Starts to sample the guest of process `pid`, with start time `start_ticks` if given; `seed`
    /// picks the pages.
    ///
    /// # Errors
    /// DAMON cannot be used, or already samples as many guests as it can; or the process is gone or
    /// has no guest memory.
    pub fn begin(
        hub: Arc<DamonHub>,
        pid: u32,
        start_ticks: Option<u64>,
        seed: u64,
    ) -> Result<DamonFollower, SourceError> {
        let membership = hub.join()?;
        let memory = open(pid, start_ticks)?;
        let regions = regions(&memory)?;
        let chosen = choose_pages(&regions, SAMPLES, seed);
        membership.sample(target(&memory, &chosen));
        Ok(DamonFollower {
            hub,
            huge: huge(&memory, &regions),
            memory,
            seed,
            regions,
            chosen,
            membership,
            analysis: Analysis::new(AnalysisSettings::default()),
            windows: 0,
            began: Instant::now(),
            known: None,
        })
    }

    /// Checks the guest's mappings, and samples it anew if its memory changed.
    fn check_mappings(&mut self) -> Result<(), SourceError> {
        let regions = regions(&self.memory)?;
        self.huge = huge(&self.memory, &regions);
        if regions != self.regions {
            self.chosen = choose_pages(&regions, SAMPLES, self.seed);
            self.membership.sample(target(&self.memory, &self.chosen));
            self.analysis = Analysis::new(AnalysisSettings::default());
            self.regions = regions;
        }
        Ok(())
    }

    fn row(&self, length: Duration, cost: Duration, seen: Option<WatchedInterval>) -> Row {
        let memory = Bytes::pages(self.chosen.all);
        Row::without_rest(self.began.elapsed(), length, memory, self.known, cost, seen)
    }

    fn watched_interval(&mut self, touches: &[u64], length: Duration) -> WatchedInterval {
        let share = self.chosen.share();
        let watched = Sampling { share, ..Sampling::ALL };
        let interval = IntervalTouches { watched, touches, lost: 0, length };
        let seen = self.analysis.end_interval(interval, |_| true);
        let is_coarse = self.huge.ratio() > HUGE_MAX;
        let (source, granule_pages) = match is_coarse {
            true => (TrackingSource::DamonHuge, HUGE_PAGES),
            false => (TrackingSource::Damon, 1),
        };
        WatchedInterval {
            source,
            working_set: seen.report.working_set,
            touched: seen.touched,
            half_miss: (!is_coarse).then_some(seen.half_miss),
            curve: seen.report.curve.filter(|_| !is_coarse),
            granule_pages,
            share,
            hot_granules: None,
            touches: touches.len() as u64,
            lost: seen.lost,
            trap: Duration::ZERO,
            revoked_in: Duration::ZERO,
        }
    }
}

impl WorkingSetSource for DamonFollower {
    fn interval(
        &mut self,
        _: Option<Bytes>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), SourceError> {
        if self.windows > 0 && self.windows.is_multiple_of(CHECK_WINDOWS) {
            self.check_mappings()?;
        }
        let (began, patience) = (Instant::now(), self.hub.longest_wait() + PATIENCE);
        let window = loop {
            if let Some(window) = self.membership.next(WAIT)? {
                break window;
            }
            if !go_on() {
                return Ok((self.row(began.elapsed(), Duration::ZERO, None), Vec::new()));
            }
            if began.elapsed() > patience {
                return Err(SourceError::Silent(patience));
            }
        };
        self.windows += 1;
        let pages = window.touched.iter().filter_map(|&at| self.chosen.numbers.get(at as usize));
        let touches = in_random_order(pages.copied().collect(), self.windows);
        let seen = self.watched_interval(&touches, window.length);
        self.known = Some(seen.working_set);
        Ok((self.row(window.length, window.cost, Some(seen)), touches))
    }

    /// All guests have windows of one length, so this does nothing.
    fn set_length(&mut self, _: Duration) {}

    fn longest_pause(&self) -> Duration {
        STANDSTILL_MAX
    }

    fn resume(&mut self) {
        self.membership.drop_windows();
        self.analysis = Analysis::new(AnalysisSettings::default());
    }
}

/// Pages in an order that is independent of their place and differs for each `window`.
fn in_random_order(mut pages: Vec<u64>, window: u64) -> Vec<u64> {
    let hash = HashKind::Mix { seed: window };
    pages.sort_unstable_by_key(|&page| hash.of(page));
    pages
}

fn target(memory: &GuestMemory, chosen: &ChosenPages) -> DamonTarget {
    DamonTarget { pid: memory.vmm().pid(), pages: chosen.addresses.clone() }
}

fn open(pid: u32, start_ticks: Option<u64>) -> Result<GuestMemory, ReclaimError> {
    GuestMemory::open(Path::new(PROC), pid, start_ticks, GuestRam::AtLeast(RAM_MIN))
}

/// The size of the memory of the guest of process `pid`, and how much of it is in huge pages.
///
/// # Errors
/// The process is gone or has no guest memory.
pub(super) fn memory_in_huge_pages(pid: u32) -> Result<(Bytes, HugeShare), SourceError> {
    let memory = open(pid, None)?;
    let regions = regions(&memory)?;
    let size = regions.iter().map(|region| Bytes::new(region.end - region.start)).sum();
    Ok((size, huge(&memory, &regions)))
}

fn regions(memory: &GuestMemory) -> Result<Vec<Range<u64>>, SourceError> {
    let regions = memory.regions()?;
    let large = regions.iter().filter(|region| region.range.len() >= PIECE_MIN);
    Ok(large.map(|region| region.range.start()..region.range.end()).collect())
}

/// The share of huge pages; zero if it cannot be read.
fn huge(memory: &GuestMemory, regions: &[Range<u64>]) -> HugeShare {
    let smaps = memory.vmm().read("smaps").unwrap_or_default();
    HugeShare::of(&String::from_utf8_lossy(&smaps), regions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both working sets of a guest that goes through `sizes` pages in turn, window by window: from
    /// all pages in the order of their touches, and from a sixteenth without order.
    fn working_sets(sizes: &[u64]) -> Vec<(f64, f64)> {
        let mut exact = Analysis::new(AnalysisSettings::default());
        let mut sampled = Analysis::new(AnalysisSettings::default());
        let region = 0..65_536 * ballast_model::PAGE_SIZE;
        let chosen = choose_pages(std::slice::from_ref(&region), 4096, 1);
        let share = chosen.share();
        let length = Duration::from_secs(1);
        let windows = (0..).zip(sizes);
        windows
            .map(|(window, &size)| {
                let all: Vec<u64> = (0..size).collect();
                let seen =
                    IntervalTouches { watched: Sampling::ALL, touches: &all, lost: 0, length };
                let exact = exact.end_interval(seen, |_| true).report.working_set;
                let pages = chosen.numbers.iter().copied().filter(|&page| page < size).collect();
                let touches = in_random_order(pages, window);
                let watched = Sampling { share, ..Sampling::ALL };
                let seen = IntervalTouches { watched, touches: &touches, lost: 0, length };
                let sampled = sampled.end_interval(seen, |_| true).report.working_set;
                (exact.to_pages() as f64, sampled.to_pages() as f64)
            })
            .collect()
    }

    #[test]
    fn a_sample_without_order_gives_the_same_working_set() {
        let sizes = [10_000, 10_000, 30_000, 30_000, 4_000, 4_000, 4_000, 20_000, 20_000];
        for (number, (exact, sampled)) in working_sets(&sizes).into_iter().enumerate() {
            assert!((sampled - exact).abs() <= exact / 20.0, "{number}: {exact} {sampled}");
        }
    }

    #[test]
    fn orders_are_permutations_and_differ_by_window() {
        let pages: Vec<u64> = (0..100).collect();
        let (first, second) =
            (in_random_order(pages.clone(), 0), in_random_order(pages.clone(), 1));
        assert!(first != second && first != pages);
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, pages);
    }
}
