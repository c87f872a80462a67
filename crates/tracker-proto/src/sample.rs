//! Which granules are watched: those whose hash is at most a limit.
//!
//! The daemon derives the limit from a rate ([`GranuleSample::rate`]) or from an exact number of
//! granules ([`GranuleSample::exactly`]); the latter, with a new seed each time, is VMware's
//! statistical sampling. The tracker only compares.
//!
//! There are two hashes. Multiply-add spreads neighbours evenly, so that the sampled share of a run
//! of memory is close to the rate. The finaliser of SplitMix64 looks like random draws.
//!
//! Cost: one multiplication per granule, or two and some shifts. An exact limit takes a comparison
//! more per granule, and O(log k) for about k log(n/k) of them.
//! Source: Waldspurger 2015 (SHARDS); Waldspurger 2002 §5.3; Dietzfelbinger 1996; Steele 2014.

use std::collections::BinaryHeap;

/// A hash function of granule numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// `factor × granule + offset` modulo 2^64. The factor is odd.
    MultiplyAdd {
        /// An odd number.
        factor: u64,
        /// Any number.
        offset: u64,
    },
    /// SplitMix64's finaliser of the granule and the seed.
    Mix {
        /// Any number.
        seed: u64,
    },
}

/// The watched granules: those whose hash is at most `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GranuleSample {
    /// The hash.
    pub hash: HashKind,
    /// The largest watched hash.
    pub limit: u64,
}

impl GranuleSample {
    /// Every granule.
    pub const ALL: GranuleSample =
        GranuleSample { hash: HashKind::MultiplyAdd { factor: 1, offset: 0 }, limit: u64::MAX };

    /// About the share `rate` of all granules: 1 and more is all, NaN and less than 2^-64 is nearly
    /// none.
    pub fn rate(hash: HashKind, rate: f64) -> GranuleSample {
        // The conversion saturates at both ends.
        GranuleSample { hash, limit: (rate * 2_f64.powi(64)) as u64 }
    }

    /// `count` of the distinct `granules`, at least one, or all if there are fewer. Both hashes are
    /// injective, so there are no ties.
    pub fn exactly(
        hash: HashKind,
        count: usize,
        granules: impl Iterator<Item = u64>,
    ) -> GranuleSample {
        let count = count.max(1);
        let mut smallest = BinaryHeap::new();
        let mut is_all = true;
        for granule in granules {
            let hash = hash.of(granule);
            if smallest.len() < count {
                smallest.push(hash);
                continue;
            }
            is_all = false;
            // For most granules this comparison is all that is needed.
            if let Some(mut largest) = smallest.peek_mut()
                && hash < *largest
            {
                *largest = hash;
            }
        }
        let limit = if is_all { u64::MAX } else { smallest.peek().copied().unwrap_or(u64::MAX) };
        GranuleSample { hash, limit }
    }

    /// Whether every granule is watched.
    pub const fn is_all(self) -> bool {
        self.limit == u64::MAX
    }

    /// The share of granules that are watched, above 0 and up to 1.
    pub fn share(self) -> f64 {
        (self.limit as f64 + 1.0) / 2_f64.powi(64)
    }

    /// Whether `granule` is watched.
    pub const fn has(self, granule: u64) -> bool {
        self.hash.of(granule) <= self.limit
    }
}

impl HashKind {
    /// The hash of a granule.
    pub const fn of(self, granule: u64) -> u64 {
        match self {
            HashKind::MultiplyAdd { factor, offset } => {
                granule.wrapping_mul(factor).wrapping_add(offset)
            }
            HashKind::Mix { seed } => mix(granule ^ mix(seed)),
        }
    }

    /// The multiply-add hash for a `seed`.
    pub const fn multiply_add(seed: u64) -> HashKind {
        let factor = mix(seed ^ 0x6A09_E667_F3BC_C908) | 1;
        HashKind::MultiplyAdd { factor, offset: mix(seed ^ 0xBB67_AE85_84CA_A73B) }
    }
}

const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_sample_contains_every_granule() {
        assert!(
            GranuleSample::ALL.is_all()
                && [0, 1, u64::MAX].into_iter().all(|it| GranuleSample::ALL.has(it))
        );
        assert_eq!(GranuleSample::ALL.share(), 1.0);
        let hash = HashKind::Mix { seed: 1 };
        assert!(GranuleSample::rate(hash, 1.0).is_all() && GranuleSample::rate(hash, 7.0).is_all());
        assert_eq!(GranuleSample::rate(hash, f64::NAN).limit, 0);
    }

    #[test]
    fn both_hashes_keep_the_rate() {
        for seed in 0..20 {
            for hash in [HashKind::multiply_add(seed), HashKind::Mix { seed }] {
                let sample = GranuleSample::rate(hash, 0.01);
                let watched = (0..200_000).filter(|&granule| sample.has(granule)).count();
                // One standard deviation of random draws is 45; multiply-add deviates less.
                assert!((1750..2250).contains(&watched), "{seed} {hash:?}: {watched}");
            }
        }
    }

    proptest! {
        #[test]
        fn an_exact_sample_has_the_requested_number_of_granules(
            seed: u64, first in 0..u64::MAX / 2, granules in 0..400_usize, count in 0..450_usize,
            random: bool,
        ) {
            let hash =
                if random { HashKind::Mix { seed } } else { HashKind::multiply_add(seed) };
            let all = first..first + granules as u64;
            let sample = GranuleSample::exactly(hash, count, all.clone());
            let watched = all.filter(|&granule| sample.has(granule)).count();
            prop_assert_eq!(watched, count.max(1).min(granules));
        }
    }
}
