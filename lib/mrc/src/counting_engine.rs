//! An engine made from a stack: distances are counted in an array.
//!
//! Idea: tags go through the stack in blocks, and a block's distances are counted while they are in
//! the nearest cache. A distance is at most the number of tags, so the array grows at most once for
//! a block.
//!
//! Cost: in addition to the stack's work one addition for each reference, 1–5 ns (1 ns if all
//! distances are the same, as in a loop); 8 bytes for each tag, because the greatest distance may
//! be the number of tags, and an eighth of that to grow.

use crate::{Engine, EngineName, Full, Granularity, Histogram, Stack, TAGS_MAX};

/// Counts the distances of a stack.
#[derive(Clone, Debug)]
pub struct CountingEngine<S> {
    name: EngineName,
    stack: S,
    /// By distance; `counts[0]` is the number of cold references.
    counts: Vec<u64>,
    references: u64,
}

impl<S: Stack> CountingEngine<S> {
    /// Counts the distances of `stack` from now on; `name` is the name that users know.
    #[must_use]
    pub fn new(name: EngineName, stack: S) -> Self {
        let counts = vec![0; stack.len() as usize + 1];
        Self { name, stack, counts, references: 0 }
    }

    /// The stack.
    #[must_use]
    pub fn stack(&self) -> &S {
        &self.stack
    }

    /// The number of references at each distance since the interval started; `counts()[0]` is that
    /// of cold references.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

impl<S: Stack> Engine for CountingEngine<S> {
    fn name(&self) -> EngineName {
        self.name
    }

    fn record(&mut self, tags: &[u64]) -> Result<(), Full> {
        let (taken, result) = self.stack.count(tags, &mut self.counts);
        self.references += taken;
        result
    }

    fn references(&self) -> u64 {
        self.references
    }

    fn distinct(&self) -> u64 {
        self.stack.len()
    }

    fn histogram(&self) -> Option<Histogram> {
        Some(Histogram::from_counts(&self.counts))
    }

    fn start_interval(&mut self) {
        self.counts.fill(0);
        self.references = 0;
    }

    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full> {
        let parts = (from.pages() / to.pages()).max(1);
        // Checked before they are made: each tag may become 2^20 finer ones.
        if self.stack.len().saturating_mul(parts) > TAGS_MAX {
            return Err(Full);
        }
        self.stack.restore(&from.regroup(to, &self.stack.order()))?;
        self.references = 0;
        self.counts.clear();
        self.counts.resize(self.stack.len() as usize + 1, 0);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        let counts = self.counts.capacity() * size_of::<u64>();
        self.stack.memory_bytes() + counts as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::List;
    use crate::distances::add_distances;
    use crate::stack::UNWRITTEN;
    use crate::stack::testing::BoundedList;

    fn engine() -> CountingEngine<List> {
        CountingEngine::new(EngineName::List, List::new())
    }

    #[test]
    fn distances_are_counted_and_intervals_keep_the_order() {
        let mut engine = engine();
        engine.record(&[7, 8, 7, 7]).unwrap();
        assert_eq!(engine.counts(), [2, 1, 1]);
        assert_eq!((engine.references(), engine.distinct()), (4, 2));
        engine.start_interval();
        assert_eq!(engine.histogram(), Some(Histogram::from_counts(&[])));
        engine.record(&[8, 9]).unwrap();
        assert_eq!(engine.counts(), [1, 0, 1, 0]);
        assert_eq!((engine.references(), engine.distinct()), (2, 3));
    }

    #[test]
    fn regrouping_keeps_the_order_and_starts_an_interval() {
        let mut engine = engine();
        engine.record(&[0, 1, 64, 33]).unwrap();
        engine.regroup(Granularity::PAGE, Granularity::new(32).unwrap()).unwrap();
        assert_eq!((engine.references(), engine.counts()), (0, &[0, 0, 0, 0][..]));
        assert_eq!(engine.stack().order(), [1, 2, 0]);
        engine.record(&[0]).unwrap();
        assert_eq!(engine.counts(), [0, 0, 0, 1]);
    }

    #[test]
    fn what_came_before_it_was_full_is_counted() {
        let mut engine = CountingEngine::new(EngineName::List, BoundedList(List::new(), 1500));
        let tags: Vec<u64> = (0..2000).collect();
        assert_eq!(engine.record(&tags), Err(Full));
        assert_eq!((engine.counts()[0], engine.references()), (1500, 1500));
        assert_eq!(engine.record(&tags), Err(Full));
        assert_eq!(engine.references(), 1500);
    }

    #[test]
    fn no_distance_is_taken_for_unwritten() {
        assert!(u64::from(UNWRITTEN) > TAGS_MAX);
    }

    proptest! {
        #[test]
        fn runs_make_no_difference(
            runs in prop::collection::vec((0..9_u32, 0..70_usize), 0..20),
        ) {
            let distances: Vec<u32> =
                runs.iter().flat_map(|&(distance, times)| vec![distance; times]).collect();
            let mut counts = Vec::new();
            add_distances(&mut counts, 8, &distances);
            for (distance, &count) in (0..).zip(&counts) {
                let expected = distances.iter().filter(|&&one| one == distance).count();
                prop_assert_eq!(count, expected as u64);
            }
        }

        #[test]
        fn blocks_make_no_difference(
            tags in prop::collection::vec(0..300_u64, 0..3000), cut in 0..3000_usize,
        ) {
            let mut counts = vec![0; 301];
            let mut order: Vec<u64> = Vec::new();
            for &tag in &tags {
                let index = order.iter().position(|&one| one == tag);
                counts[index.map_or(0, |index| index + 1)] += 1;
                if let Some(index) = index {
                    order.remove(index);
                }
                order.insert(0, tag);
            }
            let mut engine = engine();
            let (first, rest) = tags.split_at(cut.min(tags.len()));
            engine.record(first).unwrap();
            engine.record(rest).unwrap();
            prop_assert_eq!(engine.histogram(), Some(Histogram::from_counts(&counts)));
            prop_assert_eq!(engine.references(), tags.len() as u64);
            prop_assert_eq!(engine.stack().order(), order);
        }
    }
}
