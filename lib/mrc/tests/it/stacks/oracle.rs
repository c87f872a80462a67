//! The oracle of all exact stacks: a vector of tags, most recently referenced first.
//!
//! Idea: too simple to be wrong. Cost: O(distance) for each reference.

use ballast_mrc::COLD;

/// Tags, most recently referenced first.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) order: Vec<u64>,
}

impl Oracle {
    /// The distance of `tag`, which moves to the front.
    pub(crate) fn reference(&mut self, tag: u64) -> u32 {
        let found = self.order.iter().position(|&other| other == tag);
        if let Some(at) = found {
            self.order.remove(at);
        }
        self.order.insert(0, tag);
        found.map_or(COLD, |at| at as u32 + 1)
    }

    /// The distance of each reference.
    pub(crate) fn distances(&mut self, tags: &[u64]) -> Vec<u32> {
        tags.iter().map(|&tag| self.reference(tag)).collect()
    }

    /// Replaces all tags by these; if a tag is named twice the first place counts.
    pub(crate) fn restore(&mut self, order: &[u64]) {
        self.order.clear();
        for &tag in order {
            if !self.order.contains(&tag) {
                self.order.push(tag);
            }
        }
    }
}
