//! Detects whether a series of samples is stable.
//!
//! Idea: with `S_i` the sum of the last k samples, `f(i) = S_i / k` and `f_mean = ΣS / k²` over the
//! last k sums, so `|err_r − 1| = |k S_j − ΣS| / ΣS` and `err_a = |k S_j − ΣS| / k²`. All numbers
//! are whole until the last division, so nothing drifts, and a deviation of exactly `T` is stable.
//! Cost: O(k) a sample, at most 2k numbers kept. Source: MEB §3.5.2.
//! Limits: a series of zeros is stable.

use std::collections::VecDeque;
use std::fmt;

/// Number of samples that a filter averages: `k` of MEB §3.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterLength(u8);

/// A filter length out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a filter of {0} samples is out of range: expected {min} to {max}",
    min = FilterLength::MIN, max = FilterLength::MAX)]
pub struct FilterLengthError(pub u64);

impl FilterLength {
    /// Fewest samples: with one, `f_mean` is `f` and everything is stable.
    pub const MIN: u8 = 2;
    /// Most samples: a phase shorter than twice the length is never seen, so more is useless.
    pub const MAX: u8 = 64;
    /// The papers' value, which they call empirical.
    pub const DEFAULT: FilterLength = FilterLength(3);

    /// A filter of `count` samples.
    ///
    /// # Errors
    /// `count` is below [`FilterLength::MIN`] or above [`FilterLength::MAX`].
    pub fn new(count: u64) -> Result<FilterLength, FilterLengthError> {
        u8::try_from(count)
            .ok()
            .filter(|count| (FilterLength::MIN..=FilterLength::MAX).contains(count))
            .map(FilterLength)
            .ok_or(FilterLengthError(count))
    }

    /// Number of samples.
    pub fn count(self) -> usize {
        usize::from(self.0)
    }

    /// Samples that an empty filter needs for its first result: `2k − 1`.
    pub fn to_fill(self) -> usize {
        2 * self.count() - 1
    }
}

impl Default for FilterLength {
    fn default() -> Self {
        FilterLength::DEFAULT
    }
}

/// How far `err_r` may be from 1 in a stable phase: `T` of MEB §3.5.2. Never below 0.05.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Threshold(f64);

/// A threshold out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a threshold of {0} is out of range: expected {min} to {max}",
    min = Threshold::MIN.0, max = Threshold::MAX.0)]
pub struct ThresholdError(pub f64);

impl Threshold {
    /// The tightest threshold, also used for working sets (MEB §3.5.3).
    pub const MIN: Threshold = Threshold(0.05);
    /// The loosest threshold (MEB §5.2.3), also when adaptive (see [`super`]).
    pub const MAX: Threshold = Threshold(0.30);
    /// The initial value of an adaptive threshold.
    pub const ADAPTIVE_FIRST: Threshold = Threshold(0.2);

    /// A fixed threshold.
    ///
    /// # Errors
    /// `threshold` is not from 0.05 to 0.30.
    pub fn new(threshold: f64) -> Result<Threshold, ThresholdError> {
        let is_in_range = (Threshold::MIN.0..=Threshold::MAX.0).contains(&threshold);
        if is_in_range { Ok(Threshold(threshold)) } else { Err(ThresholdError(threshold)) }
    }

    /// The threshold nearest to `deviation`; within the range, `deviation` is just stable with it.
    pub(super) fn nearest(deviation: f64) -> Threshold {
        Threshold(deviation.clamp(Threshold::MIN.0, Threshold::MAX.0))
    }

    /// The value, from 0.05 to 0.30.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

/// A detector's judgement of its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stability {
    /// Too few samples; this many more are needed.
    Filling(usize),
    /// Stable, with `|err_r − 1|`.
    Stable(f64),
    /// Unstable, with `|err_r − 1|`.
    Unstable(f64),
}

/// Filters a series and judges its stability.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    samples: FilterLength,
    /// With `err_a` below this the series is stable whatever `err_r` is; 0 for events.
    unit: u64,
    /// The last k samples.
    values: VecDeque<u64>,
    /// The last k sums of k samples.
    sums: VecDeque<u128>,
}

impl Detector {
    pub(super) fn new(samples: FilterLength, unit: u64) -> Self {
        let room = samples.count();
        Detector {
            samples,
            unit,
            values: VecDeque::with_capacity(room),
            sums: VecDeque::with_capacity(room),
        }
    }

