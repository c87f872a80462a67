//! The sample that stays watched while tracking rests.
//!
//! Idea: some hundred pages, a part of those that are watched otherwise, trap once an interval as long as the
//! guest uses them. Their number, scaled to all pages, is what tells a new phase: it costs a fraction of the
//! larger sample, moves as soon as the guest uses more memory or less, and is the same figure whether
//! tracking is on or rests. In the interval in which it jumped (see `estimate`), it is also all that is known of
//! the new phase: the working set is held to have moved in its proportion, until the next interval is watched.
//!
//! Cost: a trap for each of the pages that is touched in an interval; nothing is learned of them twice.
//! Source: ours; `docs/tracking.md` has how it compares with the other signals.
//! Limits: a working set of which only other pages are touched as often as before is not noticed: the
//! checkpoints of intermittent tracking are for that. Below some tens of pages touched, chance decides.

use std::collections::BTreeSet;

use ballast_model::Bytes;
use ballast_track_wire::{HashKind, Mode, Sample};

/// Granules that are watched in rest, up to twice as many.
pub(super) const GRANULES: u64 = 128;

/// Which part of the granules it is.
#[derive(Clone, Debug)]
pub(super) struct Tiny {
    wanted: u64,
    /// A power of a half, which is kept while it does: another share is another sample.
    shift: Option<u32>,
    /// Events of the interval that the working set is known of.
    known: Option<u64>,
}

/// How the memory that a guest touches has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Granules, of all of the guest, when its working set was last known; not 0.
    pub(crate) before: u64,
    /// Granules now; not 0.
    pub(crate) now: u64,
}

impl Moved {
    /// Of memory that was touched then, what is now.
    pub(crate) fn applied_to(self, memory: Bytes) -> Bytes {
        memory.fraction(self.now, self.before)
    }
}

impl Tiny {
    /// Of about `wanted` granules.
    pub(super) fn new(wanted: u64) -> Tiny {
        Tiny { wanted: wanted.max(1), shift: None, known: None }
    }

    /// Takes in the events of an interval of which the working set is known.
    pub(super) fn know(&mut self, events: Option<u64>) {
        self.known = events;
    }

    /// Takes in the events of an interval of rest in which they jumped. `None` where there is nothing to go by; a
    /// guest that touched nothing may have had no processor time.
    pub(super) fn moved(&mut self, events: Option<u64>) -> Option<Moved> {
        let now = events.filter(|&events| events > 0)?;
        let before = self.known.replace(now).filter(|&events| events > 0)?;
        Some(Moved { before, now })
    }

    /// The sample by `hash` of a guest with so many granules, of which `larger` are watched otherwise.
    pub(super) fn sample(&mut self, hash: HashKind, granules: u64, larger: Sample) -> Sample {
        let does = |shift: u32| {
            let watched = granules.checked_shr(shift).unwrap_or(0);
            (self.wanted / 2..self.wanted.saturating_mul(4)).contains(&watched)
        };
        let best = (granules / self.wanted).max(1).ilog2();
        let shift = self.shift.filter(|&shift| does(shift)).unwrap_or(best);
        self.shift = Some(shift);
        let sample = Sample::rate(hash, 0.5_f64.powi(i32::try_from(shift).unwrap_or(i32::MAX)));
        // All there is has a hash of its own; any part of it is one.
        if larger.is_all() || sample.limit <= larger.limit { sample } else { larger }
    }
}

/// Granules that all of the guest would have touched, by those touched of `sample`; `touches` may have others
/// too, and a granule more than once.
pub(super) fn events(touches: &[u64], mode: Mode, sample: Sample) -> u64 {
    let granules = touches.iter().map(|&page| mode.granule.of(page));
    let touched: BTreeSet<u64> = granules.filter(|&granule| sample.has(granule)).collect();
    // Saturating at both ends.
    (touched.len() as f64 / sample.share()).round() as u64
}

#[cfg(test)]
mod tests {
    use ballast_track_wire::Granule;

    use super::*;

    const HASH: HashKind = HashKind::multiply_add(1);

    /// 640 MiB are 163,840 pages: 1 in 1,024 are 160. Half of them, all but four times as many, and none are
    /// no reason for another sample, a quarter is.
    #[test]
    fn an_example_by_hand() {
        let mut tiny = Tiny::new(128);
        let mut share = |granules| tiny.sample(HASH, granules, Sample::ALL).share();
        assert_eq!(share(163_840), 1.0 / 1024.0);
        assert_eq!([share(81_920), share(500_000)], [1.0 / 1024.0; 2]);
        assert_eq!(share(40_960), 1.0 / 256.0);
        assert_eq!([share(100), share(0)], [1.0, 1.0]);
    }

    #[test]
    fn a_working_set_moves_with_the_events_since_it_was_known() {
        let mut tiny = Tiny::new(128);
        assert_eq!(tiny.moved(Some(5)), None, "nothing is known yet");
        tiny.know(Some(1000));
        assert_eq!(tiny.moved(Some(0)), None, "it may have stood still");
        assert_eq!(tiny.moved(None), None);
        assert_eq!(tiny.moved(Some(1400)), Some(Moved { before: 1000, now: 1400 }));
        assert_eq!(tiny.moved(Some(700)), Some(Moved { before: 1400, now: 700 }));
        tiny.know(None);
        assert_eq!(tiny.moved(Some(700)), None);
    }

    #[test]
    fn it_is_a_part_of_the_larger_one() {
        let larger = Sample::rate(HASH, 1.0 / 4096.0);
        assert_eq!(Tiny::new(128).sample(HASH, 163_840, larger), larger);
        let larger = Sample::rate(HASH, 1.0 / 64.0);
        let sample = Tiny::new(128).sample(HASH, 163_840, larger);
        assert!((0..163_840).all(|page| !sample.has(page) || larger.has(page)));
    }

    /// 50,000 of 163,840 pages touched, some twice, seen by 1 in 1,024: as many, within a tenth.
    #[test]
    fn events_are_those_of_all() {
        let mode = Mode { granule: Granule::PAGE, sample: Sample::ALL };
        let sample = Tiny::new(128).sample(HASH, 163_840, Sample::ALL);
        let touches: Vec<u64> = (0..50_000).chain(0..10_000).collect();
        let told = events(&touches, mode, sample);
        assert!(told.abs_diff(50_000) < 5000, "{told}");
        // By 16 pages each, none is counted twice.
        let coarse = Mode { granule: Granule::new(16).unwrap(), sample: Sample::ALL };
        assert_eq!(events(&touches, coarse, Sample::ALL), 50_000 / 16);
        assert_eq!(events(&[], mode, sample), 0);
    }
}
