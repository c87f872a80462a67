//! The integers that solvers add up.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

/// An unsigned integer that is wide enough: 64 bits where every sum fits, 128 where it may not.
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
    /// Nothing.
    const ZERO: Self;
    /// More than any sum that counts; twice of it is in range.
    const END: Self;
}

impl Cost for u64 {
    const ZERO: Self = 0;
    const END: Self = 1 << 62;
}

impl Cost for u128 {
    const ZERO: Self = 0;
    const END: Self = 1 << 126;
}
