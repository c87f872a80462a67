//! Maps tags to dense numbers, in the order of their first reference.
//!
//! Idea: while tags are small numbers, an array has the number of each; when they become sparse a
//! hash table is used, until there are enough tags for an array again. To change back again, the
//! number of tags has to at least double, so moving them costs O(1) for each tag.
//!
//! For many tags together ([`TagIndex::number_all`]) there is a small table in front, of recent
//! tags, each in the only place that it may have: programs return to few tags.
//!
//! Cost: one load in the array, or a probe in the table, which takes twice as long as in the small
//! table. Memory: 8 bytes for each tag itself; the array has at most [`DENSE_SPREAD`] entries of 4
//! bytes for each tag (or [`DENSE_MIN`] in total), the table at most 40 bytes for each tag, the
//! small table 16 KiB.

use hashbrown::HashMap;

use crate::{Full, TAGS_MAX};

/// Entries that the array may always have: 256 KiB.
const DENSE_MIN: usize = 1 << 16;
/// Entries of the array for each tag: 32 bytes, about as much as the table would take.
const DENSE_SPREAD: usize = 8;
/// Entries for each tag at which the table is replaced by an array; half of the maximum, so that
/// the next tag does not change it back.
const DENSE_AGAIN: usize = DENSE_SPREAD / 2;

/// Places for recent tags: 16 KiB.
const NEAR: usize = 1024;

/// Entry of the array for an absent tag.
const ABSENT: u32 = u32::MAX;

/// Numbers tags from 0 in order of their first reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct TagIndex {
    /// The tags, by number.
    tags: Vec<u64>,
    /// The numbers, by tag; empty while the table is used.
    dense: Vec<u32>,
    /// The numbers, by tag, while tags are sparse; else empty.
    sparse: HashMap<u64, u32>,
    /// Recent tags of the table with their numbers; empty until many tags are numbered together.
    near: Vec<(u64, u32)>,
    is_sparse: bool,
    /// The greatest tag so far.
    greatest: u64,
}

impl TagIndex {
    /// The number of `tag`, and whether it is new.
    ///
    /// # Errors
    /// [`Full`] if it is new and there are [`TAGS_MAX`] tags already.
    #[inline]
    pub(crate) fn number(&mut self, tag: u64) -> Result<(u32, bool), Full> {
        match self.find(tag) {
            Some(number) => Ok((number, false)),
            None => Ok((self.insert(tag)?, true)),
        }
    }

    /// Writes the numbers of `tags`.
    ///
    /// # Errors
    /// [`Full`] as for [`number`](Self::number); tags before are numbered.
    pub(crate) fn number_all(&mut self, tags: &[u64], numbers: &mut [u32]) -> Result<(), Full> {
        assert_eq!(tags.len(), numbers.len());
        let mut near = std::mem::take(&mut self.near);
        if self.is_sparse {
            near.resize(NEAR, (0, ABSENT));
        }
        let result = match near.first_chunk_mut() {
            Some(near) => self.number_near(near, tags, numbers),
            None => tags.iter().zip(numbers).try_for_each(|(&tag, number)| {
                *number = self.number(tag)?.0;
                Ok(())
            }),
        };
        self.near = near;
        result
    }

    fn number_near(
        &mut self,
        near: &mut [(u64, u32); NEAR],
        tags: &[u64],
        numbers: &mut [u32],
    ) -> Result<(), Full> {
        for (&tag, number) in tags.iter().zip(numbers) {
            // Neighbouring tags are spread, so that they do not share a place.
            let spread = tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let place = &mut near[spread as usize % NEAR];
            // An entry never becomes invalid, because numbers never change.
            if place.0 != tag || place.1 == ABSENT {
                *place = (tag, self.number(tag)?.0);
            }
            *number = place.1;
        }
        Ok(())
    }

    /// The number of `tag`, if it has one.
    #[inline]
    pub(crate) fn find(&self, tag: u64) -> Option<u32> {
        if self.is_sparse {
            return self.sparse.get(&tag).copied();
        }
        let number = usize::try_from(tag).ok().and_then(|at| self.dense.get(at).copied());
        number.filter(|&number| number != ABSENT)
    }

    #[cold]
    fn insert(&mut self, tag: u64) -> Result<u32, Full> {
        if self.len() >= TAGS_MAX {
            return Err(Full);
        }
        let number = self.tags.len() as u32;
        self.tags.push(tag);
        self.greatest = self.greatest.max(tag);
        if self.is_sparse {
            self.sparse.insert(tag, number);
            if self.greatest < (self.tags.len() * DENSE_AGAIN) as u64 {
                self.make_dense();
            }
        } else if tag < self.dense_max() as u64 {
            self.reach(tag as usize);
            self.dense[tag as usize] = number;
        } else {
            self.make_sparse();
        }
        Ok(number)
    }

