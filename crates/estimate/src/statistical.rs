//! How much of an allocation is in use, from a few pages picked at random.
//!
//! Idea: at the beginning of a period `n` granules are picked at random and made to trap; at its end
//! `touched / n` of them have, and so, about, has that part of the allocation.
//!
//! Cost: O(n log n) a period to pick, O(1) to estimate; at most `n` traps. Source: Waldspurger, *Memory
//! Resource Management in VMware ESX Server*, OSDI 2002, §5.3; the comparison of MEB §5.2.1.
//! Limits: never above the allocation, so it cannot tell how much a guest lacks. The error is that of a
//! share among n: with 100 granules up to 5 % of the allocation (one standard deviation), at its greatest
//! where half is in use.

use std::collections::BTreeSet;
use std::time::Duration;

use ballast_model::Bytes;

/// How many granules, how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingSettings {
    /// Granules picked in each period.
    pub samples: u32,
    /// Time from picking to counting.
    pub period: Duration,
}

impl SamplingSettings {
    /// As ESX has it: 100 granules a minute.
    pub const ESX: SamplingSettings =
        SamplingSettings { samples: 100, period: Duration::from_secs(60) };
    /// As often as a balancer decides, for a fair comparison with tracking: MEB's interval.
    pub const FAST: SamplingSettings =
        SamplingSettings { samples: 100, period: Duration::from_secs(5) };
    /// Most granules: a per mille of error at worst, and more would be tracking.
    pub const SAMPLES_MAX: u32 = 1 << 18;
}

/// What a period came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Granules picked.
    pub picked: u32,
    /// Granules of those that were touched.
    pub touched: u32,
    /// What the guest held.
    pub allocation: Bytes,
}

/// What is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The working set: `touched / n` of the allocation.
    pub wss: Bytes,
    /// Its standard error: `√(p (1 − p) / n)` of the allocation.
    pub error: Bytes,
}

impl Period {
    /// The estimate; `None` where nothing was picked, or more touched than picked.
    pub fn estimate(self) -> Option<Sampled> {
        if self.picked == 0 || self.touched > self.picked {
            return None;
        }
        let share = f64::from(self.touched) / f64::from(self.picked);
        let error = (share * (1.0 - share) / f64::from(self.picked)).sqrt();
        Some(Sampled {
            wss: self.allocation.fraction(u64::from(self.touched), u64::from(self.picked)),
            error: Bytes::new((error * self.allocation.get() as f64) as u64),
        })
    }
}

/// Picks `samples` different granules of the first `granules`, every set as likely as any other, in
/// order; all of them where there are no more, and at most [`SamplingSettings::SAMPLES_MAX`].
///
/// `random` gives 64 random bits at each call; it is called once for each granule picked. (R. W. Floyd's
/// way, Communications of the ACM 30(9), 1987; a bias of at most 2^-64 × `granules` is left.)
pub fn pick(samples: u32, granules: u64, mut random: impl FnMut() -> u64) -> Vec<u64> {
    let samples = u64::from(samples.min(SamplingSettings::SAMPLES_MAX)).min(granules);
    let mut picked = BTreeSet::new();
    for last in granules - samples..granules {
        // From 0 to `last`, both included.
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
    fn a_worked_example() {
        let period = Period { picked: 100, touched: 25, allocation: Bytes::gib(1) };
        let told = period.estimate().unwrap();
        assert_eq!((told.wss, told.error.to_pages()), (Bytes::mib(256), 11_351));
    }

    #[test]
    fn what_cannot_be_is_not_estimated() {
        for (picked, touched) in [(0, 0), (5, 6)] {
            assert_eq!(Period { picked, touched, allocation: Bytes::gib(1) }.estimate(), None);
        }
    }

    /// Every pair of five granules, for the 5 × 4 ends that two draws can have.
    #[test]
    fn every_set_is_as_likely() {
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
        fn the_estimate_is_within_the_allocation_and_grows_with_what_was_touched(
            picked in 1u32.., touched: u32, allocation: u64,
        ) {
            let of = |touched| {
                let allocation = Bytes::new(allocation);
                Period { picked, touched, allocation }.estimate().unwrap()
            };
            let touched = touched % picked;
            let (less, more) = (of(touched), of(touched + 1));
            prop_assert!(less.wss <= more.wss && more.wss <= Bytes::new(allocation));
            prop_assert!(less.error.get() as f64 <= allocation as f64 / 2.0 + 1.0);
        }

        #[test]
        fn granules_are_different_in_order_and_there(samples in 0u32..300, granules: u64, seed: u64) {
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
