//! The contenders: the floor, the crate's engines, and two published rivals.
//!
//! Idea: a contender is built for a workload and gets its references in blocks. Rivals and floor
//! get dense page numbers, as if they had a free index; the crate's engines handle the page numbers
//! as they are.

use ballast_mrc::{
    Aet, Avl, CountingEngine, Engine, EngineName, Exact, Full, Histogram, List, SampleRate, Shards,
    ShardsFixedSize, Stack,
};

use super::fenwick::Fenwick;
use super::floor::Floor;
use super::rival::Distances;
use super::splay::Splay;
use super::workload::Workload;

/// The rate of `shards`.
const RATE: f64 = 0.01;
/// Tags that `aet` watches.
const WATCHED_MAX: usize = 1 << 14;
/// Seeds of contenders that sample.
const SEEDS: [u64; 3] = [1, 2, 3];
/// A contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub(super) enum ContenderName {
    /// What any exact engine must do at least
    Floor,
    /// Doubly linked list, on as many references as it takes in a second
    List,
    /// AVL tree with subtree sizes
    Avl,
    /// A rival: splay tree with subtree sizes
    Splay,
    /// A rival: Fenwick tree over time
    Fenwick,
    /// The exact engine without vector instructions beyond the baseline
    ExactPortable,
    /// The exact engine
    Exact,
    /// SHARDS at a rate of 0.01, or more of few pages
    Shards,
    /// SHARDS with 8,192 samples
    ShardsFixedSize,
    /// Average eviction time with 16,384 watched pages
    Aet,
}

impl ContenderName {
    /// Whether its histogram is exact.
    pub(super) fn is_exact(self) -> bool {
        !self.is_sampling() && self != Self::Floor
    }

    /// Whether it considers only some of the references.
    pub(super) fn is_sampling(self) -> bool {
        matches!(self, Self::Shards | Self::ShardsFixedSize | Self::Aet)
    }

    /// The seeds it runs with; each is a separate run.
    pub(super) fn seeds(self) -> &'static [u64] {
        if self.is_sampling() { &SEEDS } else { &SEEDS[..1] }
    }

    /// Whether it gets only some references, because all would take hours.
    pub(super) fn is_given_some(self) -> bool {
        self == Self::List
    }

    /// The references it gets.
    pub(super) fn pages(self, workload: &Workload) -> &[u64] {
        match self {
            Self::Floor | Self::Splay | Self::Fenwick => workload.dense(),
            _ => &workload.pages,
        }
    }

    /// Builds one without any references.
    pub(super) fn build(self, workload: &Workload, seed: u64) -> Box<dyn Contender> {
        // Dense numbers are below this.
        let numbers = 2 * workload.distinct;
        let counted = |name, stack| Box::new(CountingEngine::new(name, stack));
        match self {
            Self::Floor => Box::new(Floor::new(numbers, workload.distinct)),
            Self::List => Box::new(CountingEngine::new(EngineName::List, List::new())),
            Self::Avl => Box::new(CountingEngine::new(EngineName::Avl, Avl::new())),
            Self::Splay => Box::new(Counting::new(Splay::new(numbers))),
            Self::Fenwick => Box::new(Counting::new(Fenwick::new(numbers))),
            Self::ExactPortable => counted(EngineName::Exact, Exact::portable()),
            Self::Exact => counted(EngineName::Exact, Exact::new()),
            Self::Shards => {
                let rate = SampleRate::new(RATE).unwrap_or(SampleRate::ALL);
                let shards = Shards::new(rate, seed);
                Box::new(Sampling(shards.with_samples_min(Shards::SAMPLES_MIN_DEFAULT)))
            }
            Self::ShardsFixedSize => {
                Box::new(Sampling(ShardsFixedSize::new(ShardsFixedSize::SAMPLES_DEFAULT, seed)))
            }
            Self::Aet => Box::new(Sampling(Aet::sampled(WATCHED_MAX, seed))),
        }
    }
}

/// Something that counts references.
pub(super) trait Contender {
    /// Counts references to `pages`.
    ///
    /// # Errors
    /// [`Full`] when there are too many different ones.
    fn take(&mut self, pages: &[u64]) -> Result<(), Full>;

    /// What it counted; `None` if the counts mean nothing.
    fn histogram(&self) -> Option<Histogram>;

    /// The memory beyond its histogram, in bytes per page of the workload; `None` if it holds no
    /// pages.
    fn bytes_per_page(&self) -> Option<f64>;
}

impl Contender for Floor {
    fn take(&mut self, pages: &[u64]) -> Result<(), Full> {
        Floor::take(self, pages);
        Ok(())
    }

    fn histogram(&self) -> Option<Histogram> {
        None
    }

    fn bytes_per_page(&self) -> Option<f64> {
        None
    }
}

impl<S: Stack> Contender for CountingEngine<S> {
    fn take(&mut self, pages: &[u64]) -> Result<(), Full> {
        self.record(pages)
    }

    fn histogram(&self) -> Option<Histogram> {
        Engine::histogram(self)
    }

    fn bytes_per_page(&self) -> Option<f64> {
        Some(self.stack().memory_bytes() as f64 / self.stack().len() as f64)
    }
}

/// An engine that samples.
struct Sampling<E>(E);

impl<E: Engine> Contender for Sampling<E> {
    fn take(&mut self, pages: &[u64]) -> Result<(), Full> {
        self.0.record(pages)
    }

    fn histogram(&self) -> Option<Histogram> {
        self.0.histogram()
    }

    fn bytes_per_page(&self) -> Option<f64> {
        None
    }
}

/// Counts a rival's distances.
struct Counting<D> {
    rival: D,
    counts: Vec<u64>,
}

impl<D: Distances> Counting<D> {
    fn new(rival: D) -> Self {
        Self { rival, counts: vec![0] }
    }
}

impl<D: Distances> Contender for Counting<D> {
    fn take(&mut self, pages: &[u64]) -> Result<(), Full> {
        let most = self.rival.pages() as usize + pages.len() + 1;
        if self.counts.len() < most {
            self.counts.resize(most, 0);
        }
        for &page in pages {
            self.counts[self.rival.touch(page) as usize] += 1;
        }
        self.counts.truncate(self.rival.pages() as usize + 1);
        Ok(())
    }

    fn histogram(&self) -> Option<Histogram> {
        Some(Histogram::from_counts(&self.counts))
    }

    fn bytes_per_page(&self) -> Option<f64> {
        Some(self.rival.memory_bytes() as f64 / self.rival.pages() as f64)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::workload::WorkloadName;
    use super::*;

    #[test]
    fn exact_contenders_agree() {
        for &workload in WorkloadName::value_variants() {
            let workload = Workload::named(workload, true).unwrap();
            let histogram = |name: ContenderName| {
                let mut contender = name.build(&workload, 1);
                let pages = name.pages(&workload);
                let few = pages.len().min(20_000);
                pages[..few].chunks(3001).for_each(|block| contender.take(block).unwrap());
                contender.histogram().unwrap()
            };
            let expected = histogram(ContenderName::List);
            for &name in ContenderName::value_variants().iter().filter(|name| name.is_exact()) {
                assert!(histogram(name) == expected, "{name:?} on {}", workload.name);
            }
        }
    }
}
