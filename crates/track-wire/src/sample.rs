//! Which granules are watched.
//!
//! Idea: those whose hash is at most a limit. The limit is a rate ([`Sample::rate`]), or the hash that
//! exactly so many granules do not exceed ([`Sample::exactly`]); with another seed each time the latter
//! is VMware's statistical sampling. The daemon chooses; the tracker only compares.
//!
//! Two hashes: multiply-add spreads neighbours evenly, so that the sampled part of a run of memory is
//! close to the rate; the finaliser of SplitMix64 looks random, as draws would.
//!
//! Cost: one multiplication a granule, two and some shifts for the random one; O(n log k) to find a
//! limit. Source: Waldspurger 2015 (SHARDS); Waldspurger 2002 §5.3; Dietzfelbinger 1996; Steele 2014.

use std::collections::BinaryHeap;

/// How a granule's number becomes a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// `factor × granule + offset` modulo 2^64. The factor is odd.
    MultiplyAdd {
        /// Odd.
        factor: u64,
        /// Any.
        offset: u64,
    },
    /// SplitMix64's finaliser of the granule and the seed.
    Mix {
        /// Any.
        seed: u64,
    },
}

/// What is watched: granules whose hash is at most `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The hash.
    pub hash: HashKind,
    /// The greatest hash that is watched.
    pub limit: u64,
}

impl Sample {
    /// Every granule.
    pub const ALL: Sample =
        Sample { hash: HashKind::MultiplyAdd { factor: 1, offset: 0 }, limit: u64::MAX };

    /// About `rate` of all granules: 1 and more is all; below 2^-64, or no number, as few as can be.
    pub fn rate(hash: HashKind, rate: f64) -> Sample {
        // As 2^64 is beyond u64, the conversion saturates at both ends.
        Sample { hash, limit: (rate * 2_f64.powi(64)) as u64 }
    }

    /// `count` of `granules`, which are all different, or all where there are no more. Of 0 it is one.
    ///
    /// Both hashes give every granule another one, so there are no ties.
    pub fn exactly(hash: HashKind, count: usize, granules: impl Iterator<Item = u64>) -> Sample {
        let count = count.max(1);
        let mut least = BinaryHeap::new();
        let mut is_all = true;
        for granule in granules {
            least.push(hash.of(granule));
            if least.len() > count {
                least.pop();
                is_all = false;
            }
        }
        let limit = if is_all { u64::MAX } else { least.peek().copied().unwrap_or(u64::MAX) };
        Sample { hash, limit }
    }

    /// Whether every granule is watched.
    pub const fn is_all(self) -> bool {
        self.limit == u64::MAX
    }

    /// The part of granules that are watched, above 0 to 1.
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

    /// A multiply-add hash that `seed` picks.
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
    fn everything_is_in_the_whole() {
        assert!(Sample::ALL.is_all() && [0, 1, u64::MAX].into_iter().all(|it| Sample::ALL.has(it)));
        assert_eq!(Sample::ALL.share(), 1.0);
        let hash = HashKind::Mix { seed: 1 };
        assert!(Sample::rate(hash, 1.0).is_all() && Sample::rate(hash, 7.0).is_all());
        assert_eq!(Sample::rate(hash, f64::NAN).limit, 0);
    }

    #[test]
    fn a_rate_is_kept_by_both_hashes() {
        for seed in 0..20 {
            for hash in [HashKind::multiply_add(seed), HashKind::Mix { seed }] {
                let sample = Sample::rate(hash, 0.01);
                let watched = (0..200_000).filter(|&granule| sample.has(granule)).count();
                // Draws would differ by 45 (one standard deviation); the other hash by less.
                assert!((1750..2250).contains(&watched), "{seed} {hash:?}: {watched}");
            }
        }
    }

    proptest! {
        #[test]
        fn exactly_as_many_as_were_asked_for(
            seed: u64, first in 0..u64::MAX / 2, granules in 0..400_usize, count in 0..450_usize,
            random: bool,
        ) {
            let hash =
                if random { HashKind::Mix { seed } } else { HashKind::multiply_add(seed) };
            let all = first..first + granules as u64;
            let sample = Sample::exactly(hash, count, all.clone());
            let watched = all.filter(|&granule| sample.has(granule)).count();
            prop_assert_eq!(watched, count.max(1).min(granules));
        }
    }
}
