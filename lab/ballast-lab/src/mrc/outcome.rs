//! The outcome of one trace: figures, histogram, curve, and the engine that was used.
//!
//! Idea: every output (table, JSON, CSV, plots, page) is made from this, so that outputs cannot
//! differ.
//! Cost: 8 bytes for each distance of the histogram and 24 for each of the curve, up to the number
//! of distinct tags.

use std::time::Duration;

use ballast_mrc::{Curve, EngineName, Histogram, Step};
use ballast_trace::Format;

use super::settings::{Intervals, Units};

/// The engine that measured a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Used {
    /// Its name.
    pub(crate) engine: EngineName,
    /// Why this engine, if the program chose it.
    pub(crate) why: Option<String>,
    /// The greatest memory that it occupied, in bytes.
    pub(crate) memory_bytes: u64,
}

/// A working set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WorkingSet {
    /// The warm miss ratio it stays at or below.
    pub(crate) epsilon: f64,
    /// The least memory with that miss ratio, in pages.
    pub(crate) pages: u64,
}

/// A comparison with a second engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verified {
    /// The engine it was compared with.
    pub(crate) oracle: EngineName,
    /// The number of different distances that were counted.
    pub(crate) distances: u64,
    /// The mean absolute error of the warm curve, if the engine samples. `None`: the engine is
    /// exact and counted the same.
    pub(crate) error: Option<f64>,
}

/// The outcome of one trace.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The trace's name, as the user gave it.
    pub(crate) trace: String,
    /// Its format.
    pub(crate) format: Format,
    /// Whether the trace's values were addresses and were divided by the page size.
    pub(crate) is_divided: bool,
    /// Number of bad records that were skipped.
    pub(crate) skipped: u64,
    /// Number of references.
    pub(crate) accesses: u64,
    /// Number of different tags; an estimate if the engine samples; `None` if the engine does not
    /// count them.
    pub(crate) distinct: Option<u64>,
    /// Number of different pages, if they were counted separately from tags.
    pub(crate) pages_touched: Option<u64>,
    /// The units of pages and tags.
    pub(crate) units: Units,
    /// The intervals by which counts age, if they do.
    pub(crate) intervals: Option<Intervals>,
    /// The engine.
    pub(crate) used: Used,
    /// References by stack distance; `None` if the engine has no distances.
    pub(crate) histogram: Option<Histogram>,
    /// The miss ratio of every memory size; `None` if there is no histogram.
    pub(crate) curve: Option<Curve>,
    /// Working sets, in the order of the settings.
    pub(crate) working_sets: Vec<WorkingSet>,
    /// Pages that the trace touches in a period, as estimated by statistical sampling.
    pub(crate) active_pages: Option<u64>,
    /// The comparison with a second engine, if requested.
    pub(crate) verified: Option<Verified>,
    /// Time taken by reading and counting.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// References that were the first to their tag; aged if counts age.
    pub(crate) fn cold(&self) -> Option<f64> {
        self.histogram.as_ref().map(Histogram::cold)
    }

    /// All references, including [`cold`](Self::cold) ones; aged if counts age.
    pub(crate) fn counted(&self) -> f64 {
        let aged = self.histogram.as_ref().filter(|_| self.intervals.is_some());
        aged.map_or(self.accesses as f64, Histogram::references)
    }

    /// References a second; `None` if no time passed.
    pub(crate) fn speed(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0 && self.accesses > 0).then(|| self.accesses as f64 / seconds)
    }

    /// The curve in at most `points` steps; empty if there were no references.
    pub(crate) fn points(&self, points: usize) -> Vec<Step> {
        match &self.curve {
            Some(curve) if curve.warm() + curve.cold() > 0.0 => curve.resampled(points),
            _ => Vec::new(),
        }
    }

    /// The working set at `epsilon`.
    pub(crate) fn working_set(&self, epsilon: f64) -> Option<WorkingSet> {
        self.working_sets.iter().copied().find(|it| it.epsilon == epsilon)
    }
}
