//! Removes references to the two latest tags from a block before the stack sees it.
//!
//! Idea: most references of most programs are to the tag of the previous reference (distance 1) or
//! to the one before that (distance 2). Two registers hold both tags. The first kind moves nothing
//! in the stack and is removed. The second kind exchanges the two tags; the next exchange undoes
//! that, so pairs of exchanges are removed, and one without a partner stays. With vectors the same
//! is computed for 64 references together ([`wide`]).
//!
//! Cost: 1 to 2 ns for each reference, a quarter of that with AVX2, without a branch; it pays if a
//! quarter of the references is removed.

mod squeezed;
#[cfg(target_arch = "x86_64")]
mod wide;

use self::squeezed::{Squeezed, WORD};
use super::run::Path;

/// The greatest number of references that are squeezed together; a power of two, so that an index
/// modulo it needs no bounds check.
pub(super) const BLOCK: usize = 4096;

/// The number of references that are examined to decide whether to squeeze a block.
const SAMPLE: usize = 256;

/// Whether squeezing `tags` pays: more than a quarter of the first ones repeat one of the two tags
/// before.
pub(super) fn pays(tags: &[u64]) -> bool {
    let tags = &tags[..tags.len().min(SAMPLE)];
    let again = |after: usize| tags.iter().zip(tags.iter().skip(after)).filter(|(a, b)| a == b);
    (again(1).count() + again(2).count()) * 4 > tags.len()
}

/// Squeezes blocks into buffers that it keeps.
#[derive(Clone, Debug)]
pub(super) struct Squeezer {
    kept: Vec<u64>,
    /// The references that remain after the first of two steps.
    moves: Vec<u64>,
}

impl Squeezer {
    pub(super) fn new() -> Self {
        // One word of references more, because they are packed by words.
        Self { kept: vec![0; BLOCK + WORD], moves: vec![0; BLOCK + WORD] }
    }

