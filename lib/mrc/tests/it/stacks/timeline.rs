//! The oracle of long streams: a mark at each tag's latest moment, counted by a Fenwick tree.
//!
//! Idea: the distance is the number of marks since the tag's latest moment. Moments are never used
//! again, so there is nothing to renumber and little to do wrong. Source: Bennett and Kruskal 1975.
//! Cost: O(log n) a reference; 4 bytes a reference, whose number must be known before.

use ballast_mrc::COLD;
use hashbrown::HashMap;

/// Moments with marks.
pub(crate) struct Timeline {
    latest: HashMap<u64, usize>,
    /// From 1: the marks in the moments that end there, as many as its lowest set bit says.
    sums: Vec<i32>,
    now: usize,
}

impl Timeline {
    /// No marks; for at most this many references.
    pub(crate) fn new(references: usize) -> Self {
        Self { latest: HashMap::new(), sums: vec![0; references + 1], now: 0 }
    }

    /// The distance of `tag`, whose mark moves to now.
    pub(crate) fn reference(&mut self, tag: u64) -> u32 {
        self.now += 1;
        let before = self.latest.insert(tag, self.now);
        let distance = before.map_or(COLD, |at| {
            // All marks but those before it; its own is counted.
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
