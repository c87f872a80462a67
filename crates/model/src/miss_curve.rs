//! Misses of one guest as a function of its memory, in integers.
//!
//! Idea: from a miss-ratio curve (MEB §3.1), a policy needs how many references of one interval
//! would have missed at each size of memory. Counts instead of ratios, so that deciding needs no
//! floating point, and curves of guests of different activity can be added: `misses(m) = MRC(m) ×
//! NR` of MEB §4, with `NR` the references of the interval.
//! Limits: sizes are multiples of one step; at most [`MissCurve::POINTS_MAX`] of them. Counts never
//! rise with memory, which the constructors check.

use std::time::Duration;

use crate::{Bytes, PAGE_SIZE};

/// Sizes at which replies and fleet records give a guest's misses, in percent of its allocation.
pub const CURVE_PERCENTS: [u32; 6] = [25, 50, 75, 100, 125, 150];

/// Misses in one interval for every size of memory, `0, step, 2 step, …`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "row::CurveRow", into = "row::CurveRow")
)]
pub struct MissCurve {
    step: Bytes,
    interval: Duration,
    misses: Vec<u64>,
    #[cfg(feature = "serde")]
    reference: Option<CurveReference>,
}

/// Why figures are not a miss curve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissCurveError {
    /// No point.
    #[error("a miss curve without points: expected the misses at size 0 at least")]
    Empty,
    /// More points than the format allows.
    #[error("a miss curve of {0} points: expected at most {max}", max = MissCurve::POINTS_MAX)]
    TooLong(usize),
    /// The step is zero, or not a whole number of pages.
    #[error("a miss curve with a step of {0}: expected one page or more, whole pages")]
    Step(Bytes),
    /// No time passed.
    #[error("a miss curve of an interval of 0s: expected more")]
    Interval,
    /// Misses rise with memory.
    #[error("a miss curve that rises from {before} misses at {smaller} to {after} at {larger}")]
    Rises {
        /// Misses at the smaller size.
        before: u64,
        /// The smaller size.
        smaller: Bytes,
        /// Misses at the larger size.
        after: u64,
        /// The larger size.
        larger: Bytes,
    },
    /// A miss ratio that is not between 0 and 1.
    #[error("miss ratio {ratio} at {size}: expected 0 to 1")]
    Ratio {
        /// The size.
        size: Bytes,
        /// The given ratio as text, as it may not be a number.
        ratio: String,
    },
}

impl MissCurve {
    /// Most points of one curve: 16 TiB in steps of 1 MiB.
    pub const POINTS_MAX: usize = 1 << 24;

    /// A curve of counts: `misses[k]` references of an `interval` miss in `k × step` of memory.
    ///
    /// # Errors
    /// Says why this is not a miss curve.
    pub fn new(
        step: Bytes,
        interval: Duration,
        misses: Vec<u64>,
    ) -> Result<MissCurve, MissCurveError> {
        if misses.is_empty() {
            return Err(MissCurveError::Empty);
        }
        if misses.len() > MissCurve::POINTS_MAX {
            return Err(MissCurveError::TooLong(misses.len()));
        }
        if step == Bytes::ZERO || step.page_floor() != step {
            return Err(MissCurveError::Step(step));
        }
        if interval.is_zero() {
            return Err(MissCurveError::Interval);
        }
        if let Some(k) = misses.windows(2).position(|pair| pair[0] < pair[1]) {
            return Err(MissCurveError::Rises {
                before: misses[k],
                smaller: size_at(step, k),
                after: misses[k + 1],
                larger: size_at(step, k + 1),
            });
        }
        Ok(MissCurve {
            step,
            interval,
            misses,
            #[cfg(feature = "serde")]
            reference: None,
        })
    }

    /// A curve from ratios of `references`; each is rounded to the nearest count.
    ///
    /// # Errors
    /// Says why this is not a miss curve.
    pub fn from_ratios(
        step: Bytes,
        interval: Duration,
        references: u64,
        ratios: &[f64],
    ) -> Result<MissCurve, MissCurveError> {
        let count = |(k, ratio): (usize, &f64)| {
            if (0.0..=1.0).contains(ratio) {
                // Rounded once, here at the edge; decisions made with it are exact.
                return Ok((ratio * references as f64).round() as u64);
            }
            Err(MissCurveError::Ratio { size: size_at(step, k), ratio: ratio.to_string() })
        };
        let misses: Result<Vec<u64>, MissCurveError> =
            ratios.iter().enumerate().map(count).collect();
        MissCurve::new(step, interval, misses?)
    }

