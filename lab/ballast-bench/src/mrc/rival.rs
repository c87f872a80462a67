//! What rivals have in common.

/// A rival: it finds stack distances of dense page numbers.
pub(super) trait Distances {
    /// The distance of a page, or 0 the first time; it moves to the front.
    fn touch(&mut self, page: u64) -> u32;

    /// The number of different pages.
    fn pages(&self) -> u64;

    /// What it occupies on the heap, in bytes.
    fn memory_bytes(&self) -> u64;
}
