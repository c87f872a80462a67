//! The interface of exact engines: tags in LRU order, and the position at which each is found.
//!
//! Idea: a stack only turns references into distances. Counting them
//! ([`Histogram`](crate::Histogram)), grouping pages into tags, and sampling are layers above it,
//! the same for every stack.

use thiserror::Error;

use crate::distances::add_distances;

/// The distance of a tag's first reference, when the tag was not in the stack.
pub const COLD: u32 = 0;

/// The greatest number of different tags in a stack: 2^31, which is 8 TiB with pages of 4 KiB.
///
/// Slots and distances have 32 bits, and half of the slots are needed for moving tags.
pub const TAGS_MAX: u64 = 1 << 31;

/// A stack has no room for another tag; the references before it have been counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {TAGS_MAX} different tags: use a coarser granularity or a sampling engine")]
pub struct Full;

/// Tags in order of their latest reference.
pub trait Stack {
    /// References `tags` in order and writes the distance of each: its position (1 is the most
    /// recently referenced) before it moved to the front, or [`COLD`]. No distance is above
    /// [`Self::len`].
    ///
    /// # Errors
    /// [`Full`] if there are too many different tags: the references before that have been made and
    /// their distances written; the rest of `distances` is unchanged.
    ///
    /// # Panics
    /// If `distances` is not as long as `tags`.
    fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full>;

    /// References `tags` in order and adds 1 to `counts[distance]` for each; `counts` grows to one
    /// more than the number of tags. Returns how many references were made: all, or those before
    /// the error.
    ///
    /// Some stacks count faster than they write each distance; the counts are the same.
    ///
    /// # Errors
    /// [`Full`] if there are too many different tags; the references before that are counted.
    fn count(&mut self, tags: &[u64], counts: &mut Vec<u64>) -> (u64, Result<(), Full>) {
        count_blocks(self, tags, counts)
    }

    /// The number of different tags.
    fn len(&self) -> u64;

    /// Whether nothing has been referenced yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tags, most recently referenced first.
    fn order(&self) -> Vec<u64>;

    /// Replaces all tags by those in `order`, most recently referenced first. If a tag is named
    /// twice the first place counts.
    ///
    /// # Errors
    /// [`Full`] if there are too many different tags.
    fn restore(&mut self, order: &[u64]) -> Result<(), Full>;

    /// The memory that the stack occupies on the heap, in bytes.
    fn memory_bytes(&self) -> u64;
}

impl<S: Stack + ?Sized> Stack for Box<S> {
    fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        (**self).reference(tags, distances)
    }

    fn count(&mut self, tags: &[u64], counts: &mut Vec<u64>) -> (u64, Result<(), Full>) {
        (**self).count(tags, counts)
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn order(&self) -> Vec<u64> {
        (**self).order()
    }

    fn restore(&mut self, order: &[u64]) -> Result<(), Full> {
        (**self).restore(order)
    }

    fn memory_bytes(&self) -> u64 {
        (**self).memory_bytes()
    }
}

/// Tags that are referenced together: their distances occupy 4 KiB.
pub(crate) const BLOCK: usize = 1024;

/// Marks an unwritten distance, which shows how far a stack came before it was full.
pub(crate) const UNWRITTEN: u32 = u32::MAX;

/// References a block, and returns how many references the stack made.
pub(crate) fn reference_block<S: Stack + ?Sized>(
    stack: &mut S,
    tags: &[u64],
    distances: &mut [u32],
) -> (usize, Result<(), Full>) {
    distances.fill(UNWRITTEN);
    let result = stack.reference(tags, distances);
    let unwritten = || distances.iter().position(|&distance| distance == UNWRITTEN);
    let taken = if result.is_ok() { None } else { unwritten() };
    (taken.unwrap_or(tags.len()), result)
}

/// References `tags` in blocks and counts their distances: the default of [`Stack::count`].
pub(crate) fn count_blocks<S: Stack + ?Sized>(
    stack: &mut S,
    tags: &[u64],
    counts: &mut Vec<u64>,
) -> (u64, Result<(), Full>) {
    let (mut distances, mut all_taken) = ([0; BLOCK], 0);
    for block in tags.chunks(BLOCK) {
        let distances = &mut distances[..block.len()];
        let (taken, result) = reference_block(stack, block, distances);
        add_distances(counts, stack.len(), &distances[..taken]);
        all_taken += taken as u64;
        if result.is_err() {
            return (all_taken, result);
        }
    }
    (all_taken, Ok(()))
}

/// For tests of the layers above.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Full, Stack};
    use crate::List;

    /// A list that is full once it has the given number of tags.
    pub(crate) struct BoundedList(pub(crate) List, pub(crate) u64);

    impl Stack for BoundedList {
        fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
            for (tag, distance) in tags.iter().zip(distances) {
                if self.0.len() == self.1 {
                    return Err(Full);
                }
                self.0.reference(&[*tag], std::slice::from_mut(distance))?;
            }
            Ok(())
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn order(&self) -> Vec<u64> {
            self.0.order()
        }

        fn restore(&mut self, order: &[u64]) -> Result<(), Full> {
            self.0.restore(order)
        }

        fn memory_bytes(&self) -> u64 {
            self.0.memory_bytes()
        }
    }
}