    /// The curve of a guest that needs `more` for something else: every size has the misses of the
    /// size that is smaller by `more`, rounded up to steps. Points beyond [`MissCurve::POINTS_MAX`]
    /// are cut.
    #[must_use]
    pub fn shifted(&self, more: Bytes) -> MissCurve {
        let steps = more.get().div_ceil(self.step.get());
        let steps = usize::try_from(steps).unwrap_or(usize::MAX).min(MissCurve::POINTS_MAX - 1);
        let first = std::iter::repeat_n(self.misses[0], steps);
        let misses = first.chain(self.misses.iter().copied()).take(MissCurve::POINTS_MAX);
        MissCurve { misses: misses.collect(), ..*self }
    }

    /// Extends the curve of a guest that was seen to miss `misses` times while it held `held`. A
    /// curve measured within that memory does not show all of these misses. The missing ones are
    /// added at `held`. Above `held` they fall evenly to none at `beyond` more memory, which is at
    /// least a page per miss. Below `held` they rise at the same slope, because such a guest has no
    /// page to spare. Points beyond [`MissCurve::POINTS_MAX`] are cut.
    #[must_use]
    pub fn extended(&self, held: Bytes, beyond: Bytes, misses: u64) -> MissCurve {
        let misses = misses.saturating_sub(self.misses(held));
        if misses == 0 {
            return self.clone();
        }
        let beyond = beyond.get().max(misses.saturating_mul(PAGE_SIZE));
        let enough = held.get().saturating_add(beyond);
        let step = self.step.get();
        let points = enough.div_ceil(step).saturating_add(1);
        let points = usize::try_from(points).unwrap_or(usize::MAX).min(MissCurve::POINTS_MAX);
        let lacking = |k: usize| {
            let missing = enough.saturating_sub(step.saturating_mul(k as u64));
            let missed = u128::from(misses) * u128::from(missing) / u128::from(beyond);
            u64::try_from(missed).unwrap_or(u64::MAX)
        };
        let seen = |k: usize| self.misses.get(k).or(self.misses.last()).copied().unwrap_or(0);
        let points = points.max(self.misses.len());
        // The sum of two curves that never rise never rises.
        let misses = (0..points).map(|k| lacking(k).saturating_add(seen(k))).collect();
        MissCurve { misses, ..*self }
    }

    /// The curve of a guest that now touches `now` where it touched `before`: sizes are scaled by
    /// `now / before`, and the step is rounded up to whole pages.
    #[must_use]
    pub fn stretched(&self, now: u64, before: u64) -> MissCurve {
        let step = self.step.fraction(now, before).page_ceil().max(Bytes::pages(1));
        MissCurve { step, misses: self.misses.clone(), ..*self }
    }

    /// The curve, with at least the misses of an `earlier` one at each of its own sizes. Unchanged
    /// if the intervals differ.
    #[must_use]
    pub fn at_least(&self, earlier: &MissCurve) -> MissCurve {
        if self.interval != earlier.interval {
            return self.clone();
        }
        let sizes = (0..self.misses.len()).map(|k| size_at(self.step, k));
        // The larger of two curves that never rise never rises.
        let misses =
            self.misses.iter().zip(sizes).map(|(now, size)| earlier.misses(size).max(*now));
        MissCurve { misses: misses.collect(), ..*self }
    }

    /// Distance between two sizes; whole pages.
    pub fn step(&self) -> Bytes {
        self.step
    }

    /// The length of the interval in which the misses would have happened.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The counts at `0, step, 2 step, …`. They never rise, and there is at least one.
    pub fn points(&self) -> &[u64] {
        &self.misses
    }

    /// Misses with `memory`: those of the largest size that is not above it. Beyond the last point
    /// they stay as they are there.
    pub fn misses(&self, memory: Bytes) -> u64 {
        let k = usize::try_from(memory.get() / self.step.get()).unwrap_or(usize::MAX);
        self.misses[k.min(self.misses.len() - 1)]
    }

    /// Misses a second with `memory`, rounded up.
    pub fn misses_per_s(&self, memory: Bytes) -> u64 {
        let nanos = self.interval.as_nanos();
        let per_s = (u128::from(self.misses(memory)) * 1_000_000_000).div_ceil(nanos);
        u64::try_from(per_s).unwrap_or(u64::MAX)
    }

    /// Misses a second at sizes around an allocation: at [`CURVE_PERCENTS`] of it, in rising order.
    pub fn around(&self, allocation: Bytes) -> [(Bytes, u64); CURVE_PERCENTS.len()] {
        CURVE_PERCENTS.map(|percent| {
            let bytes = u128::from(allocation.get()) * u128::from(percent) / 100;
            let size = Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX));
            (size, self.misses_per_s(size))
        })
    }

    /// The least size at which there are at most `misses_per_s` misses a second; `None`: no size of
    /// the curve is enough. O(log points).
    pub fn size_for(&self, misses_per_s: u64) -> Option<Bytes> {
        let most = u128::from(misses_per_s).saturating_mul(self.interval.as_nanos());
        let is_too_many = |&misses: &u64| u128::from(misses) * 1_000_000_000 > most;
        let k = self.misses.partition_point(is_too_many);
        (k < self.misses.len()).then(|| size_at(self.step, k))
    }
}

