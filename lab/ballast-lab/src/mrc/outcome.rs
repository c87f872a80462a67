//! What came of one trace: figures, histogram and curve, and how they were found.
//!
//! Idea: measuring fills this in, and everything shown (table, JSON, CSV, plots, page) is made from it,
//! so that they cannot differ.
//! Cost: 8 bytes a distance for the histogram and 24 for the curve, up to the distinct tags.

use std::time::Duration;

use ballast_mrc::{Curve, EngineName, Granularity, Histogram, Step};
use ballast_trace::Format;

use super::settings::Intervals;

/// What tags are taken to occupy where several pages share one.
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

    /// What stack distances are in.
    pub(crate) fn distance_unit(self) -> &'static str {
        match self {
            Self::Paper => "tags",
            Self::Touched => "pages",
        }
    }
}

/// What pages are, the same for every trace of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Units {
    /// The size of a page in bytes, where it is known.
    pub(crate) page_bytes: Option<u64>,
    /// Pages per tag.
    pub(crate) granularity: Granularity,
    /// What tags are taken to occupy.
    pub(crate) reading: Reading,
}

/// Which engine looked at a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Used {
    /// Its name.
    pub(crate) engine: EngineName,
    /// Why this one, where it was not asked for.
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

/// What a second engine counted beside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verified {
    /// The engine it was compared with.
    pub(crate) oracle: EngineName,
    /// How many different distances there were.
    pub(crate) distances: u64,
    /// The mean absolute error of the warm curve, of an engine that samples; `None`: an exact one,
    /// which counted the same.
    pub(crate) error: Option<f64>,
}

/// What came of one trace.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The trace, as it was named.
    pub(crate) trace: String,
    /// What it is written in.
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
    /// Working sets, in the order they were asked for.
    pub(crate) working_sets: Vec<WorkingSet>,
    /// Pages the trace touches in a period, as statistical sampling estimates it.
    pub(crate) active_pages: Option<u64>,
    /// The comparison with a second engine, if one was asked for.
    pub(crate) verified: Option<Verified>,
    /// How long reading and counting took.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// References that were the first to their tag, aged if counts are.
    pub(crate) fn cold(&self) -> Option<f64> {
        self.histogram.as_ref().map(Histogram::cold)
    }

    /// References of which [`cold`](Self::cold) is a part, aged if counts are.
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

    /// The working set for which `epsilon` was asked.
    pub(crate) fn working_set(&self, epsilon: f64) -> Option<WorkingSet> {
        self.working_sets.iter().copied().find(|it| it.epsilon == epsilon)
    }
}
