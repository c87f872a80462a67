//! Whether a single sample is out of all proportion to those before it.
//!
//! Idea: the filter of [`super::detector`] takes the mean of k samples, so a working set that falls to a quarter is
//! noticed two intervals late, and one that grows by half in four. Most phases are far steadier than the threshold
//! allows for: a sample further from their mean than eight times their mean deviation (of a normal distribution more
//! than six standard deviations) is no chance, and begins a new phase by itself. Of phases that stray, nothing is
//! thought that was not thought before.
//! Cost: O([`KEPT`]) a sample, and as many numbers kept.
//! Source: ours. Limits: less than a fifth is never a jump; the first k samples of a phase say nothing.

use std::collections::VecDeque;

use super::detector::Samples;

/// Samples of a phase that are remembered, the latest.
const KEPT: usize = 40;
/// Mean deviations that are no jump.
const DEVIATIONS: u128 = 8;
/// The part of the mean that is none either: one of so many.
const PART: u128 = 5;

/// The samples of a phase so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Steady {
    values: VecDeque<u64>,
}

impl Steady {
    /// Takes in a sample of the phase.
    pub(super) fn push(&mut self, value: u64) {
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Forgets all but the latest `count`: the phase has begun no earlier.
    pub(super) fn keep(&mut self, count: usize) {
        let surplus = self.values.len().saturating_sub(count);
        self.values.drain(..surplus);
    }

    /// Forgets the phase that ended.
    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    /// How far `value` is from the mean, as a share of that, where it is a jump; exact but for that share. The
    /// phase must have at least as many samples as a filter takes.
    pub(super) fn jump(&self, value: u64, samples: Samples) -> Option<f64> {
        if self.values.len() < samples.count() {
            return None;
        }
        // All of them times the number of samples, so that the mean is whole.
        let count = self.values.len() as u128;
        let times = |value: &u64| u128::from(*value) * count;
        let mean: u128 = self.values.iter().map(|value| u128::from(*value)).sum();
        let strayed: u128 = self.values.iter().map(|value| times(value).abs_diff(mean)).sum();
        let apart = times(&value).abs_diff(mean);
        let is_jump = apart * PART > mean && apart * count > DEVIATIONS * strayed;
        // Of nothing, all of it.
        is_jump.then(|| if mean == 0 { 1.0 } else { apart as f64 / mean as f64 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jump(before: &[u64], value: u64) -> Option<f64> {
        let mut steady = Steady::default();
        before.iter().for_each(|value| steady.push(*value));
        steady.jump(value, Samples::DEFAULT)
    }

    /// Mean 100, mean deviation (2 + 0 + 2) / 3 = 4/3: eight of them are 10 2/3, a fifth is 20.
    #[test]
    fn a_steady_phase_by_hand() {
        assert_eq!(jump(&[98, 100, 102], 120), None, "just a fifth");
        assert_eq!(jump(&[98, 100, 102], 121), Some(0.21));
        assert_eq!(jump(&[98, 100, 102], 25), Some(0.75));
        assert_eq!(jump(&[98, 100], 1000), None, "of two samples nothing is known");
    }

    /// Mean 100, mean deviation (30 + 0 + 30) / 3 = 20: what is 160 from the mean is none, what is 161 is.
    #[test]
    fn a_phase_that_strays_by_hand() {
        assert_eq!(jump(&[70, 100, 130], 260), None);
        assert_eq!(jump(&[70, 100, 130], 261), Some(1.61));
        assert_eq!(jump(&[70, 100, 130], 0), None);
    }

    #[test]
    fn of_nothing_anything_is_a_jump() {
        assert_eq!(jump(&[0; 5], 0), None);
        assert_eq!(jump(&[0; 5], 1), Some(1.0));
        assert_eq!(jump(&[u64::MAX; KEPT], 0), Some(1.0));
    }

    #[test]
    fn only_the_latest_samples_count() {
        let mut steady = Steady::default();
        (0..KEPT).for_each(|_| steady.push(1_000_000));
        (0..KEPT).for_each(|_| steady.push(10));
        assert_eq!(steady.jump(20, Samples::DEFAULT), Some(1.0));
        steady.push(1_000_000);
        assert_eq!(steady.jump(20, Samples::DEFAULT), None, "it strays now");
        (0..3).for_each(|_| steady.push(10));
        steady.keep(3);
        assert_eq!(steady.jump(20, Samples::DEFAULT), Some(1.0));
        steady.clear();
        assert_eq!(steady.jump(20, Samples::DEFAULT), None);
    }

    proptest! {
        /// As it is told, in floating point, but for what is nearly on the bound.
        #[test]
        fn agrees_with_its_definition(
            before in prop::collection::vec(0..2000_u64, 3..60), value in 0..4000_u64
        ) {
            let kept = &before[before.len().saturating_sub(KEPT)..];
            let mean = kept.iter().sum::<u64>() as f64 / kept.len() as f64;
            let strayed = kept.iter().map(|it| (*it as f64 - mean).abs()).sum::<f64>();
            let bound = (mean / 5.0).max(8.0 * strayed / kept.len() as f64);
            let apart = (value as f64 - mean).abs();
            prop_assume!((apart - bound).abs() > 1e-6);
            prop_assert_eq!(jump(&before, value).is_some(), apart > bound);
        }
    }
}
