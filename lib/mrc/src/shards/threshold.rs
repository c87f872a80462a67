//! Selects a fixed number of samples: the tags with the smallest hashes.
//!
//! Idea: at first every tag is sampled. When there are more than allowed, those with the greatest
//! hashes are removed, and from then on only smaller hashes are sampled.
//!
//! Cost: O(log n) for a new sample. Memory: 16 bytes for each sample, up to twice that while it
//! grows.
//! Source: Waldspurger 2015 §3.2.

use std::collections::BinaryHeap;

use crate::hash::TagHash;
use crate::shards::filter;

/// A threshold of hashes that falls.
#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    samples_max: usize,
    hash: TagHash,
    /// The greatest hash that is sampled.
    limit: u64,
    /// Hash and tag of every sample, the greatest hash on top.
    greatest: BinaryHeap<(u64, u64)>,
}

impl Threshold {
    /// At most `samples_max` samples, which is not 0; `seed` selects them.
    pub(crate) fn new(samples_max: usize, seed: u64) -> Self {
        Self { samples_max, hash: TagHash::new(seed), limit: u64::MAX, greatest: BinaryHeap::new() }
    }

    /// Whether every tag has been sampled so far.
    pub(crate) fn is_all(&self) -> bool {
        self.limit == u64::MAX
    }

    /// The share of tags that are sampled.
    pub(crate) fn rate(&self) -> f64 {
        (self.limit as f64 + 1.0) / 2_f64.powi(64)
    }

    /// Whether `tag` is sampled.
    pub(crate) fn has(&self, tag: u64) -> bool {
        self.hash.of(tag) <= self.limit
    }

    /// Appends to `sampled` those of `tags` that are sampled.
    pub(crate) fn sift(&self, tags: &[u64], sampled: &mut Vec<u64>) {
        filter::sift(tags, self.hash, self.limit, sampled);
    }

    /// Adds `tag`, which is sampled and new. If that is one too many the threshold falls, and
    /// `remove` is called for each tag above it, possibly for `tag` itself.
    pub(crate) fn admit(&mut self, tag: u64, mut remove: impl FnMut(u64)) {
        self.greatest.push((self.hash.of(tag), tag));
        if self.greatest.len() <= self.samples_max {
            return;
        }
        let Some(&(greatest, _)) = self.greatest.peek() else { return };
        while let Some(&(hash, tag)) = self.greatest.peek()
            && hash == greatest
        {
            self.greatest.pop();
            remove(tag);
        }
        self.limit = greatest.saturating_sub(1);
    }

    /// Forgets the samples; every tag is sampled again.
    pub(crate) fn begin(&mut self) {
        self.limit = u64::MAX;
        self.greatest.clear();
    }

    /// Starts over with tags that are finer by `bits`.
    pub(crate) fn finer(&mut self, bits: u32) {
        self.hash.finer(bits);
        self.begin();
    }

    /// Continues with tags that are coarser by `bits`. Of `tags`, which are all different, those
    /// become samples whose first member was sampled; the others are removed from `tags`.
    pub(crate) fn coarser(&mut self, bits: u32, tags: &mut Vec<u64>) {
        self.hash.coarser(bits);
        tags.retain(|&tag| self.has(tag));
        self.greatest = tags.iter().map(|&tag| (self.hash.of(tag), tag)).collect();
    }

    /// The memory that it occupies on the heap, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.greatest.capacity() * size_of::<(u64, u64)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_smallest_hashes_stay(
            tags in prop::collection::vec(0..300_u64, 0..400), samples_max in 1..40_usize, seed: u64,
        ) {
            let mut threshold = Threshold::new(samples_max, seed);
            let mut samples: Vec<u64> = Vec::new();
            for &tag in &tags {
                if threshold.has(tag) && !samples.contains(&tag) {
                    samples.push(tag);
                    threshold.admit(tag, |gone| samples.retain(|&one| one != gone));
                }
            }
            let mut expected = tags;
            expected.sort_unstable_by_key(|&tag| threshold.hash.of(tag));
            expected.dedup();
            prop_assert_eq!(threshold.is_all(), expected.len() <= samples_max);
            expected.truncate(samples_max);
            samples.sort_unstable_by_key(|&tag| threshold.hash.of(tag));
            prop_assert_eq!(&samples, &expected);
            // A coarser tag is sampled if its first member was.
            let (fine, limit) = (TagHash::new(seed), threshold.limit);
            let mut coarser: Vec<u64> = (0..150).collect();
            threshold.coarser(1, &mut coarser);
            let expected: Vec<u64> = (0..150).filter(|tag| fine.of(tag << 1) <= limit).collect();
            prop_assert_eq!(threshold.greatest.len(), expected.len());
            prop_assert_eq!(coarser, expected);
            threshold.finer(1);
            prop_assert_eq!((threshold.is_all(), threshold.hash), (true, fine));
        }
    }
}
