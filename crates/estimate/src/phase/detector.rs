//! Whether a series of samples is stable.
//!
//! Idea: all of it is a ratio of sums. With `S_i` the sum of the last k samples, `f(i) = S_i / k` and
//! `f_mean = ΣS / k²` over the last k sums, so `|err_r − 1| = |k S_j − ΣS| / ΣS` and
//! `err_a = |k S_j − ΣS| / k²`: whole numbers until the last division, so nothing drifts and a deviation
//! of exactly `T` is stable.
//! Cost: O(k) a sample, at most 2k numbers kept. Source: MEB §3.5.2.
//! Limits: a series of nothing but zeros is stable.

use std::collections::VecDeque;
use std::fmt;

/// How many samples a filter takes the mean of: `k` of MEB §3.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples(u8);

/// A filter that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a filter of {0} samples is out of range: expected {min} to {max}",
    min = Samples::MIN, max = Samples::MAX)]
pub struct SamplesError(pub u64);

impl Samples {
    /// The least: with one sample, `f_mean` is `f` and everything is stable.
    pub const MIN: u8 = 2;
    /// The most; a phase shorter than twice this is never seen, so more is of no use.
    pub const MAX: u8 = 64;
    /// Of the papers, which call it empirical.
    pub const DEFAULT: Samples = Samples(3);

    /// A filter of `count` samples.
    ///
    /// # Errors
    /// It is below [`Samples::MIN`] or above [`Samples::MAX`].
    pub fn new(count: u64) -> Result<Samples, SamplesError> {
        u8::try_from(count)
            .ok()
            .filter(|count| (Samples::MIN..=Samples::MAX).contains(count))
            .map(Samples)
            .ok_or(SamplesError(count))
    }

    /// How many.
    pub fn count(self) -> usize {
        usize::from(self.0)
    }

    /// Samples from an empty filter to the first answer: `2k − 1`.
    pub fn to_fill(self) -> usize {
        2 * self.count() - 1
    }
}

impl Default for Samples {
    fn default() -> Self {
        Samples::DEFAULT
    }
}

/// How far `err_r` may be from 1 in a stable phase: `T` of MEB §3.5.2. Never below 0.05.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Threshold(f64);

/// A threshold that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a threshold of {0} is out of range: expected {min} to {max}",
    min = Threshold::MIN.0, max = Threshold::MAX.0)]
pub struct ThresholdError(pub f64);

impl Threshold {
    /// The tightest, and that of working sets (MEB §3.5.3).
    pub const MIN: Threshold = Threshold(0.05);
    /// The loosest (MEB §5.2.3), for an adaptive one too (see [`super`]).
    pub const MAX: Threshold = Threshold(0.30);
    /// Where an adaptive one begins.
    pub const ADAPTIVE_FIRST: Threshold = Threshold(0.2);

    /// A fixed threshold.
    ///
    /// # Errors
    /// It is no number from 0.05 to 0.30.
    pub fn new(threshold: f64) -> Result<Threshold, ThresholdError> {
        let is_in_range = (Threshold::MIN.0..=Threshold::MAX.0).contains(&threshold);
        if is_in_range { Ok(Threshold(threshold)) } else { Err(ThresholdError(threshold)) }
    }

    /// The threshold that `deviation` just keeps to, as far as there is one.
    pub(super) fn just_over(deviation: f64) -> Threshold {
        Threshold(deviation.clamp(Threshold::MIN.0, Threshold::MAX.0))
    }

    /// From 0.05 to 0.30.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

/// What a detector says of its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// Nothing yet: so many samples are lacking.
    Filling(usize),
    /// Its latest sample fits what came before.
    Stable(f64),
    /// It does not, by `|err_r − 1|`.
    Unstable(f64),
}

/// A filter and the test on it.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    samples: Samples,
    /// Below this `err_a` is stable whatever `err_r`; 0 for events.
    unit: u64,
    /// The last k samples.
    values: VecDeque<u64>,
    /// The last k sums of k samples.
    sums: VecDeque<u128>,
}

