//! Hashes of tags, and random numbers from a seed.
//!
//! Idea: multiply-add hashing, `a·tag + b` modulo 2^64 with odd `a`, decides whether a tag is
//! sampled. It is one multiplication, and for any two tags its top bits are as good as those of
//! independent draws. For a run of neighbouring tags it is better: multiples of an odd constant are
//! spread more evenly than random numbers, so a run of `n` tags has `R·n` samples up to a small
//! constant, and not up to `√(R·n)` as by chance. Programs use memory in runs.
//!
//! Where a hash must look random (HyperLogLog), [`mix`] is used.
//!
//! Source: Dietzfelbinger 1996 (multiply-add); Steele 2014 and Stafford (SplitMix64).
//! Limits: not secure against an adversary; a stride for which `a·stride` is close to a simple
//! fraction of 2^64 is sampled unevenly, but only few strides are for any seed.

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `x`.
#[inline(always)]
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A stream of random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream that begins at `seed`; streams of neighbouring seeds are unrelated.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: mix(seed ^ 0x6A09_E667_F3BC_C908) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number below `bound`, which is not 0. The bias is less than `bound` / 2^64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Multiply-add hashing of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagHash {
    pub(crate) factor: u64,
    pub(crate) offset: u64,
    /// `factor` for tags of the first size.
    factor_first: u64,
    /// By how many bits tags are coarser than the first tags.
    shift: u32,
}

impl TagHash {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let factor = random.next() | 1;
        Self { factor, offset: random.next(), factor_first: factor, shift: 0 }
    }

    #[inline(always)]
    pub(crate) fn of(self, tag: u64) -> u64 {
        tag.wrapping_mul(self.factor).wrapping_add(self.offset)
    }

    /// Hashes tags that are coarser by `bits`: a tag's hash is that of its first member.
    pub(crate) fn coarser(&mut self, bits: u32) {
        self.set_shift(self.shift.saturating_add(bits));
    }

    /// Hashes tags that are finer by `bits`: reverts [`coarser`](Self::coarser). Tags finer than
    /// the first ones keep the same hash function.
    pub(crate) fn finer(&mut self, bits: u32) {
        self.set_shift(self.shift.saturating_sub(bits));
    }

    fn set_shift(&mut self, shift: u32) {
        self.shift = shift.min(24);
        self.factor = self.factor_first << self.shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_strides_are_sampled_evenly() {
        let (count, rate) = (100_000_u64, 0.01);
        let limit = (rate * 2_f64.powi(64)) as u64;
        // Independent draws would differ from R by 3 % of it (one standard deviation).
        let (mut run_worst, mut squares, mut cases) = (0.0_f64, 0.0, 0.0);
        for seed in 0..20 {
            let hash = TagHash::new(seed);
            for stride in (1..200).chain([256, 512, 1000, 4096, 1 << 20]) {
                let sampled = (0..count).filter(|&i| hash.of(i * stride) <= limit).count();
                let error = sampled as f64 / (rate * count as f64) - 1.0;
                if stride == 1 {
                    run_worst = run_worst.max(error.abs());
                }
                squares += error * error;
                cases += 1.0;
            }
        }
        assert!(run_worst < 0.02, "{run_worst}");
        assert!((squares / cases).sqrt() < 0.032, "{}", (squares / cases).sqrt());
    }

    #[test]
    fn the_first_member_decides_for_a_coarser_tag() {
        let fine = TagHash::new(7);
        let mut coarse = fine;
        coarse.coarser(4);
        assert!((0..1000).all(|tag| coarse.of(tag) == fine.of(tag << 4)));
        coarse.finer(4);
        assert_eq!(coarse, fine);
        coarse.finer(5);
        assert_eq!(coarse, fine);
    }

    #[test]
    fn random_numbers_stay_below_their_bound_and_reach_it() {
        let mut random = Random::new(1);
        let mut met = [0_u32; 7];
        (0..7000).for_each(|_| met[random.below(7) as usize] += 1);
        assert!(met.iter().all(|&count| (850..1150).contains(&count)), "{met:?}");
    }
}