/// `k` steps, saturating.
fn size_at(step: Bytes, k: usize) -> Bytes {
    Bytes::new(step.get().saturating_mul(k as u64))
}

#[cfg(feature = "serde")]
pub use row::CurveReference;

/// A curve in a row: its points, or a reference to a curve of the journal.
#[cfg(feature = "serde")]
mod row {
    use serde::{Deserialize, Serialize};

    use super::*;

    /// A reference to a curve of a journal: row `id` of the table of curves,
    /// [shifted](MissCurve::shifted) by `shifted` steps.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CurveReference {
        /// The row.
        pub id: i64,
        /// Steps.
        #[serde(default, skip_serializing_if = "crate::unit::is_default")]
        pub shifted: u32,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a miss curve: `step_bytes`, `interval_ns`, `misses`, or the `id` of one"
    )]
    pub(super) enum CurveRow {
        Whole { step_bytes: u64, interval_ns: u64, misses: Vec<u64> },
        Reference(CurveReference),
    }

    impl MissCurve {
        /// A stand-in for a curve that a journal keeps in a row of its own. It has no misses
        /// itself.
        pub fn from_reference(reference: CurveReference) -> MissCurve {
            let (step, interval) = (Bytes::pages(1), Duration::from_nanos(1));
            MissCurve { step, interval, misses: vec![0], reference: Some(reference) }
        }

        /// The curve that this stands for; `None`: this is a curve itself.
        pub fn reference(&self) -> Option<CurveReference> {
            self.reference
        }
    }

    impl From<MissCurve> for CurveRow {
        fn from(curve: MissCurve) -> CurveRow {
            match curve.reference {
                Some(reference) => CurveRow::Reference(reference),
                None => CurveRow::Whole {
                    step_bytes: curve.step.get(),
                    interval_ns: u64::try_from(curve.interval.as_nanos()).unwrap_or(u64::MAX),
                    misses: curve.misses,
                },
            }
        }
    }

    impl TryFrom<CurveRow> for MissCurve {
        type Error = MissCurveError;

        fn try_from(row: CurveRow) -> Result<MissCurve, MissCurveError> {
            match row {
                CurveRow::Reference(reference) => Ok(MissCurve::from_reference(reference)),
                CurveRow::Whole { step_bytes, interval_ns, misses } => {
                    let interval = Duration::from_nanos(interval_ns);
                    MissCurve::new(Bytes::new(step_bytes), interval, misses)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn curve(misses: &[u64]) -> Result<MissCurve, MissCurveError> {
        MissCurve::new(Bytes::mib(1), Duration::from_secs(2), misses.to_vec())
    }

    #[test]
    fn raised_curves_have_the_larger_misses_at_their_sizes() {
        let curve = |step, interval, misses: &[u64]| {
            let interval = Duration::from_secs(interval);
            MissCurve::new(Bytes::mib(step), interval, misses.to_vec()).unwrap()
        };
        let now = curve(1, 5, &[100, 60, 60, 20, 0]);
        assert_eq!(now.at_least(&curve(2, 5, &[80, 70, 16])).points(), [100, 80, 70, 70, 16]);
        assert_eq!(now.at_least(&curve(2, 6, &[80, 70, 16])), now);
    }

    #[test]
    fn misses_are_those_of_the_size_below() {
        let curve = curve(&[100, 40, 40, 0]).unwrap();
        for (mib, misses, per_s) in [(0, 100, 50), (1, 40, 20), (2, 40, 20), (3, 0, 0), (9, 0, 0)] {
            assert_eq!(curve.misses(Bytes::mib(mib)), misses, "{mib} MiB");
            assert_eq!(curve.misses_per_s(Bytes::mib(mib)), per_s, "{mib} MiB");
        }
        assert_eq!(curve.misses(Bytes::mib(1) - Bytes::pages(1)), 100);
        assert_eq!(curve.misses(Bytes::MAX), 0);
    }

    #[test]
    fn the_least_size_for_a_rate() {
        let curve = curve(&[101, 40, 40, 7]).unwrap();
        for (rate, mib) in [(51, Some(0)), (50, Some(1)), (20, Some(1)), (19, Some(3)), (3, None)] {
            assert_eq!(curve.size_for(rate), mib.map(Bytes::mib), "{rate}/s");
        }
    }

    /// The guest missed 40 times with 2 MiB, which the curve does not show; with `beyond` of 4 MiB
    /// there are ten fewer misses per MiB.
    #[test]
    fn misses_within_the_memory_held_continue_beyond_it() {
        let blind = curve(&[100, 60, 0]).unwrap();
        let extended = blind.extended(Bytes::mib(2), Bytes::mib(4), 40);
        assert_eq!(extended.points(), [160, 110, 40, 30, 20, 10, 0]);
        // A curve that shows all misses stays; one that shows some gets the rest.
        let seeing = curve(&[100, 60, 45, 35, 22, 11, 0]).unwrap();
        assert_eq!(seeing.extended(Bytes::mib(2), Bytes::mib(4), 40), seeing);
        let part = seeing.extended(Bytes::mib(2), Bytes::mib(2), 65);
        assert_eq!(part.points(), [140, 90, 65, 45, 22, 11, 0]);
        assert_eq!(blind.extended(Bytes::mib(2), Bytes::mib(4), 0), blind);
        // Ten misses that it does not show need ten pages, 40 KiB: ten more for each 40 KiB of the
        // 1,024 KiB below.
        let cliff = blind.extended(Bytes::mib(1), Bytes::ZERO, 70);
        assert_eq!(cliff.points(), [100 + 266, 70, 0]);
    }

    proptest! {
        #[test]
        fn an_extended_curve_is_one(
            points in prop::collection::vec(0..1000_u64, 1..20),
            held in 0..40_u64 << 18,
            beyond in 0..40_u64 << 18,
            misses in 0..20_000_u64,
        ) {
            let mut points = points;
            points.sort_unstable_by(|a, b| b.cmp(a));
            let plain = curve(&points).unwrap();
            let (held, beyond) = (Bytes::new(held), Bytes::new(beyond));
            let extended = plain.extended(held, beyond, misses);
            let again = curve(extended.points()).unwrap();
            prop_assert_eq!(&again, &extended);
            // A size has the misses of the step below it: those at `held`, or more.
            prop_assert!(extended.misses(held) >= misses);
            let beyond = beyond.max(Bytes::pages(misses));
            let enough = held.saturating_add(beyond).saturating_add(plain.step());
            prop_assert_eq!(extended.misses(enough), plain.misses(enough));
        }
    }

    #[test]
    fn a_stretched_curve_has_the_misses_of_memory_in_proportion() {
        let curve = curve(&[100, 40, 0]).unwrap();
        let half_more = curve.stretched(3, 2);
        assert_eq!((half_more.step(), half_more.points()), (Bytes::kib(1536), curve.points()));
        assert_eq!(curve.stretched(1, 3).step(), Bytes::pages(86), "85 1/3 pages");
        assert_eq!(curve.stretched(1, 1), curve);
        assert_eq!(curve.stretched(0, 1).step(), Bytes::pages(1), "there is always a step");
        assert_eq!(curve.stretched(u64::MAX, 1).step(), Bytes::MAX.page_floor());
    }

    #[test]
    fn a_shifted_curve_has_the_misses_of_less_memory() {
        let curve = curve(&[100, 40, 0]).unwrap();
        assert_eq!(curve.shifted(Bytes::ZERO), curve);
        assert_eq!(curve.shifted(Bytes::mib(2)).points(), [100, 100, 100, 40, 0]);
        assert_eq!(curve.shifted(Bytes::pages(1)).points(), [100, 100, 40, 0]);
    }

    #[test]
    fn invalid_curves_are_refused() {
        for (misses, message) in [
            (&[][..], "a miss curve without points: expected the misses at size 0 at least"),
            (&[3, 4], "a miss curve that rises from 3 misses at 0B to 4 at 1MiB"),
        ] {
            assert_eq!(curve(misses).unwrap_err().to_string(), message);
        }
        let odd = MissCurve::new(Bytes::new(5), Duration::from_secs(1), vec![1]);
        assert_eq!(odd, Err(MissCurveError::Step(Bytes::new(5))));
        let timeless = MissCurve::new(Bytes::mib(1), Duration::ZERO, vec![1]);
        assert_eq!(timeless, Err(MissCurveError::Interval));
        for (ratios, message) in [
            (&[0.5, f64::NAN][..], "miss ratio NaN at 1MiB: expected 0 to 1"),
            (&[-0.1], "miss ratio -0.1 at 0B: expected 0 to 1"),
            (&[0.5, 0.6], "a miss curve that rises from 50 misses at 0B to 60 at 1MiB"),
        ] {
            let error = MissCurve::from_ratios(Bytes::mib(1), Duration::from_secs(1), 100, ratios);
            assert_eq!(error.unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn ratios_are_rounded_to_counts() {
        let curve =
            MissCurve::from_ratios(Bytes::mib(1), Duration::from_secs(1), 10, &[1.0, 0.26, 0.04]);
        assert_eq!(curve.unwrap().points(), [10, 3, 0]);
    }
}
