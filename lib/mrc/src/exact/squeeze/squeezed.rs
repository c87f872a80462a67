//! What squeezing a block leaves, by words of references.

/// References that vectors compare and pack together.
pub(super) const WORD: usize = 64;

/// What is left of a block, and what was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) struct Squeezed {
    /// How many references are left.
    pub(in crate::exact) kept: usize,
    /// How many were left out at distance 1.
    pub(in crate::exact) ones: u64,
    /// How many were left out at distance 2.
    pub(in crate::exact) twos: u64,
}
