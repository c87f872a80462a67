//! The most that a parser holds.

/// The number of references after which a push stops: a block. The last record may add some more (a
/// lackey access that spans pages, at most [`ACCESS_BYTES_MAX`](super::ACCESS_BYTES_MAX)).
pub const BLOCK_REFERENCES: usize = 64 << 10;

/// Longest line of text or row of CSV, in bytes, far above what any tool writes. A file without
/// line ends is not a text trace; the limit finds this without holding the whole file.
pub const LINE_BYTES_MAX: usize = 64 << 10;