    /// Adds a sample and judges the series. A caller that acts on [`Stability::Unstable`] must
    /// empty the filter with [`Detector::clear`].
    pub(super) fn push(&mut self, value: u64, threshold: Threshold) -> Stability {
        let count = self.samples.count();
        if self.values.len() == count {
            self.values.pop_front();
        }
        self.values.push_back(value);
        if self.values.len() < count {
            return Stability::Filling(self.samples.to_fill() - self.values.len());
        }
        let sum = self.values.iter().map(|value| u128::from(*value)).sum();
        if self.sums.len() == count {
            self.sums.pop_front();
        }
        self.sums.push_back(sum);
        if self.sums.len() < count {
            return Stability::Filling(count - self.sums.len());
        }
        self.judge(sum, threshold)
    }

    fn judge(&self, latest: u128, threshold: Threshold) -> Stability {
        let count = self.samples.count() as u128;
        let all: u128 = self.sums.iter().sum();
        let apart = (latest * count).abs_diff(all);
        let deviation = if all == 0 { 0.0 } else { apart as f64 / all as f64 };
        if deviation <= threshold.get() || apart < u128::from(self.unit) * count * count {
            Stability::Stable(deviation)
        } else {
            Stability::Unstable(deviation)
        }
    }

    /// Forgets the last phase.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.sums.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(unit: u64, threshold: f64, values: &[u64]) -> Vec<Stability> {
        let mut detector = Detector::new(FilterLength::DEFAULT, unit);
        values.iter().map(|value| detector.push(*value, Threshold(threshold))).collect()
    }

    /// By hand: f = 100, 100, 120; f_mean = 320 / 3; err_r = 360 / 320 = 1.125.
    #[test]
    fn deviations_match_a_hand_calculation() {
        use Stability::{Filling, Stable, Unstable};
        let series = [100, 100, 100, 100, 160];
        let filling = [Filling(4), Filling(3), Filling(2), Filling(1)];
        assert_eq!(answers(0, 0.125, &series), [&filling[..], &[Stable(0.125)]].concat());
        assert_eq!(answers(0, 0.12, &series), [&filling[..], &[Unstable(0.125)]].concat());
        // err_a = 120 − 106.67 = 13.33.
        assert_eq!(answers(13, 0.12, &series)[4], Unstable(0.125));
        assert_eq!(answers(14, 0.12, &series)[4], Stable(0.125));
    }

    /// err_a must be *below* the unit: f = 0, 0, 27; f_mean = 9; err_a = 18.
    #[test]
    fn a_deviation_of_exactly_the_unit_is_unstable() {
        let series = [0, 0, 0, 0, 81];
        assert_eq!(answers(18, 0.05, &series)[4], Stability::Unstable(2.0));
        assert_eq!(answers(19, 0.05, &series)[4], Stability::Stable(2.0));
    }

    /// f = 19, 19, 22, mean 20, err_r = 1.1; in floating point err_r − 1 is not exactly 0.1.
    #[test]
    fn a_deviation_of_exactly_the_threshold_is_stable() {
        assert_eq!(answers(0, 0.1, &[19, 19, 19, 19, 28])[4], Stability::Stable(0.1));
    }

    #[test]
    fn constant_zeros_and_constant_maxima_are_stable() {
        for value in [0, u64::MAX] {
            assert_eq!(answers(0, 0.05, &[value; 9])[8], Stability::Stable(0.0));
        }
    }

    #[test]
    fn frozen_filling_lasts_until_there_are_k_values_of_f() {
        for k in 2..=8 {
            let mut detector = Detector::new(FilterLength::new(k).unwrap(), 0);
            for sample in 0..2 * k - 2 {
                let value = if sample % 2 == 0 { 1 } else { 1_000_000 };
                let answer = detector.push(value, Threshold::MIN);
                assert_eq!(answer, Stability::Filling((2 * k - 2 - sample) as usize));
            }
            assert!(!matches!(detector.push(1, Threshold::MIN), Stability::Filling(_)));
        }
    }

    #[test]
    fn lengths_and_thresholds_out_of_range_are_refused() {
        for count in [0, 1, 65, 300] {
            assert!(FilterLength::new(count).is_err(), "{count}");
        }
        for threshold in [0.0, 0.049, 0.31, f64::NAN, f64::INFINITY, -1.0] {
            assert!(Threshold::new(threshold).is_err(), "{threshold}");
        }
        let message = Threshold::new(0.5).unwrap_err().to_string();
        assert_eq!(message, "a threshold of 0.5 is out of range: expected 0.05 to 0.3");
    }
}
