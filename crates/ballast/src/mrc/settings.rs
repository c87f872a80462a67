//! What measuring needs to know, checked.

use ballast_mrc::{EngineName, SampleRate};
use ballast_trace::Options;

use super::outcome::Units;

/// How every trace of a command is measured.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How traces are read.
    pub(crate) reading: Options,
    /// Only so many references of each.
    pub(crate) references_max: Option<u64>,
    /// What pages are.
    pub(crate) units: Units,
    /// The engine; `None`: the chooser's.
    pub(crate) engine: Option<EngineName>,
    /// Parameters of engines.
    pub(crate) tuning: Tuning,
    /// The memory the engine should stay within, in bytes; the chooser goes by it.
    pub(crate) memory_bytes: u64,
    /// Ageing by intervals, if any.
    pub(crate) intervals: Option<Intervals>,
    /// Whether a second engine counts beside.
    pub(crate) verify: bool,
    /// Warm miss ratios of which the working set is wanted.
    pub(crate) epsilons: Vec<f64>,
}

/// Parameters of engines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// The share of tags that `shards` samples.
    pub(crate) rate: SampleRate,
    /// Samples of `shards-fixed-size`, tags watched by `aet`, tags picked by `statistical`; `None`:
    /// what is usual for each, and every reference for `aet`.
    pub(crate) samples: Option<usize>,
    /// What sampling picks by.
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
    /// What weight is left of what was counted before, with each that ends.
    pub(crate) factor: f64,
}
