//! The oracle of long streams: a mark at each tag's latest reference, counted by a Fenwick tree.
//!
//! Idea: the distance is the number of marks since the tag's latest reference. Places are never
//! reused, so there is nothing to renumber and little that can be wrong. Source: Bennett and
//! Kruskal 1975.
//! Cost: O(log n) for each reference; 4 bytes for each reference, and their number must be known in
//! advance.

use ballast_mrc::COLD;
use hashbrown::HashMap;

/// The marks over time.
pub(crate) struct Timeline {
    latest: HashMap<u64, usize>,
    /// From 1: the number of marks in the places that end here; how many places that covers is
    /// given by the lowest set bit of the index.
    sums: Vec<i32>,
    now: usize,
}

impl Timeline {
    /// Without marks; for at most `references` references.
    pub(crate) fn new(references: usize) -> Self {
        Self { latest: HashMap::new(), sums: vec![0; references + 1], now: 0 }
    }

    /// The distance of `tag`; its mark moves to the present.
    pub(crate) fn reference(&mut self, tag: u64) -> u32 {
        self.now += 1;
        let before = self.latest.insert(tag, self.now);
        let distance = before.map_or(COLD, |at| {
            // All marks except those before it; its own is included.
            let distance = self.latest.len() as i32 - self.marks_to(at - 1);
            self.add(at, -1);
            distance as u32
        });
        self.add(self.now, 1);
        distance
    }

    /// The tags, most recently referenced first.
    pub(crate) fn order(&self) -> Vec<u64> {
        let mut tags = vec![None; self.now + 1];
        self.latest.iter().for_each(|(&tag, &at)| tags[at] = Some(tag));
        tags.into_iter().rev().flatten().collect()
    }

    fn marks_to(&self, mut at: usize) -> i32 {
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }

    fn add(&mut self, mut at: usize, mark: i32) {
        while at < self.sums.len() {
            self.sums[at] += mark;
            at += at & at.wrapping_neg();
        }
    }
}
