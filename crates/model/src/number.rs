//! A number that leaves room for `None`.
//!
//! Idea: stored one higher than it is, as a number that is never zero. An `Option` of it takes no
//! more room than a number, and numbers compare as they are stored. Limits: 0 to 2^64 − 2; one more
//! is taken for the most.

use std::fmt;
use std::num::NonZeroU64;

/// A number from 0 to 2^64 − 2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Number(NonZeroU64);

impl Number {
    /// The largest.
    pub(crate) const MAX: Number = Number(NonZeroU64::MAX);

    /// `n`, at most [`Number::MAX`].
    #[inline]
    pub(crate) const fn new(n: u64) -> Number {
        Number(NonZeroU64::MIN.saturating_add(n))
    }

    /// As a plain number.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.0.get() - 1
    }
}

impl Default for Number {
    fn default() -> Number {
        Number::new(0)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_numbers_and_their_order() {
        let all = [0, 1, 4096, u64::MAX - 2, u64::MAX - 1];
        assert_eq!(all.map(|n| Number::new(n).get()), all);
        assert!(all.map(Number::new).is_sorted());
        assert_eq!(Number::new(u64::MAX), Number::MAX);
        assert_eq!((Number::default().get(), format!("{:?}", Number::new(7))), (0, "7".to_owned()));
        assert_eq!(size_of::<Option<Number>>(), 8);
    }
}
