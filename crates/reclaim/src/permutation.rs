//! A keyed pseudorandom permutation of the numbers below a bound.
//!
//! Idea: a Feistel network permutes the numbers of an even count of bits, whatever its round
//! function. If the result is not below the bound, the network is applied again until it is (cycle
//! walking); that permutes the numbers below the bound. So the random order of sixteen million
//! pages needs no list of them.
//!
//! Cost: on average below four passes of [`ROUNDS`] rounds per number.
//! Source: Luby and Rackoff 1988; Black and Rogaway, CT-RSA 2002, for cycle walking; SplitMix64 for
//! the round function.
//! Limits: not cryptographic.

/// With good round functions four rounds are indistinguishable from random; two more for small
/// domains.
const ROUNDS: u64 = 6;

/// A permutation of the numbers below `len`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    len: u64,
    seed: u64,
    half_bits: u32,
}

impl Permutation {
    pub(crate) fn new(len: u64, seed: u64) -> Permutation {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        Permutation { len, seed, half_bits: bits.div_ceil(2).max(1) }
    }

    /// The number at position `at`; `None` beyond the last.
    pub(crate) fn at(&self, at: u64) -> Option<u64> {
        if at >= self.len {
            return None;
        }
        let mut number = at;
        loop {
            number = self.network(number);
            if number < self.len {
                return Some(number);
            }
        }
    }

    fn network(&self, number: u64) -> u64 {
        // At most 32 bits, so that the shifts below stay within a `u64`.
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let mixed = mix(right ^ mix(self.seed.wrapping_add(round)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        (left << self.half_bits) | right
    }
}

fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_below_the_bound_comes_once(len in 0u64..3000, seed: u64) {
            let order: Vec<u64> =
                (0..len).filter_map(|at| Permutation::new(len, seed).at(at)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, Vec::from_iter(0..len));
            prop_assert_eq!(Permutation::new(len, seed).at(len), None);
        }

        #[test]
        fn numbers_stay_below_large_bounds(len: u64, seed: u64, at: u64) {
            let found = Permutation::new(len, seed).at(at);
            prop_assert_eq!(found.is_some(), at < len);
            prop_assert!(found.is_none_or(|number| number < len));
        }
    }

    #[test]
    fn the_order_looks_random() {
        let order = |seed| (0..4096).filter_map(move |at| Permutation::new(4096, seed).at(at));
        let ascents = |seed| order(seed).zip(order(seed).skip(1)).filter(|(a, b)| a < b).count();
        // In a random order half of the pairs ascend, give or take 18.
        assert!((1900..2200).contains(&ascents(1)), "{}", ascents(1));
        let in_place = order(2).zip(order(3)).filter(|(a, b)| a == b).count();
        assert!(in_place < 10, "{in_place} places have the same number with another seed");
        // The first eighth is spread over the whole.
        let mut eighths = [0; 8];
        order(4).take(512).for_each(|number| eighths[(number / 512) as usize] += 1);
        assert!(eighths.iter().all(|&n| (35..95).contains(&n)), "{eighths:?}");
    }
}
