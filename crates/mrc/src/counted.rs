//! An engine out of a stack: distances counted in an array.
//!
//! Idea: tags go through the stack in blocks, and a block's distances are counted while they are in
//! the nearest cache. A distance is at most the number of tags, so the array grows once a block.
//!
//! Cost: one addition a reference beside the stack's own work; 8 bytes for each tag, as the greatest
//! distance may be all of them.

use crate::{Engine, EngineName, Full, Granularity, Histogram, Stack};

/// Tags that go through at once: their distances occupy 4 KiB.
pub(crate) const BLOCK: usize = 1024;

/// No distance: so a stack that becomes full shows how far it came.
const UNWRITTEN: u32 = u32::MAX;

/// References a block, and says how many references the stack took in.
pub(crate) fn reference_block<S: Stack>(
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

/// Counts the distances of a stack.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    name: EngineName,
    stack: S,
    /// By distance; `counts[0]` are the cold references.
    counts: Vec<u64>,
    references: u64,
    distances: Box<[u32; BLOCK]>,
}

impl<S: Stack> Counted<S> {
    /// Counts what `stack` finds from here on; `name` is what users know it by.
    #[must_use]
    pub fn new(name: EngineName, stack: S) -> Self {
        let counts = vec![0; stack.len() as usize + 1];
        Self { name, stack, counts, references: 0, distances: Box::new([0; BLOCK]) }
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
        for block in tags.chunks(BLOCK) {
            let distances = &mut self.distances[..block.len()];
            let (taken, result) = reference_block(&mut self.stack, block, distances);
            // No distance is greater than the number of tags.
            let len = self.stack.len() as usize + 1;
            if self.counts.len() < len {
                self.counts.resize(len, 0);
            }
            for &distance in &distances[..taken] {
                self.counts[distance as usize] += 1;
            }
            self.references += taken as u64;
            result?;
        }
        Ok(())
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
        self.start_interval();
        self.stack.restore(&from.regroup(to, &self.stack.order()))
    }

    fn memory_bytes(&self) -> u64 {
        let counts = self.counts.capacity() * size_of::<u64>();
        self.stack.memory_bytes() + counts as u64 + size_of::<[u32; BLOCK]>() as u64
    }
}
