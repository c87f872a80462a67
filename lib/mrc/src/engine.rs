//! The interface of engines: references in, a histogram of stack distances out.

use std::fmt;

use crate::{Full, Granularity, Histogram};

/// The engines, by the names that users type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineName {
    /// Doubly linked list with linear search (MEB §3.1.1).
    List,
    /// AVL tree with subtree sizes (MEB §3.3).
    Avl,
    /// Bitmap with hierarchical counters: the fast exact engine.
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

    /// The name that users type.
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

    /// Whether its histogram is exact, and therefore equal to that of every other exact engine.
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
    /// The engine's name.
    fn name(&self) -> EngineName;

    /// Counts references to `tags`, in this order.
    ///
    /// # Errors
    /// [`Full`] if there are too many different tags; the references before that are counted.
    fn record(&mut self, tags: &[u64]) -> Result<(), Full>;

    /// The number of references since the interval started.
    fn references(&self) -> u64;

    /// The number of different tags since the beginning; sampling engines may estimate it.
    fn distinct(&self) -> u64;

    /// Distances of the references since the interval started, in tags; sampling engines scale what
    /// they saw to all references. `None` for an engine without distances.
    fn histogram(&self) -> Option<Histogram>;

    /// Starts an interval: counts start from zero again, the LRU order stays (MEB §3.1).
    fn start_interval(&mut self);

    /// Continues with tags of another size: the LRU order is regrouped, not lost (MEB §3.1.2), and
    /// an interval starts.
    ///
    /// # Errors
    /// [`Full`] if finer tags would be more than [`TAGS_MAX`](crate::TAGS_MAX); then nothing is
    /// changed.
    fn regroup(&mut self, from: Granularity, to: Granularity) -> Result<(), Full>;

    /// The memory that the engine occupies on the heap, in bytes.
    fn memory_bytes(&self) -> u64;
}
