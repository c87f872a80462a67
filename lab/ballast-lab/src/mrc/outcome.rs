//! The outcome of one trace: figures, histogram, curve, and the engine that found them.
//!
//! Idea: measuring fills this in, and every output (table, JSON, CSV, plots, page) is made from it,
//! so that outputs cannot differ.
//! Cost: 8 bytes a distance for the histogram and 24 for the curve, up to the distinct tags.

use std::time::Duration;

use ballast_mrc::{Curve, EngineName, Histogram, Step};
use ballast_trace::Format;

use super::settings::{Intervals, Units};

/// The engine that measured a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Used {
    /// Its name.
    pub(crate) engine: EngineName,
    /// Why this one, if the chooser took it.
    pub(crate) why: Option<String>,
    /// The most it occupied, in bytes.
    pub(crate) memory_bytes: u64,
}

/// A working set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WorkingSet {
    /// The warm miss ratio it stays at or below.
    pub(crate) epsilon: f64,
    /// The least memory that does, in pages.
    pub(crate) pages: u64,
}

/// A comparison with a second engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verified {
    /// The engine it was compared with.
    pub(crate) oracle: EngineName,
    /// The number of different distances.
    pub(crate) distances: u64,
    /// The mean absolute error of the warm curve, of an engine that samples; `None`: an exact one,
    /// which counted the same.
    pub(crate) error: Option<f64>,
}

/// The outcome of one trace.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The trace, as it was named.
    pub(crate) trace: String,
    /// Its format.
    pub(crate) format: Format,
    /// Whether values were divided down to pages.
    pub(crate) is_divided: bool,
    /// Bad records left out.
    pub(crate) skipped: u64,
    /// References.
    pub(crate) accesses: u64,
    /// Different tags; an estimate where the engine samples; `None` from one that does not tell.
    pub(crate) distinct: Option<u64>,
    /// Different pages, where they were counted apart from tags.
    pub(crate) pages_touched: Option<u64>,
    /// What pages are.
    pub(crate) units: Units,
    /// The intervals by which counts of references by distance are aged, if they are.
    pub(crate) intervals: Option<Intervals>,
    /// The engine.
    pub(crate) used: Used,
    /// References by stack distance; `None` from an engine that knows none.
    pub(crate) histogram: Option<Histogram>,
    /// The miss ratio of every size; `None` with the histogram.
    pub(crate) curve: Option<Curve>,
    /// Working sets, in the order of the settings.
    pub(crate) working_sets: Vec<WorkingSet>,
    /// Pages the trace touches in a period, as statistical sampling estimates it.
    pub(crate) active_pages: Option<u64>,
    /// The comparison with a second engine, if wanted.
    pub(crate) verified: Option<Verified>,
    /// Time of reading and counting.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// References that were the first to their tag, aged if counts are.
    pub(crate) fn cold(&self) -> Option<f64> {
        self.histogram.as_ref().map(Histogram::cold)
    }

    /// All references, aged if counts are; [`cold`](Self::cold) is a part of them.
    pub(crate) fn counted(&self) -> f64 {
        let aged = self.histogram.as_ref().filter(|_| self.intervals.is_some());
        aged.map_or(self.accesses as f64, Histogram::references)
    }

    /// References a second; `None` where no time has passed.
    pub(crate) fn speed(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0 && self.accesses > 0).then(|| self.accesses as f64 / seconds)
    }

    /// The curve in at most `points` steps; none where there were no references.
    pub(crate) fn points(&self, points: usize) -> Vec<Step> {
        match &self.curve {
            Some(curve) if curve.warm() + curve.cold() > 0.0 => curve.resampled(points),
            _ => Vec::new(),
        }
    }

    /// The working set of `epsilon`.
    pub(crate) fn working_set(&self, epsilon: f64) -> Option<WorkingSet> {
        self.working_sets.iter().copied().find(|it| it.epsilon == epsilon)
    }
}
