//! What a parser holds at most.

/// References after which a push stops: a block. Its last record may add some more (a lackey access
/// that spans pages, at most [`ACCESS_BYTES_MAX`](super::ACCESS_BYTES_MAX)).
pub const BLOCK_REFERENCES: usize = 64 << 10;

/// Longest line of text or row of CSV, in bytes. Far above what any tool writes; a file without
/// line ends is not a text trace, and must not be held whole to find out.
pub const LINE_BYTES_MAX: usize = 64 << 10;
