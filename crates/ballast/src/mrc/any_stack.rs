//! An exact stack of whichever kind: what layers above need is the same of all.

use ballast_mrc::{Avl, EngineName, Exact, Full, List, Stack};

/// An exact stack.
pub(super) struct AnyStack(Box<dyn Stack>);

impl AnyStack {
    /// The stack of an exact engine; of any other, that of `exact`.
    pub(super) fn new(engine: EngineName) -> Self {
        Self(match engine {
            EngineName::List => Box::new(List::new()),
            EngineName::Avl => Box::new(Avl::new()),
            _ => Box::new(Exact::new()),
        })
    }
}

impl Stack for AnyStack {
    fn reference(&mut self, tags: &[u64], distances: &mut [u32]) -> Result<(), Full> {
        self.0.reference(tags, distances)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn order(&self) -> Vec<u64> {
        self.0.order()
    }

    fn restore(&mut self, order: &[u64]) -> Result<(), Full> {
        self.0.restore(order)
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }
}
