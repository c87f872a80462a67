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
    /// The name that users type.
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

/// The units of pages and tags, the same for every trace of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Units {
    /// The size of a page in bytes, if known.
    pub(crate) page_bytes: Option<u64>,
    /// Pages per tag.
    pub(crate) granularity: Granularity,
    /// How much memory a tag stands for.
    pub(crate) reading: Reading,
}

/// The settings for every trace of a command.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How traces are read.
    pub(crate) reading: Options,
    /// The most references to read of each trace.
    pub(crate) references_max: Option<u64>,
    /// Pages and tags.
    pub(crate) units: Units,
    /// The engine; `None`: the program chooses.
    pub(crate) engine: Option<EngineName>,
    /// Parameters of engines.
    pub(crate) tuning: Tuning,
    /// The memory in which the engine should stay, in bytes; the choice depends on it.
    pub(crate) memory_bytes: u64,
    /// The intervals by which counts age, if they do.
    pub(crate) intervals: Option<Intervals>,
    /// Whether a second engine counts, too.
    pub(crate) verify: bool,
    /// The warm miss ratios for which working sets are computed.
    pub(crate) epsilons: Vec<f64>,
}

/// Parameters of engines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// The least share of tags that `shards` samples.
    pub(crate) rate: SampleRate,
    /// The number of samples of `shards-fixed-size`, of tags watched by `aet`, or of tags picked by
    /// `statistical`; `None`: the engine's default, which for `aet` is every reference.
    pub(crate) samples: Option<usize>,
    /// The seed of sampling.
    pub(crate) seed: u64,
    /// The memory from which `statistical` picks pages, in pages.
    pub(crate) allocation_pages: u64,
    /// References in a period of `statistical`.
    pub(crate) period: u64,
}

/// Intervals after which counts age.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Intervals {
    /// References in an interval.
    pub(crate) references: u64,
    /// The weight that earlier counts keep with each interval.
    pub(crate) factor: f64,
}