    /// The greatest number of entries that the array may have now.
    fn dense_max(&self) -> usize {
        DENSE_MIN.max(self.tags.len() * DENSE_SPREAD)
    }

    /// Makes the array long enough for `at`, and twice as long as before if that is allowed.
    fn reach(&mut self, at: usize) {
        if at < self.dense.len() {
            return;
        }
        let len = (self.dense.len() * 2).clamp(at + 1, self.dense_max());
        self.dense.reserve_exact(len - self.dense.len());
        self.dense.resize(len, ABSENT);
    }

    fn make_dense(&mut self) {
        self.is_sparse = false;
        self.sparse = HashMap::new();
        self.reach(self.greatest as usize);
        for (number, &tag) in self.tags.iter().enumerate() {
            self.dense[tag as usize] = number as u32;
        }
    }

    fn make_sparse(&mut self) {
        self.is_sparse = true;
        self.dense = Vec::new();
        self.sparse.reserve(self.tags.len());
        self.sparse.extend(self.tags.iter().zip(0..).map(|(&tag, number)| (tag, number)));
    }

    /// The tag with this number.
    pub(crate) fn tag(&self, number: u32) -> u64 {
        self.tags[number as usize]
    }

    /// The greatest tag; 0 if there is none.
    pub(crate) fn greatest(&self) -> u64 {
        self.greatest
    }

    /// The number of tags.
    pub(crate) fn len(&self) -> u64 {
        self.tags.len() as u64
    }

    /// The memory that it occupies on the heap, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let arrays = self.tags.capacity() * size_of::<u64>()
            + self.dense.capacity() * size_of::<u32>()
            + self.near.capacity() * size_of::<(u64, u32)>();
        (arrays + self.sparse.allocation_size()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers `tags`, and compares the index with a search of all earlier tags, and its memory
    /// with its bound.
    fn check(tags: impl IntoIterator<Item = u64>) -> TagIndex {
        let mut index = TagIndex::default();
        let mut seen = hashbrown::HashMap::new();
        for tag in tags {
            let next = seen.len() as u32;
            let expected = *seen.entry(tag).or_insert(next);
            assert_eq!(index.number(tag), Ok((expected, seen.len() as u32 > next)), "{tag}");
            assert_eq!(index.tag(expected), tag);
            assert_eq!(index.len(), seen.len() as u64);
            let bound = 4 * DENSE_MIN as u64 + 64 + (16 + 40) * index.len();
            assert!(index.memory_bytes() <= bound, "{} at {}", index.memory_bytes(), index.len());
        }
        index
    }

    #[test]
    fn small_numbers_stay_in_the_array() {
        assert!(!check(0..200_000).is_sparse);
        assert!(!check((0..DENSE_MIN as u64).rev()).is_sparse);
    }

    #[test]
    fn great_numbers_go_to_the_table() {
        assert!(check([0, 1 << 40, u64::MAX, 0, 1 << 40]).is_sparse);
        assert!(check((0..1000).map(|tag| tag << 32)).is_sparse);
    }

    #[test]
    fn a_range_met_from_its_end_returns_to_the_array() {
        let range = 0..300_000_u64;
        assert!(check(range.clone().rev().take(1000)).is_sparse);
        assert!(!check(range.rev()).is_sparse);
    }

    #[test]
    fn there_and_back_again_keeps_the_numbers() {
        let low = 0..40_000_u64;
        let index = check(low.clone().chain([400_000]).chain(40_000..150_000).chain(low));
        assert!(!index.is_sparse);
    }

    #[test]
    fn many_at_once_are_numbered_as_one_by_one() {
        // Small tags, sparse tags that recur, more of them than there are places, and dense tags.
        let sparse = (0..5000_u64).map(|at| (at * at % 3001) << 30);
        let tags: Vec<u64> = (0..100).chain(sparse).chain([0, 0]).chain(0..300_000).collect();
        let (mut one_by_one, mut at_once) = (TagIndex::default(), TagIndex::default());
        for tags in tags.chunks(700) {
            let expected: Vec<u32> =
                tags.iter().map(|&tag| one_by_one.number(tag).unwrap().0).collect();
            let mut numbers = vec![0; tags.len()];
            assert_eq!(at_once.number_all(tags, &mut numbers), Ok(()));
            assert_eq!(numbers, expected);
        }
        assert_eq!(at_once.near.len(), NEAR);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn numbers_are_those_of_first_reference(
            tags in prop::collection::vec(
                prop_oneof![0..50_u64, 0..100_000_u64, 0..1_000_000_u64, any::<u64>()], 0..2000,
            ),
        ) {
            check(tags);
        }
    }
}
