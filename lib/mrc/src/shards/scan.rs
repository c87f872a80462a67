//! Finds the samples of a scan one after the other, without hashing the tags between them.
//!
//! Idea: the hashes of consecutive tags are a rotation: each is the previous one plus `a`, modulo
//! 2^64. The step from one sampled tag to the next is a rotation, too, and it has only three
//! lengths. Let `up` be the least number of tags that increases a hash by at most `limit`, namely
//! by `α`, and `down` the least that decreases it by at most `limit`, namely by `β`. From the hash
//! `x` of a sampled tag the next sampled tag is
//!
//! ```text
//! up tags on         when x + α is at most limit
//! down tags on       when x is at least β             never both, as α + β is above limit
//! up + down tags on  otherwise
//! ```
//!
//! `up` and `down` come from Euclid's algorithm on `a` and `2^64 − a`: the smaller is subtracted
//! from the greater until both are at most `limit`.
//!
//! Cost: O(1) for each sample, whatever lies between; at most `2 · GAP_MAX` subtractions at the
//! start.
//! Source: the three-gap theorem (Sós 1958; Slater 1967).
//! Limits: if a step would be longer than [`GAP_MAX`] there is no walk, and tags are hashed.

use crate::hash::TagHash;
use crate::shards::filter;

/// The greatest `up` and `down` of a walk: at rates of 0.01 and more every seed that was tried has
/// smaller ones.
const GAP_MAX: u64 = 1 << 16;
/// Tags that are hashed together to find the first sample of a scan.
const SEARCH: usize = 64;

/// Steps from sample to sample.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    hash: TagHash,
    limit: u64,
    /// A number of tags, and by how much they increase a hash.
    up: (u64, u64),
    /// A number of tags, and by how much they decrease a hash.
    down: (u64, u64),
    /// The end of the latest scan, and the first sampled tag from there on.
    left: Option<(u64, u64)>,
}

impl Walk {
    /// A walk along the tags whose hash is at most `limit`; `None` if steps are too long.
    pub(crate) fn new(hash: TagHash, limit: u64) -> Option<Self> {
        let (mut up, mut down) = ((1, hash.factor), (1, hash.factor.wrapping_neg()));
        // One of the lengths grows by at least 1 in each round.
        while up.1.max(down.1) > limit {
            if up.1 > down.1 {
                up = (up.0 + down.0, up.1 - down.1);
            } else {
                down = (up.0 + down.0, down.1 - up.1);
            }
            if up.0.max(down.0) > GAP_MAX {
                return None;
            }
        }
        Some(Self { hash, limit, up, down, left: None })
    }

    /// Appends those of `tags` that are sampled; `tags` are consecutive numbers in rising order.
    pub(crate) fn sift(&mut self, tags: &[u64], sampled: &mut Vec<u64>) {
        let Some(&first) = tags.first() else { return };
        let len = tags.len() as u64;
        let mut at = match self.left {
            Some((end, next)) if end == first => next.wrapping_sub(first),
            _ => match self.search(tags, sampled) {
                Some(at) => at,
                None => return,
            },
        };
        let mut hash = self.hash.of(first.wrapping_add(at));
        while at < len {
            sampled.push(first.wrapping_add(at));
            (at, hash) = self.next(at, hash);
        }
        self.left = Some((first.wrapping_add(len), first.wrapping_add(at)));
    }

    /// The index of the first sampled tag.
    fn search(&self, tags: &[u64], sampled: &mut Vec<u64>) -> Option<u64> {
        let before = sampled.len();
        for part in tags.chunks(SEARCH) {
            filter::sift(part, self.hash, self.limit, sampled);
            if let Some(&found) = sampled.get(before) {
                sampled.truncate(before);
                return Some(found.wrapping_sub(tags[0]));
            }
        }
        None
    }

    /// The sampled tag after the one at `at`. The step is unpredictable, so there is no branch.
    #[inline(always)]
    fn next(&self, at: u64, hash: u64) -> (u64, u64) {
        let keeps_up = hash < self.down.1;
        let keeps_down = hash > self.limit - self.up.1;
        let up = if keeps_up { self.up } else { (0, 0) };
        let down = if keeps_down { self.down } else { (0, 0) };
        (at + up.0 + down.0, hash.wrapping_add(up.1).wrapping_sub(down.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::Random;

    fn walked(hash: TagHash, limit: u64, first: u64, lens: &[u64]) -> Option<bool> {
        let mut walk = Walk::new(hash, limit)?;
        let (mut sampled, mut expected, mut first) = (vec![7], vec![7], first);
        for &len in lens {
            let tags: Vec<u64> = (0..len).map(|at| first.wrapping_add(at)).collect();
            walk.sift(&tags, &mut sampled);
            expected.extend(tags.iter().filter(|&&tag| hash.of(tag) <= limit));
            first = first.wrapping_add(len);
        }
        Some(sampled == expected)
    }

    #[test]
    fn steps_of_a_small_factor_by_hand() {
        // In sixteenths of 2^64 tags 0 to 15 have 0 7 14 5 12 3 10 1 8 15 6 13 4 11 2 9; those
        // below 4 are sampled. 2 tags move down by 2, 5 tags move up by 35 = 3.
        let mut hash = TagHash::new(1);
        (hash.factor, hash.offset) = (7 << 60, 0);
        let limit = (4 << 60) - 1;
        let mut walk = Walk::new(hash, limit).unwrap();
        assert_eq!((walk.up, walk.down), ((5, 3 << 60), (2, 2 << 60)));
        let (mut sampled, tags) = (vec![], (0..16).collect::<Vec<_>>());
        walk.sift(&tags, &mut sampled);
        assert_eq!(sampled, [0, 5, 7, 14]);
    }

    #[test]
    fn scans_are_sifted_as_by_hashing() {
        let mut random = Random::new(3);
        for seed in 0..200 {
            for rate in [0.0015, 0.01, 0.1, 0.5, 0.9, 1.0] {
                let limit = (rate * 2_f64.powi(64)) as u64;
                let lens = [1024, 1024, 0, 5, 700, 3000];
                let hash = TagHash::new(seed);
                match walked(hash, limit, random.next(), &lens) {
                    Some(is_same) => assert!(is_same, "{seed} {rate}"),
                    None => assert!(rate < 0.01, "{seed} {rate}"),
                }
            }
        }
    }

    #[test]
    fn a_scan_elsewhere_is_searched_again() {
        let (hash, limit) = (TagHash::new(5), u64::MAX / 100);
        let mut walk = Walk::new(hash, limit).unwrap();
        for first in [0, 1024, 100, 5000, 6024, u64::MAX - 500] {
            let tags: Vec<u64> = (0..1024).map(|at| u64::wrapping_add(first, at)).collect();
            let mut sampled = vec![];
            walk.sift(&tags, &mut sampled);
            let expected: Vec<u64> =
                tags.iter().copied().filter(|&tag| hash.of(tag) <= limit).collect();
            assert_eq!(sampled, expected, "{first}");
        }
    }

    #[test]
    fn there_is_no_walk_with_few_samples() {
        assert!(Walk::new(TagHash::new(1), 0).is_none());
        assert!(Walk::new(TagHash::new(1), 1 << 40).is_none());
    }

    proptest! {
        #[test]
        fn a_walk_agrees_for_any_factor_and_limit(seed: u64, bits in 0..25_u32, limit: u64, shift in 0..10_u32, first: u64) {
            let mut hash = TagHash::new(seed);
            hash.coarser(bits);
            let is_same = walked(hash, limit >> shift, first, &[100, 1024, 64, 1]);
            prop_assert_ne!(is_same, Some(false));
        }
    }
}
