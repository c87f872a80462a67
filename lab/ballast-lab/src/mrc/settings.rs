//! The settings of a measurement, checked.

use ballast_mrc::{EngineName, Granularity, SampleRate};
use ballast_trace::Options;

/// The memory that tags stand for, where several pages share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Reading {
    /// All of their pages, as in the paper
    Paper,
    /// Their pages that the trace touched, on average
    Touched,
}

impl Reading {
    /// As users type it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Touched => "touched",
        }
    }

    /// The unit of stack distances.
    pub(crate) fn distance_unit(self) -> &'static str {
        match self {
            Self::Paper => "tags",
            Self::Touched => "pages",
        }
    }
}

/// Pages and tags, the same for every trace of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Units {
    /// The size of a page in bytes, where it is known.
    pub(crate) page_bytes: Option<u64>,
    /// Pages per tag.
    pub(crate) granularity: Granularity,
    /// The memory that tags stand for.
    pub(crate) reading: Reading,
}

/// The settings for every trace of a command.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How traces are read.
    pub(crate) reading: Options,
    /// The most references to read of each.
    pub(crate) references_max: Option<u64>,
    /// Pages and tags.
    pub(crate) units: Units,
    /// The engine; `None`: the chooser's.
    pub(crate) engine: Option<EngineName>,
    /// Parameters of engines.
    pub(crate) tuning: Tuning,
    /// The memory the engine should stay within, in bytes; the chooser goes by it.
    pub(crate) memory_bytes: u64,
    /// Ageing by intervals, if any.
    pub(crate) intervals: Option<Intervals>,
    /// Whether a second engine counts too.
    pub(crate) verify: bool,
    /// Warm miss ratios whose working sets are wanted.
    pub(crate) epsilons: Vec<f64>,
}

/// Parameters of engines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// The share of tags that `shards` samples at least.
    pub(crate) rate: SampleRate,
    /// Samples of `shards-fixed-size`, tags watched by `aet`, tags picked by `statistical`; `None`:
    /// what is usual for each, and every reference for `aet`.
    pub(crate) samples: Option<usize>,
    /// The seed of sampling.
    pub(crate) seed: u64,
    /// The memory that `statistical` picks from, in pages.
    pub(crate) allocation_pages: u64,
    /// References in a period of `statistical`.
    pub(crate) period: u64,
}

/// Intervals whose counts age.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Intervals {
    /// References in one.
    pub(crate) references: u64,
    /// The weight that earlier counts keep with each interval.
    pub(crate) factor: f64,
}
