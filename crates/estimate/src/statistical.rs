//! Estimates how much of an allocation is in use by sampling a few pages at random.
//!
//! Idea: at the start of a period `n` granules are picked at random and made to trap. By its end
//! `touched` of them have trapped, so about `touched / n` of the allocation is in use.
//!
//! Cost: O(n log n) to pick, O(1) to estimate, at most `n` traps a period.
//! Source: Waldspurger, *Memory Resource Management in VMware ESX Server*, OSDI 2002, §5.3; MEB
//! §5.2.1 compares itself with it.
//! Limits: never above the allocation, so it cannot tell how much a guest lacks. The standard error
//! with 100 granules is up to 5 % of the allocation, highest when half is in use.

use std::collections::BTreeSet;
use std::time::Duration;

use ballast_model::Bytes;

/// How many granules to sample, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingSettings {
    /// Granules picked in each period.
    pub samples: u32,
    /// Time from picking to counting.
    pub period: Duration,
}

impl SamplingSettings {
    /// A sample in each of MEB's balancing intervals, for a fair comparison with tracking.
    pub const FAST: SamplingSettings =
        SamplingSettings { samples: 100, period: Duration::from_secs(5) };
    /// Most granules: the error is then at most 0.1 %, and sampling more would amount to tracking.
    pub const SAMPLES_MAX: u32 = 1 << 18;
}

/// Counts of one sampling period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingPeriod {
    /// Granules picked.
    pub picked: u32,
    /// Picked granules that were touched.
    pub touched: u32,
    /// The guest's allocation.
    pub allocation: Bytes,
}

/// Memory in use, with its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledEstimate {
    /// The working set: `touched / n` of the allocation.
    pub wss: Bytes,
    /// Its standard error: `√(p (1 − p) / n)` of the allocation.
    pub error: Bytes,
}

impl SamplingPeriod {
    /// The estimate; `None` if nothing was picked, or more touched than picked.
    pub fn estimate(self) -> Option<SampledEstimate> {
        if self.picked == 0 || self.touched > self.picked {
            return None;
        }
        let share = f64::from(self.touched) / f64::from(self.picked);
        let error = (share * (1.0 - share) / f64::from(self.picked)).sqrt();
        Some(SampledEstimate {
            wss: self.allocation.fraction(u64::from(self.touched), u64::from(self.picked)),
            error: Bytes::new((error * self.allocation.get() as f64) as u64),
        })
    }
}

/// Picks `samples` different granules below `granules`, every set equally likely, in ascending
/// order: all if there are no more, and at most [`SamplingSettings::SAMPLES_MAX`].
///
/// `random` returns 64 random bits; it is called once for each granule picked. The algorithm is R.
/// W. Floyd's (Communications of the ACM 30(9), 1987), with a bias of at most 2^-64 × `granules`.
pub fn pick(samples: u32, granules: u64, mut random: impl FnMut() -> u64) -> Vec<u64> {
    let samples = u64::from(samples.min(SamplingSettings::SAMPLES_MAX)).min(granules);
    let mut picked = BTreeSet::new();
    for last in granules - samples..granules {
        // From 0 to `last` inclusive.
        let any = ((u128::from(random()) * (u128::from(last) + 1)) >> 64) as u64;
        if !picked.insert(any) {
            picked.insert(last);
        }
    }
    picked.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A quarter of 100 granules of 1 GiB: √(0.25 × 0.75 / 100) = 4.33 % of error.
    #[test]
    fn a_quarter_touched_is_a_quarter_in_use() {
        let period = SamplingPeriod { picked: 100, touched: 25, allocation: Bytes::gib(1) };
        let estimate = period.estimate().unwrap();
        assert_eq!((estimate.wss, estimate.error.to_pages()), (Bytes::mib(256), 11_351));
    }

    #[test]
    fn impossible_counts_give_no_estimate() {
        for (picked, touched) in [(0, 0), (5, 6)] {
            assert_eq!(
                SamplingPeriod { picked, touched, allocation: Bytes::gib(1) }.estimate(),
                None
            );
        }
    }

    /// The 4 × 5 outcomes of two draws give each of the ten pairs of five granules twice.
    #[test]
    fn every_set_of_granules_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for first in 0..4u64 {
            for second in 0..5u64 {
                // The middle of each part of the range.
                let mut draws = [(first, 4u128), (second, 5)]
                    .into_iter()
                    .map(|(it, of)| (((u128::from(it) << 64) + (1 << 63)) / of) as u64);
                let set = pick(2, 5, || draws.next().unwrap());
                *counts.entry(set).or_insert(0) += 1;
            }
        }
        assert_eq!(counts.len(), 10);
        assert!(counts.values().all(|count| *count == 2), "{counts:?}");
    }

    proptest! {
        #[test]
        fn the_estimate_grows_with_touches_up_to_the_allocation(
            picked in 1u32.., touched: u32, allocation: u64,
        ) {
            let of = |touched| {
                let allocation = Bytes::new(allocation);
                SamplingPeriod { picked, touched, allocation }.estimate().unwrap()
            };
            let touched = touched % picked;
            let (less, more) = (of(touched), of(touched + 1));
            prop_assert!(less.wss <= more.wss && more.wss <= Bytes::new(allocation));
            prop_assert!(less.error.get() as f64 <= allocation as f64 / 2.0 + 1.0);
        }

        #[test]
        fn picked_granules_are_distinct_sorted_and_in_range(
            samples in 0u32..300,
            granules: u64,
            seed: u64,
        ) {
            let mut state = seed;
            let picked = pick(samples, granules, || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                state
            });
            prop_assert_eq!(picked.len() as u64, u64::from(samples).min(granules));
            prop_assert!(picked.is_sorted_by(|a, b| a < b));
            prop_assert!(picked.last().is_none_or(|last| *last < granules));
        }
    }
}
