//! The numbers below a bound, each once, in an order that looks random.
//!
//! Idea: a Feistel network is a permutation of the numbers of an even count of bits, whatever its rounds do;
//! where it leads beyond the bound it is applied again until it does not (cycle walking), which is a
//! permutation of what is below. So the order of sixteen million pages needs no list of them.
//!
//! Cost: below four applications of [`ROUNDS`] multiplications a number, on average.
//! Source: Luby and Rackoff 1988; Black and Rogaway, CT-RSA 2002, for the walk. The mixing is SplitMix64's.
//! Limits: not for secrets.

/// Four make it indistinguishable from random with good rounds; two more for small domains.
const ROUNDS: u64 = 6;

/// The order of the numbers below `len`.
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

    /// The number at place `at`; `None` beyond the last.
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
        // Of 32 bits, the whole of a `u64` remains within the shifts below.
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
        fn each_number_once_and_the_same_order_for_the_same_seed(len in 0u64..3000, seed: u64) {
            let order: Vec<u64> = (0..len).filter_map(|at| Permutation::new(len, seed).at(at)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, Vec::from_iter(0..len));
            prop_assert_eq!(Permutation::new(len, seed).at(len), None);
        }

        #[test]
        fn large_bounds_are_kept(len: u64, seed: u64, at: u64) {
            let found = Permutation::new(len, seed).at(at);
            prop_assert_eq!(found.is_some(), at < len);
            prop_assert!(found.is_none_or(|number| number < len));
        }
    }

    #[test]
    fn the_order_is_no_order() {
        let order = |seed| (0..4096).filter_map(move |at| Permutation::new(4096, seed).at(at));
        let ascents = |seed| order(seed).zip(order(seed).skip(1)).filter(|(a, b)| a < b).count();
        // A random order has half of them, give or take 18.
        assert!((1900..2200).contains(&ascents(1)), "{}", ascents(1));
        let in_place = order(2).zip(order(3)).filter(|(a, b)| a == b).count();
        assert!(in_place < 10, "{in_place} places have the same number with another seed");
        // The first eighth is spread over the whole.
        let mut eighths = [0; 8];
        order(4).take(512).for_each(|number| eighths[(number / 512) as usize] += 1);
        assert!(eighths.iter().all(|&n| (35..95).contains(&n)), "{eighths:?}");
    }
}
