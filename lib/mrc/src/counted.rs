//! An engine out of a stack: distances counted in an array.
//!
//! Idea: tags go through the stack in blocks, and a block's distances are counted while they are in
//! the nearest cache. A distance is at most the number of tags, so the array grows once a block.
//!
//! Cost: one addition a reference beside the stack's own work, 1–5 ns (1 ns where all distances are
//! one, as in a loop); 8 bytes for each tag, as the greatest distance may be all of
//! them, and an eighth of that to grow.

use crate::{Engine, EngineName, Full, Granularity, Histogram, Stack, TAGS_MAX};

/// Tags that go through at once: their distances occupy 4 KiB.
pub(crate) const BLOCK: usize = 1024;

/// Distances that are compared at once: a cache line of them.
const RUN: usize = 16;

/// No distance: so a stack that becomes full shows how far it came.
const UNWRITTEN: u32 = u32::MAX;

/// References a block, and says how many references the stack took in.
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

/// References `tags` in blocks and counts their distances: what [`Stack::count`] is unless a stack knows
/// better.
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

/// Adds 1 to the count of each distance; none is greater than `len`, the number of tags.
///
/// In a loop all distances are one, and each addition would wait for the one before to be stored: so
/// runs are added at once.
pub(crate) fn add_distances(counts: &mut Vec<u64>, len: u64, distances: &[u32]) {
    let counts_len = len as usize + 1;
    if counts.len() < counts_len {
        if counts.capacity() < counts_len {
            counts.reserve_exact(counts_len + counts_len / 8 - counts.len());
        }
        counts.resize(counts_len, 0);
    }
    let runs = distances.chunks_exact(RUN);
    runs.remainder().iter().for_each(|&distance| counts[distance as usize] += 1);
    for run in runs {
        let differs = run.iter().fold(0, |differs, distance| differs | (distance ^ run[0]));
        if differs == 0 {
            counts[run[0] as usize] += RUN as u64;
        } else {
            run.iter().for_each(|&distance| counts[distance as usize] += 1);
        }
    }
}

/// Counts the distances of a stack.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    name: EngineName,
    stack: S,
    /// By distance; `counts[0]` are the cold references.
    counts: Vec<u64>,
    references: u64,
}

impl<S: Stack> Counted<S> {
    /// Counts what `stack` finds from here on; `name` is what users know it by.
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

    /// How often each distance was found since the interval started; `counts()[0]` are the cold
    /// references.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

impl<S: Stack> Engine for Counted<S> {
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
        // Before they are made: there may be 2^20 of each.
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
    use crate::stack::testing::Small;

    fn engine() -> Counted<List> {
        Counted::new(EngineName::List, List::new())
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
        let mut engine = Counted::new(EngineName::List, Small(List::new(), 1500));
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
                let place = order.iter().position(|&one| one == tag);
                counts[place.map_or(0, |place| place + 1)] += 1;
                if let Some(place) = place {
                    order.remove(place);
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
