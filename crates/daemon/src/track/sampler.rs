//! Tracks one guest by statistical sampling, as ESX does; MEB is compared with it.
//!
//! Idea: each period revokes a new random set of pages. The share of them that is touched estimates
//! the share of the guest's memory in use. No order is kept, so there is no curve.
//!
//! Cost: per period at most one trap per picked page, and O(pages of the guest) to pick them, some
//! milliseconds per GiB.
//! Source: Waldspurger 2002 §5.3; MEB §5.2.1.
//! Limits: those of `ballast_estimate::statistical`: with 100 pages, a standard error of up to 5 %
//! of memory.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ballast_estimate::statistical::{SamplingPeriod, SamplingSettings};
use ballast_model::{Bytes, PAGE_SIZE, TrackingSource};
use ballast_tracker::{TrackableGuest, TrackerError, TrackingSession, WatchSettings};
use ballast_tracker_proto::{Granule, GranuleSample, HashKind, RegionSpec, WatchMode};

use super::follow::{attach, wait_out};
use super::row::{Row, WatchedInterval};
use super::source::{SourceError, WorkingSetSource};

/// A guest that is sampled. Dropping it ends the sampling without a trace.
pub struct Sampler {
    tracking: TrackingSession,
    settings: SamplingSettings,
    seed: u64,
    periods: u64,
    began: Instant,
    known: Option<Bytes>,
}

impl Sampler {
    /// Starts to sample `guest`; `seed` picks the pages.
    ///
    /// # Errors
    /// The tracker refuses or is missing.
    pub fn begin(
        guest: &TrackableGuest,
        settings: SamplingSettings,
        seed: u64,
    ) -> Result<Sampler, TrackerError> {
        let tracking = attach(guest, None)?;
        Ok(Sampler { tracking, settings, seed, periods: 0, began: Instant::now(), known: None })
    }
}

impl WorkingSetSource for Sampler {
    fn interval(
        &mut self,
        _: Option<Bytes>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), SourceError> {
        let began = Instant::now();
        self.periods += 1;
        let regions = self.tracking.regions();
        let memory: Bytes = regions.iter().map(|region| Bytes::new(region.len)).sum();
        let all = memory.to_pages();
        // Another seed in each period gives another random sample.
        let hash = HashKind::Mix { seed: self.seed.wrapping_add(self.periods) };
        let samples = self.settings.samples.min(SamplingSettings::SAMPLES_MAX);
        let pages = regions.iter().flat_map(pages);
        let sample = GranuleSample::exactly(hash, samples as usize, pages);
        let mode = WatchMode { granule: Granule::PAGE, sample };
        self.tracking.begin_interval(Some(WatchSettings { mode, hot_granules: 0 }))?;
        // Memory plugged in since may not be shared.
        self.tracking.check(0)?;
        wait_out(&mut self.tracking, began, self.settings.period, go_on)?;
        let observed = self.tracking.end_interval()?;
        let length = began.elapsed();
        let cost = observed.as_ref().map_or(Duration::ZERO, |observed| observed.cost);
        let mut row =
            Row::without_rest(self.began.elapsed(), length, memory, self.known, cost, None);
        let Some(observed) = observed else { return Ok((row, Vec::new())) };
        let touched: HashSet<u64> = observed.touches.iter().copied().collect();
        let picked = u32::try_from(all).map_or(samples, |all| all.min(samples));
        let touched = u32::try_from(touched.len()).unwrap_or(u32::MAX).min(picked);
        let estimate = SamplingPeriod { picked, touched, allocation: memory }.estimate();
        self.known = estimate.map(|estimate| estimate.wss).or(self.known);
        row.known = self.known;
        row.seen = estimate.map(|estimate| WatchedInterval {
            source: TrackingSource::Library,
            working_set: estimate.wss,
            touched: estimate.wss,
            half_miss: None,
            curve: None,
            granule_pages: 1,
            share: (f64::from(picked) / all as f64).min(1.0),
            hot_granules: None,
            touches: observed.touches.len() as u64,
            lost: observed.lost,
            trap: observed.trap,
            revoked_in: observed.revoked_in,
        });
        Ok((row, observed.touches))
    }

    fn set_length(&mut self, length: Duration) {
        self.settings.period = length;
    }

    fn private_memory(&self) -> Bytes {
        Bytes::new(self.tracking.private_memory())
    }
}

fn pages(region: &RegionSpec) -> std::ops::Range<u64> {
    region.first_page..region.first_page + region.len / PAGE_SIZE
}
