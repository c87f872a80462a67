//! Detects a jump: a single sample far from all earlier ones of its phase.
//!
//! Idea: the filter of [`super::detector`] averages k samples, so it notices a working set that
//! falls to a quarter two intervals late, and one that grows by half four intervals late. Most
//! phases are far steadier than the threshold allows. A sample further from the mean than eight
//! mean deviations (six standard deviations of a normal distribution) is not chance; it alone
//! begins a new phase. In noisy phases there are no jumps, and only the filter decides.
//! Cost: O([`KEPT`]) a sample, and as many numbers kept.
//! Source: ours.
//! Limits: a change of up to a fifth is never a jump; nor are the first k samples of a phase.

use std::collections::VecDeque;

use super::detector::FilterLength;

/// Number of latest samples kept.
const KEPT: usize = 40;
/// A jump differs from the mean by more than this many mean deviations …
const DEVIATIONS: u128 = 8;
/// … and by more than the mean divided by this.
const PART: u128 = 5;

/// Detects jumps from the samples of a phase so far.
#[derive(Clone, Debug, Default)]
pub(super) struct JumpDetector {
    values: VecDeque<u64>,
}

impl JumpDetector {
    /// Adds a sample of the phase.
    pub(super) fn push(&mut self, value: u64) {
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Forgets all but the latest `count` samples, because the phase began no earlier.
    pub(super) fn keep(&mut self, count: usize) {
        let surplus = self.values.len().saturating_sub(count);
        self.values.drain(..surplus);
    }

    /// Forgets the last phase.
    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    /// If `value` is a jump, its distance from the mean as a share of the mean. A phase with fewer
    /// than `samples` has no jumps. All comparisons are exact.
    pub(super) fn jump(&self, value: u64, samples: FilterLength) -> Option<f64> {
        if self.values.len() < samples.count() {
            return None;
        }
        // All values are multiplied by the number of samples, so that the mean is whole.
        let count = self.values.len() as u128;
        let times = |value: &u64| u128::from(*value) * count;
        let mean: u128 = self.values.iter().map(|value| u128::from(*value)).sum();
        let deviations: u128 = self.values.iter().map(|value| times(value).abs_diff(mean)).sum();
        let apart = times(&value).abs_diff(mean);
        let is_jump = apart * PART > mean && apart * count > DEVIATIONS * deviations;
        is_jump.then(|| if mean == 0 { 1.0 } else { apart as f64 / mean as f64 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jump(before: &[u64], value: u64) -> Option<f64> {
        let mut jumps = JumpDetector::default();
        before.iter().for_each(|value| jumps.push(*value));
        jumps.jump(value, FilterLength::DEFAULT)
    }

    /// Mean 100, mean deviation (2 + 0 + 2) / 3 = 4/3; eight of them are 10 2/3, but a fifth is 20.
    #[test]
    fn in_a_steady_phase_over_a_fifth_is_a_jump() {
        assert_eq!(jump(&[98, 100, 102], 120), None, "exactly a fifth");
        assert_eq!(jump(&[98, 100, 102], 121), Some(0.21));
        assert_eq!(jump(&[98, 100, 102], 25), Some(0.75));
        assert_eq!(jump(&[98, 100], 1000), None, "two samples are too few");
    }

    /// Mean 100, mean deviation (30 + 0 + 30) / 3 = 20; eight of them are 160.
    #[test]
    fn in_a_noisy_phase_over_eight_deviations_is_a_jump() {
        assert_eq!(jump(&[70, 100, 130], 260), None);
        assert_eq!(jump(&[70, 100, 130], 261), Some(1.61));
        assert_eq!(jump(&[70, 100, 130], 0), None);
    }

    #[test]
    fn in_a_phase_of_zeros_any_event_is_a_jump() {
        assert_eq!(jump(&[0; 5], 0), None);
        assert_eq!(jump(&[0; 5], 1), Some(1.0));
        assert_eq!(jump(&[u64::MAX; KEPT], 0), Some(1.0));
    }

    #[test]
    fn only_the_latest_samples_count() {
        let mut jumps = JumpDetector::default();
        (0..KEPT).for_each(|_| jumps.push(1_000_000));
        (0..KEPT).for_each(|_| jumps.push(10));
        assert_eq!(jumps.jump(20, FilterLength::DEFAULT), Some(1.0));
        jumps.push(1_000_000);
        assert_eq!(jumps.jump(20, FilterLength::DEFAULT), None, "the phase is noisy now");
        (0..3).for_each(|_| jumps.push(10));
        jumps.keep(3);
        assert_eq!(jumps.jump(20, FilterLength::DEFAULT), Some(1.0));
        jumps.clear();
        assert_eq!(jumps.jump(20, FilterLength::DEFAULT), None);
    }

    proptest! {
        /// In floating point, except for values almost on the bound.
        #[test]
        fn jumps_agree_with_their_definition(
            before in prop::collection::vec(0..2000_u64, 3..60), value in 0..4000_u64
        ) {
            let kept = &before[before.len().saturating_sub(KEPT)..];
            let mean = kept.iter().sum::<u64>() as f64 / kept.len() as f64;
            let deviations = kept.iter().map(|it| (*it as f64 - mean).abs()).sum::<f64>();
            let bound = (mean / 5.0).max(8.0 * deviations / kept.len() as f64);
            let apart = (value as f64 - mean).abs();
            prop_assume!((apart - bound).abs() > 1e-6);
            prop_assert_eq!(jump(&before, value).is_some(), apart > bound);
        }
    }
}
