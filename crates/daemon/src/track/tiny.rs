//! The tiny sample that stays watched while tracking rests.
//!
//! Idea: a few hundred of the pages that are otherwise watched trap once per interval while the
//! guest uses them. Their number, scaled to all pages, detects a new phase. It costs a fraction of
//! the full sample, changes as soon as the guest uses more or less memory, and is the same figure
//! whether tracking is on or rests. In an interval in which it jumps (see `estimate`), the working
//! set is scaled in proportion until the next watched interval measures it.
//!
//! Its size depends on the cost of a touch: if the touches of an interval would cost more than is
//! allowed at rest, half or a quarter of the pages stay watched. It does not grow again, because
//! another sample's count differs by chance, which looks like a new phase.
//!
//! Cost: at most one trap per sampled page and interval. The fewest pages are watched whatever
//! they cost: with traps of 50 µs, 1.6 to 3.2 ms an interval.
//! Source: ours; `docs/working-sets.md` compares it with other signals.
//! Limits: it does not notice a guest that touches other pages at the same rate; checkpoints of
//! intermittent tracking do. With less than some tens of touched pages, chance decides.

use std::collections::HashSet;
use std::time::Duration;

use ballast_model::Bytes;
use ballast_tracker_proto::{GranuleSample, HashKind, WatchMode};

/// Granules watched during rest (up to twice as many) if touches are cheap.
pub(super) const GRANULES: u64 = 128;
/// Most times that the sample is halved: 32 granules found most of the phases that 128 found
/// (`docs/benchmarks/2026-11-22-tracking.md`); fewer were not tried.
const HALVINGS_MAX: u32 = 2;

/// A small, stable sample of a guest's granules.
#[derive(Clone, Debug)]
pub(super) struct TinySample {
    wanted: u64,
    /// The sampled share is 2^-shift. It is kept while it fits, because another share is another
    /// sample.
    shift: Option<u32>,
    /// Further halvings because touches are expensive; at most [`HALVINGS_MAX`].
    halvings: u32,
    /// Events of the last interval with a known working set.
    known: Option<u64>,
}

/// A change of the memory a guest touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingSetShift {
    /// Touched granules when the working set was last known; not 0.
    pub before: u64,
    /// Touched granules now; not 0.
    pub now: u64,
}

impl WorkingSetShift {
    /// `memory` scaled by the change.
    pub fn applied_to(self, memory: Bytes) -> Bytes {
        memory.fraction(self.now, self.before)
    }
}

impl TinySample {
    /// A sample of about `wanted` granules.
    pub(super) fn new(wanted: u64) -> TinySample {
        TinySample { wanted: wanted.max(1), shift: None, halvings: 0, known: None }
    }

    /// Halves later samples until their touches cost at most `allowed` per interval. `events`:
    /// those of an interval in all memory; `touch`: what one sampled touch costs.
    pub(super) fn fit(&mut self, events: u64, touch: Duration, allowed: Duration) {
        let Some(shift) = self.shift else { return };
        let cost = |halvings| events as f64 * share(shift + halvings) * touch.as_secs_f64();
        let allowed = allowed.as_secs_f64();
        let before = self.halvings;
        while self.halvings < HALVINGS_MAX && cost(self.halvings) > allowed {
            self.halvings += 1;
        }
        if self.halvings != before {
            // Events of another sample differ by chance.
            self.known = None;
        }
    }

    /// Sets the events of an interval with a known working set.
    pub(super) fn set_known(&mut self, events: Option<u64>) {
        self.known = events;
    }

    /// The shift in a resting interval whose events jumped. `None` if unknown: a guest that touched
    /// nothing may just not have run.
    pub(super) fn moved(&mut self, events: Option<u64>) -> Option<WorkingSetShift> {
        let now = events.filter(|&events| events > 0)?;
        let before = self.known.replace(now).filter(|&events| events > 0)?;
        Some(WorkingSetShift { before, now })
    }

    /// The sample by `hash` of a guest with this many `granules`; part of the full sample `larger`.
    pub(super) fn sample(
        &mut self,
        hash: HashKind,
        granules: u64,
        larger: GranuleSample,
    ) -> GranuleSample {
        let fits = |shift: u32| {
            let watched = granules.checked_shr(shift).unwrap_or(0);
            (self.wanted / 2..self.wanted.saturating_mul(4)).contains(&watched)
        };
        let best = (granules / self.wanted).max(1).ilog2();
        let shift = self.shift.filter(|&shift| fits(shift)).unwrap_or(best);
        self.shift = Some(shift);
        let sample = GranuleSample::rate(hash, share(shift + self.halvings));
        // `ALL` has another hash, but any sample is part of it.
        if larger.is_all() || sample.limit <= larger.limit { sample } else { larger }
    }
}

/// 2^-shift.
fn share(shift: u32) -> f64 {
    0.5_f64.powi(i32::try_from(shift).unwrap_or(i32::MAX))
}

