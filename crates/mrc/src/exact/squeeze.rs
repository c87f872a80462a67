//! References to the two latest tags, taken out of a block before the stack sees it.
//!
//! Idea: most references of most programs are to the tag of the reference before (distance 1) or to the
//! one before that (distance 2). Two registers know both. The first kind moves nothing in the stack and
//! is left out. The second exchanges the two; the next exchange undoes it, so that pairs of them are
//! left out, and one without a partner stays.
//!
//! Cost: 1 to 2 ns a reference, without a branch; it pays where a quarter is left out.

/// References that are squeezed at once, at most; a power of two, so that an index modulo it needs no
/// check.
pub(super) const BLOCK: usize = 4096;

/// References looked at before a block is squeezed.
const SAMPLE: usize = 256;

/// What is left of a block, and what was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Squeezed {
    /// How many references are left.
    pub(super) kept: usize,
    /// How many were left out at distance 1.
    pub(super) ones: u64,
    /// How many were left out at distance 2.
    pub(super) twos: u64,
}

/// Whether it pays to squeeze `tags`: of the first ones more than a quarter repeat one of the two
/// before.
pub(super) fn pays(tags: &[u64]) -> bool {
    let tags = &tags[..tags.len().min(SAMPLE)];
    let again = |after: usize| tags.iter().zip(tags.iter().skip(after)).filter(|(a, b)| a == b);
    (again(1).count() + again(2).count()) * 4 > tags.len()
}

/// Squeezes at least one and at most [`BLOCK`] references into `kept`.
pub(super) fn squeeze(tags: &[u64], kept: &mut [u64; BLOCK]) -> Squeezed {
    assert!(!tags.is_empty() && tags.len() <= BLOCK);
    let (mut first, mut second) = (tags[0], tags[0]);
    kept[0] = first;
    let (mut len, mut pairs) = (1, 0);
    // 1 if the last reference kept is an exchange.
    let mut exchanged = 0;
    for &tag in &tags[1..] {
        let moves = usize::from(tag != first);
        let exchanges = usize::from(tag == second) & moves;
        // The exchange before goes, and this one does not come.
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

    fn kept(tags: &[u64]) -> (Vec<u64>, Squeezed) {
        let mut kept = [0; BLOCK];
        let squeezed = squeeze(tags, &mut kept);
        (kept[..squeezed.kept].to_vec(), squeezed)
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
    fn a_block_without_repetitions_stays_whole() {
        let tags: Vec<u64> = (0..BLOCK as u64).collect();
        assert_eq!(kept(&tags), (tags, Squeezed { kept: BLOCK, ones: 0, twos: 0 }));
    }

    proptest! {
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
