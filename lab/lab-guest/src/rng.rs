//! Pseudo-random numbers.
//!
//! Idea: SplitMix64: eight lines, a few nanoseconds per number, any seed works, and every machine
//! gives the same sequence.
//! Limits: not for secrets. Source: Steele, Lea, Flood, OOPSLA 2014.

/// A pseudo-random generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// A uniform 64-bit number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform number less than `end`; 0 if `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        // The bias of multiplying instead of rejecting is end / 2^64.
        ((self.next_u64() as u128 * end as u128) >> 64) as u64
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        // 53 bits are the precision of an f64.
        ((self.next_u64() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_equals_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([rng.next_u64(), rng.next_u64()], published);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!((0..1000).all(|_| rng.chance(1.0) && !rng.chance(0.0)));
        let half = (0..10_000).filter(|_| rng.chance(0.5)).count();
        assert!((4_700..5_300).contains(&half), "{half}");
    }
}