/// Touched granules in all guest memory, estimated from those in `sample`. `touches` may include
/// other granules and repeats.
pub(super) fn events(touches: &[u64], mode: WatchMode, sample: GranuleSample) -> u64 {
    let granules = touches.iter().map(|&page| mode.granule.of(page));
    let touched: HashSet<u64> = granules.filter(|&granule| sample.has(granule)).collect();
    // The cast saturates at both ends.
    (touched.len() as f64 / sample.share()).round() as u64
}

#[cfg(test)]
mod tests {
    use ballast_tracker_proto::Granule;

    use super::*;

    const HASH: HashKind = HashKind::multiply_add(1);

    /// 640 MiB are 163,840 pages; 1 in 1,024 are 160. Half as many, or three times as many, keep
    /// the share; a quarter does not.
    #[test]
    fn the_share_changes_only_when_it_no_longer_fits() {
        let mut tiny = TinySample::new(128);
        let mut share = |granules| tiny.sample(HASH, granules, GranuleSample::ALL).share();
        assert_eq!(share(163_840), 1.0 / 1024.0);
        assert_eq!([share(81_920), share(500_000)], [1.0 / 1024.0; 2]);
        assert_eq!(share(40_960), 1.0 / 256.0);
        assert_eq!([share(100), share(0)], [1.0, 1.0]);
    }

    /// Of 160,000 touched granules a sample of 1 in 1,024 sees 156. At 50 µs each they cost 7.8 ms;
    /// 3 ms permit a quarter of them, 5 ms a half, 12 ms all.
    #[test]
    fn dear_touches_make_the_sample_smaller() {
        let mut tiny = TinySample::new(128);
        let mut share_at = |touch_us, allowed_ms| {
            tiny.sample(HASH, 163_840, GranuleSample::ALL);
            let touch = Duration::from_micros(touch_us);
            tiny.fit(160_000, touch, Duration::from_millis(allowed_ms));
            (1.0 / tiny.sample(HASH, 163_840, GranuleSample::ALL).share()).round()
        };
        assert_eq!(share_at(50, 12), 1024.0);
        assert_eq!(share_at(50, 5), 2048.0);
        assert_eq!(share_at(50, 3), 4096.0);
        assert_eq!(share_at(500, 3), 4096.0, "no fewer than 32");
        assert_eq!(share_at(5, 12), 4096.0, "it does not grow");
    }

    #[test]
    fn a_sample_of_another_size_has_no_known_events() {
        let mut tiny = TinySample::new(128);
        tiny.sample(HASH, 163_840, GranuleSample::ALL);
        tiny.set_known(Some(1000));
        tiny.fit(160_000, Duration::from_micros(500), Duration::from_millis(1));
        assert_eq!(tiny.moved(Some(2000)), None);
    }

    #[test]
    fn a_shift_compares_with_the_last_known_events() {
        let mut tiny = TinySample::new(128);
        assert_eq!(tiny.moved(Some(5)), None, "nothing is known yet");
        tiny.set_known(Some(1000));
        assert_eq!(tiny.moved(Some(0)), None, "the guest may not have run");
        assert_eq!(tiny.moved(None), None);
        assert_eq!(tiny.moved(Some(1400)), Some(WorkingSetShift { before: 1000, now: 1400 }));
        assert_eq!(tiny.moved(Some(700)), Some(WorkingSetShift { before: 1400, now: 700 }));
        tiny.set_known(None);
        assert_eq!(tiny.moved(Some(700)), None);
    }

    #[test]
    fn the_tiny_sample_is_part_of_the_larger_one() {
        let larger = GranuleSample::rate(HASH, 1.0 / 4096.0);
        assert_eq!(TinySample::new(128).sample(HASH, 163_840, larger), larger);
        let larger = GranuleSample::rate(HASH, 1.0 / 64.0);
        let sample = TinySample::new(128).sample(HASH, 163_840, larger);
        assert!((0..163_840).all(|page| !sample.has(page) || larger.has(page)));
    }

    /// Touches 50,000 of 163,840 pages, some twice. A sample of 1 in 1,024 estimates this within a
    /// tenth.
    #[test]
    fn events_are_scaled_to_all_memory() {
        let mode = WatchMode { granule: Granule::PAGE, sample: GranuleSample::ALL };
        let sample = TinySample::new(128).sample(HASH, 163_840, GranuleSample::ALL);
        let touches: Vec<u64> = (0..50_000).chain(0..10_000).collect();
        let estimated = events(&touches, mode, sample);
        assert!(estimated.abs_diff(50_000) < 5000, "{estimated}");
        // With 16 pages per granule, each granule counts once.
        let coarse = WatchMode { granule: Granule::new(16).unwrap(), sample: GranuleSample::ALL };
        assert_eq!(events(&touches, coarse, GranuleSample::ALL), 50_000 / 16);
        assert_eq!(events(&[], mode, sample), 0);
    }
}
