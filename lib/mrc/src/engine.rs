//! What every engine is: references in, a histogram of stack distances out.

use std::fmt;

use crate::{Full, Granularity, Histogram};

/// The engines by the names users type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineName {
    /// Doubly linked list with linear search (MEB §3.1.1).
    List,
    /// AVL tree with subtree sizes (MEB §3.3).
    Avl,
    /// Bitmap with hierarchical counters: the fast exact one.
    Exact,
    /// SHARDS with a fixed sampling rate (Waldspurger 2015).
    Shards,
    /// SHARDS with a fixed number of samples.
    ShardsFixedSize,
    /// Average eviction time (Hu 2016).
    Aet,
    /// Statistical sampling (Waldspurger 2002; MEB §5.2.1): a working set, no curve.
    Statistical,
}

impl EngineName {
    /// Every engine, exact ones first.
    pub const ALL: [Self; 7] = [
        Self::List,
        Self::Avl,
        Self::Exact,
        Self::Shards,
        Self::ShardsFixedSize,
        Self::Aet,
        Self::Statistical,
    ];

    /// As users type it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Avl => "avl",
            Self::Exact => "exact",
            Self::Shards => "shards",
            Self::ShardsFixedSize => "shards-fixed-size",
            Self::Aet => "aet",
            Self::Statistical => "statistical",
        }
    }

    /// Whether its histogram is exact, and so the same as that of every other exact engine.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::List | Self::Avl | Self::Exact)
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Turns references to tags into a histogram of stack distances.
pub trait Engine {
    /// Which engine it is.
    fn name(&self) -> EngineName;

    /// Takes in references to `tags`, in this order.
    ///
    /// # Errors
    /// [`Full`] when there are too many different tags; what came before them is counted.
    fn record(&mut self, tags: &[u64]) -> Result<(), Full>;

    /// References taken in since the interval started.
    fn references(&self) -> u64;

    /// How many different tags there were since the beginning; sampling engines may estimate it.
    fn distinct(&self) -> u64;

    /// Distances of the references since the interval started, in tags; sampling engines scale what
    /// they saw up to all references. `None` for an engine that knows no distances.
    fn histogram(&self) -> Option<Histogram>;

    /// Starts an interval: counts restart from zero, the LRU order stays (MEB §3.1).
    fn start_interval(&mut self);

    /// Goes on with tags of another size: the LRU order is regrouped, not lost (MEB §3.1.2), and an
    /// interval starts.
    ///
    /// # Errors
    /// [`Full`] when finer tags would be more than [`TAGS_MAX`](crate::TAGS_MAX); nothing is
    /// changed.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full>;

    /// What the engine occupies on the heap, in bytes.
    fn memory_bytes(&self) -> u64;
}
