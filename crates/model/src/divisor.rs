//! Many divisions by the same number.
//!
//! Idea: a 128-bit division takes a processor tens of cycles; two multiplications by a precomputed
//! reciprocal take a few. Parts of all guests are divided by the same sum of weights, and credits
//! by the same price. Exact: the estimated quotient is off by at most one and then corrected.
//!
//! Cost: one 128-bit division at the start. Source: N. Möller, T. Granlund, *Improved Division by
//! Invariant Integers*, IEEE Transactions on Computers 60 (2011), algorithm 4.
//! Limits: divisors and quotients of 64 bits.

use std::num::NonZeroU64;

/// A number that is often divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    /// Shifted up to its highest bit.
    normalized: u64,
    shift: u32,
    /// `⌊(2^128 − 1) / normalized⌋ − 2^64`.
    reciprocal: u64,
}

impl Divisor {
    /// Finds the reciprocal.
    pub fn new(divisor: NonZeroU64) -> Divisor {
        let shift = divisor.leading_zeros();
        let normalized = divisor.get() << shift;
        // The quotient is at least 2^64 and below 2^65: taking its low bits subtracts 2^64.
        let reciprocal = (u128::MAX / u128::from(normalized)) as u64;
        Divisor { normalized, shift, reciprocal }
    }

    /// Quotient and remainder of `n`; `None`: the quotient has more than 64 bits.
    #[inline]
    pub fn div_rem(&self, n: u128) -> Option<(u64, u64)> {
        if (n >> 64) as u64 >= self.normalized >> self.shift {
            return None;
        }
        let n = n << self.shift;
        let (high, low) = ((n >> 64) as u64, n as u64);
        // Below 2^128, since `high` is below `normalized`.
        let estimate = u128::from(self.reciprocal) * u128::from(high) + n;
        let mut quotient = ((estimate >> 64) as u64).wrapping_add(1);
        let mut remainder = low.wrapping_sub(quotient.wrapping_mul(self.normalized));
        // About half of the estimates are one too large; corrected without a branch, which would be
        // mispredicted.
        let over = u64::from(remainder > estimate as u64);
        quotient = quotient.wrapping_sub(over);
        remainder = remainder.wrapping_add(self.normalized & over.wrapping_neg());
        if remainder >= self.normalized {
            quotient += 1;
            remainder -= self.normalized;
        }
        Some((quotient, remainder >> self.shift))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn divided(n: u128, by: u64) -> Option<(u64, u64)> {
        Divisor::new(NonZeroU64::new(by).unwrap()).div_rem(n)
    }

    fn by_plain_division(n: u128, by: u64) -> Option<(u64, u64)> {
        let quotient = u64::try_from(n / u128::from(by)).ok()?;
        Some((quotient, (n % u128::from(by)) as u64))
    }

    #[test]
    fn quotients_are_exact_or_do_not_fit() {
        assert_eq!(divided(100, 7), Some((14, 2)));
        assert_eq!(divided(0, 1), Some((0, 0)));
        assert_eq!(divided(u128::from(u64::MAX), 1), Some((u64::MAX, 0)));
        // 2^64 does not fit.
        assert_eq!(divided(1 << 64, 1), None);
        assert_eq!(divided(1 << 64, 2), Some((1 << 63, 0)));
    }

    /// Estimates are furthest off at powers of two and next to multiples of the divisor.
    #[test]
    fn agrees_at_the_edges() {
        let near = |n: u128| [n.saturating_sub(1), n, n.saturating_add(1)];
        let powers = || (0..128).flat_map(|bits| near(1 << bits));
        for by in powers().filter_map(|by| u64::try_from(by).ok()).filter(|&by| by > 0) {
            let multiples = powers().map(|n| n / u128::from(by) * u128::from(by)).flat_map(near);
            for n in powers().chain(multiples).chain(near(u128::MAX)) {
                assert_eq!(divided(n, by), by_plain_division(n, by), "{n} / {by}");
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_dividing(high: u64, low: u64, by in 1..=u64::MAX, drop in 0..127u32, cut in 0..63u32) {
            let n = (u128::from(high) << 64 | u128::from(low)) >> drop;
            let by = (by >> cut).max(1);
            prop_assert_eq!(divided(n, by), by_plain_division(n, by));
        }
    }
}
