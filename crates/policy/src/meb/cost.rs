//! Integer types for the sums of the solvers.
//!
//! Idea: the narrower the type, the more values a processor adds and compares at once. With
//! baseline instructions it compares four 32-bit values in the time of one of 64 bits.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

/// An unsigned integer type: 64 bits if every sum fits, 128 if it may not, and 32 if only small
/// sums matter.
pub(super) trait Cost:
    Copy
    + Ord
    + Debug
    + From<u64>
    + Into<u128>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Sum
{
    /// Zero.
    const ZERO: Self;
    /// More than any sum that matters; twice this value is in range.
    const END: Self;
}

impl Cost for u64 {
    const ZERO: Self = 0;
    const END: Self = 1 << 62;
}

/// 32 bits; values from [`Cost::END`] on are too large to matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Narrow(i32);

impl Cost for Narrow {
    const ZERO: Self = Self(0);
    const END: Self = Self(1 << 29);
}

impl From<u64> for Narrow {
    fn from(n: u64) -> Self {
        Self(i32::try_from(n).unwrap_or(i32::MAX).min(Self::END.0))
    }
}

impl From<Narrow> for u128 {
    fn from(narrow: Narrow) -> Self {
        narrow.0.unsigned_abs().into()
    }
}

impl Ord for Narrow {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }

    fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

impl PartialOrd for Narrow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Add for Narrow {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Narrow {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul for Narrow {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
}

impl Div for Narrow {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        Self(self.0 / other.0)
    }
}

impl Sum for Narrow {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl Cost for u128 {
    const ZERO: Self = 0;
    const END: Self = 1 << 126;
}
