//! Floor and ceiling of one guest.

use crate::Bytes;

/// The least and the most that one guest may be allocated, in whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Guaranteed minimum.
    pub floor: Bytes,
    /// Largest allocation, at least `floor`.
    pub ceiling: Bytes,
}
