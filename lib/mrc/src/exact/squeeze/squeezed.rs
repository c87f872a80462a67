//! The result of squeezing a block.

/// References that vectors compare and pack together.
pub(super) const WORD: usize = 64;

/// The rest of a block, and the counts of what was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exact) struct Squeezed {
    /// The number of references that remain.
    pub(in crate::exact) kept: usize,
    /// The number of references that were removed at distance 1.
    pub(in crate::exact) ones: u64,
    /// The number of references that were removed at distance 2.
    pub(in crate::exact) twos: u64,
}
