//! The interface of rivals.

/// A rival, which finds stack distances of dense page numbers.
pub(super) trait Distances {
    /// The distance of a page, or 0 at its first reference; the page moves to the front.
    fn touch(&mut self, page: u64) -> u32;

    /// The number of different pages.
    fn pages(&self) -> u64;

    /// The memory that it occupies on the heap, in bytes.
    fn memory_bytes(&self) -> u64;
}
