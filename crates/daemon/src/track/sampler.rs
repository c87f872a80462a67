//! One guest by statistical sampling, period after period.
//!
//! Idea: some pages, other ones in every period, are picked at random and revoked; the part of them that is
//! touched is the part of the guest's memory that is in use. No order is kept, so there is no curve. What ESX
//! does, and what MEB is compared with.
//!
//! Cost: as many traps a period as pages at most; O(pages of the guest) a period to pick them, some
//! milliseconds for a GiB. Source: Waldspurger 2002 §5.3; MEB §5.2.1.
//! Limits: those of `ballast_estimate::statistical`: with 100 pages a standard error of up to 5 % of memory.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ballast_estimate::statistical::{Period, SamplingSettings};
use ballast_model::{Bytes, PAGE_SIZE};
use ballast_track_wire::{Granule, HashKind, Mode, RegionSpec, Sample};
use ballast_tracker::{Trackable, TrackerError, Tracking, Watching};

use super::follow::{attach, pass};
use super::row::{Row, Seen};

/// A guest that is sampled. Dropped, it is as if it had never been.
pub(crate) struct Sampler {
    tracking: Tracking,
    settings: SamplingSettings,
    seed: u64,
    periods: u64,
    began: Instant,
    known: Option<Bytes>,
}

impl Sampler {
    /// Begins to sample `guest`; `seed` picks the pages.
    ///
    /// # Errors
    /// Its tracker refuses, or is not there.
    pub(crate) fn begin(
        guest: &Trackable,
        settings: SamplingSettings,
        seed: u64,
    ) -> Result<Sampler, TrackerError> {
        let tracking = attach(guest, None)?;
        Ok(Sampler { tracking, settings, seed, periods: 0, began: Instant::now(), known: None })
    }

    /// Its memory, and how it is numbered.
    pub(super) fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// From now on periods are so long.
    pub(crate) fn set_length(&mut self, length: Duration) {
        self.settings.period = length;
    }

    /// Samples it for a period; `go_on` is asked ten times a second whether to end it early. With the row
    /// come the pages touched, in order.
    ///
    /// # Errors
    /// The tracker is gone, or has given up.
    pub(crate) fn interval(
        &mut self,
        go_on: impl FnMut() -> bool,
    ) -> Result<(Row, Vec<u64>), TrackerError> {
        let began = Instant::now();
        self.periods += 1;
        let regions = self.tracking.regions();
        let memory: Bytes = regions.iter().map(|region| Bytes::new(region.len)).sum();
        let all = memory.to_pages();
        // Another seed is another sample; it looks like draws.
        let hash = HashKind::Mix { seed: self.seed.wrapping_add(self.periods) };
        let samples = self.settings.samples.min(SamplingSettings::SAMPLES_MAX);
        let pages = regions.iter().flat_map(pages);
        let sample = Sample::exactly(hash, samples as usize, pages);
        let mode = Mode { granule: Granule::PAGE, sample };
        self.tracking.begin_interval(Some(Watching { mode, hot_granules: 0 }))?;
        // What was plugged in since may not be shared.
        self.tracking.check(0)?;
        pass(&mut self.tracking, began, self.settings.period, go_on)?;
        let observed = self.tracking.end_interval()?;
        let length = began.elapsed();
        let mut row = Row {
            at: self.began.elapsed(),
            length,
            tracked: memory,
            known: self.known,
            moved: None,
            events: None,
            step: None,
            up_ratio: 1.0,
            cost: observed.as_ref().map_or(Duration::ZERO, |observed| observed.cost),
            seen: None,
        };
        let Some(observed) = observed else { return Ok((row, Vec::new())) };
        let touched: BTreeSet<u64> = observed.touches.iter().copied().collect();
        let picked = u32::try_from(all).map_or(samples, |all| all.min(samples));
        let touched = u32::try_from(touched.len()).unwrap_or(u32::MAX).min(picked);
        let estimate = Period { picked, touched, allocation: memory }.estimate();
        self.known = estimate.map(|estimate| estimate.wss).or(self.known);
        row.known = self.known;
        row.seen = estimate.map(|estimate| Seen {
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
}

fn pages(region: &RegionSpec) -> std::ops::Range<u64> {
    region.first_page..region.first_page + region.len / PAGE_SIZE
}