    /// Squeezes at least one and at most [`BLOCK`] references.
    pub(super) fn squeeze(&mut self, path: Path, tags: &[u64]) -> Squeezed {
        assert!(!tags.is_empty() && tags.len() <= BLOCK);
        match path {
            Path::Portable => {
                squeeze(tags, self.kept.first_chunk_mut().expect("longer than a block"))
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Path::Avx2` is made by `Path::detected` only, after asking the processor.
            #[allow(unsafe_code)]
            Path::Avx2 => unsafe { wide::squeeze(tags, &mut self.moves, &mut self.kept) },
        }
    }

    /// The rest of the last block.
    pub(super) fn kept(&self, squeezed: Squeezed) -> &[u64] {
        &self.kept[..squeezed.kept]
    }

    /// The memory that it occupies on the heap, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.kept.capacity() + self.moves.capacity()) * size_of::<u64>()
    }
}

/// Squeezes `tags` into `kept`, one by one.
fn squeeze(tags: &[u64], kept: &mut [u64; BLOCK]) -> Squeezed {
    let (mut first, mut second) = (tags[0], tags[0]);
    kept[0] = first;
    let (mut len, mut pairs) = (1, 0);
    // 1 if the last reference that was kept is an exchange.
    let mut exchanged = 0;
    for &tag in &tags[1..] {
        let moves = usize::from(tag != first);
        let exchanges = usize::from(tag == second) & moves;
        // The previous exchange is removed, and this one is not added.
        let undone = exchanges & exchanged;
        kept[len % BLOCK] = tag;
        len = len + moves - 2 * undone;
        pairs += undone;
        (exchanged, second) =
            if moves == 0 { (exchanged, second) } else { (exchanges ^ undone, first) };
        first = tag;
    }
    let ones = tags.len() - len - 2 * pairs;
    Squeezed { kept: len, ones: ones as u64, twos: 2 * pairs as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{List, Stack};

    /// The rest of a block, which must be the same on every path.
    fn kept(tags: &[u64]) -> (Vec<u64>, Squeezed) {
        let on = |path| {
            let mut squeezer = Squeezer::new();
            let squeezed = squeezer.squeeze(path, tags);
            (squeezer.kept(squeezed).to_vec(), squeezed)
        };
        let portable = on(Path::Portable);
        assert_eq!(portable, on(Path::detected()));
        portable
    }

    #[test]
    fn repetitions_are_left_out() {
        for (tags, left, ones, twos) in [
            (&[7][..], &[7][..], 0, 0),
            (&[7, 7, 7], &[7], 2, 0),
            (&[1, 2, 1, 2], &[1, 2], 0, 2),
            (&[1, 2, 1], &[1, 2, 1], 0, 0),
            (&[1, 2, 1, 2, 1, 3, 1], &[1, 2, 1, 3, 1], 0, 2),
            (&[1, 2, 2, 1, 1, 2, 3], &[1, 2, 3], 2, 2),
            (&[1, 2, 3, 1, 2, 3], &[1, 2, 3, 1, 2, 3], 0, 0),
        ] {
            let expected = Squeezed { kept: left.len(), ones, twos };
            assert_eq!(kept(tags), (left.to_vec(), expected), "{tags:?}");
        }
    }

    #[test]
    fn rows_of_any_length_at_any_place_are_squeezed() {
        // Exchanges across the edges of words, within a block and at its end.
        for before in [0, 1, 2, 59, 60, 61, 62, 63, 64, 65, 124, 125, 126, 127, 128] {
            for row in [0, 1, 2, 3, 61, 62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 200] {
                for after in [0, 1, 70] {
                    let singles = (10..10 + before).chain([1, 2]);
                    let exchanges = (0..row).map(|at| 1 + at % 2);
                    let tags: Vec<u64> =
                        singles.clone().chain(exchanges).chain(500..500 + after).collect();
                    let last = (row % 2 == 1).then_some(1);
                    let left: Vec<u64> = singles.chain(last).chain(500..500 + after).collect();
                    let expected = Squeezed { kept: left.len(), ones: 0, twos: row & !1 };
                    assert_eq!(kept(&tags), (left, expected), "{before} {row} {after}");
                }
            }
        }
    }

    #[test]
    fn a_block_of_one_or_two_tags_is_compacted() {
        let one = Squeezed { kept: 1, ones: BLOCK as u64 - 1, twos: 0 };
        assert_eq!(kept(&[0; BLOCK]), (vec![0], one));
        let two: Vec<u64> = (0..BLOCK as u64).map(|at| at % 2).collect();
        let expected = Squeezed { kept: 2, ones: 0, twos: BLOCK as u64 - 2 };
        assert_eq!(kept(&two), (vec![0, 1], expected));
    }

    #[test]
    fn a_block_without_repetitions_stays_whole() {
        let tags: Vec<u64> = (0..BLOCK as u64).collect();
        assert_eq!(kept(&tags), (tags, Squeezed { kept: BLOCK, ones: 0, twos: 0 }));
    }

    proptest! {
        #[test]
        fn vectors_leave_what_one_by_one_leaves(
            rows in prop::collection::vec((0..9_u64, 0..9_u64, 0..150_usize), 0..60),
            cut in 1..=BLOCK,
        ) {
            let row = |&(one, other, len)| (0..len).map(move |at| [one, other][at % 2]);
            let tags: Vec<u64> = [0].into_iter().chain(rows.iter().flat_map(row)).collect();
            // `kept` compares them.
            let (_, squeezed) = kept(&tags[..tags.len().min(cut)]);
            let total = squeezed.kept as u64 + squeezed.ones + squeezed.twos;
            prop_assert_eq!(total, tags.len().min(cut) as u64);
        }

        #[test]
        fn counts_and_order_stay_as_they_are(
            before in prop::collection::vec(0..5_u64, 0..5),
            tags in prop::collection::vec(prop_oneof![3 => 0..3_u64, 1 => 0..8_u64], 1..200),
        ) {
            let counted = |tags: &[u64]| {
                let mut stack = List::new();
                stack.reference(&before, &mut vec![0; before.len()]).unwrap();
                let mut distances = vec![0; tags.len()];
                stack.reference(tags, &mut distances).unwrap();
                let mut counts = [0_u64; 10];
                distances.iter().for_each(|&distance| counts[distance as usize] += 1);
                (counts, stack.order())
            };
            let (left, squeezed) = kept(&tags);
            let (mut counts, order) = counted(&left);
            counts[1] += squeezed.ones;
            counts[2] += squeezed.twos;
            prop_assert_eq!((counts, order), counted(&tags));
        }
    }
}