impl Detector {
    pub(super) fn new(samples: Samples, unit: u64) -> Self {
        let room = samples.count();
        Detector {
            samples,
            unit,
            values: VecDeque::with_capacity(room),
            sums: VecDeque::with_capacity(room),
        }
    }

    /// Takes in a sample and judges it. The filter stays: whoever acts on an [`Answer::Unstable`]
    /// empties it with [`Detector::clear`].
    pub(super) fn push(&mut self, value: u64, threshold: Threshold) -> Answer {
        let count = self.samples.count();
        if self.values.len() == count {
            self.values.pop_front();
        }
        self.values.push_back(value);
        if self.values.len() < count {
            return Answer::Filling(self.samples.to_fill() - self.values.len());
        }
        let sum = self.values.iter().map(|value| u128::from(*value)).sum();
        if self.sums.len() == count {
            self.sums.pop_front();
        }
        self.sums.push_back(sum);
        if self.sums.len() < count {
            return Answer::Filling(count - self.sums.len());
        }
        self.judge(sum, threshold)
    }

    fn judge(&self, latest: u128, threshold: Threshold) -> Answer {
        let count = self.samples.count() as u128;
        let all: u128 = self.sums.iter().sum();
        let apart = (latest * count).abs_diff(all);
        // All zeros: nothing deviates.
        let deviation = if all == 0 { 0.0 } else { apart as f64 / all as f64 };
        if deviation <= threshold.get() || apart < u128::from(self.unit) * count * count {
            Answer::Stable(deviation)
        } else {
            Answer::Unstable(deviation)
        }
    }

    /// Forgets the phase that ended.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.sums.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(unit: u64, threshold: f64, values: &[u64]) -> Vec<Answer> {
        let mut detector = Detector::new(Samples::DEFAULT, unit);
        values.iter().map(|value| detector.push(*value, Threshold(threshold))).collect()
    }

    /// By hand: f = 100, 100, 120; f_mean = 320 / 3; err_r = 360 / 320 = 1.125.
    #[test]
    fn a_worked_example() {
        use Answer::{Filling, Stable, Unstable};
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
    fn a_deviation_of_the_whole_unit_is_unstable() {
        let series = [0, 0, 0, 0, 81];
        assert_eq!(answers(18, 0.05, &series)[4], Answer::Unstable(2.0));
        assert_eq!(answers(19, 0.05, &series)[4], Answer::Stable(2.0));
    }

    /// f = 19, 19, 22 → mean 20, err_r = 1.1, which floating point would put beside 0.1.
    #[test]
    fn a_deviation_of_just_the_threshold_is_stable() {
        assert_eq!(answers(0, 0.1, &[19, 19, 19, 19, 28])[4], Answer::Stable(0.1));
    }

    #[test]
    fn zeros_and_the_largest_numbers_are_stable_by_themselves() {
        for value in [0, u64::MAX] {
            assert_eq!(answers(0, 0.05, &[value; 9])[8], Answer::Stable(0.0));
        }
    }

    /// With two samples filtered there is one f, and with a fifth of the samples anything looks stable.
    #[test]
    fn frozen_filling_lasts_until_there_are_k_values_of_f() {
        for k in 2..=8 {
            let mut detector = Detector::new(Samples::new(k).unwrap(), 0);
            for sample in 0..2 * k - 2 {
                let value = if sample % 2 == 0 { 1 } else { 1_000_000 };
                let answer = detector.push(value, Threshold::MIN);
                assert_eq!(answer, Answer::Filling((2 * k - 2 - sample) as usize));
            }
            assert!(!matches!(detector.push(1, Threshold::MIN), Answer::Filling(_)));
        }
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for count in [0, 1, 65, 300] {
            assert!(Samples::new(count).is_err(), "{count}");
        }
        for threshold in [0.0, 0.049, 0.31, f64::NAN, f64::INFINITY, -1.0] {
            assert!(Threshold::new(threshold).is_err(), "{threshold}");
        }
        let told = Threshold::new(0.5).unwrap_err().to_string();
        assert_eq!(told, "a threshold of 0.5 is out of range: expected 0.05 to 0.3");
    }
}
