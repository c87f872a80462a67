//! The engine that counts a trace, whichever it is.
//!
//! Idea: engines differ in their input (tags or pages) and in their result (distances, or only a
//! working set); this type hides the difference.

use anyhow::bail;
use ballast_mrc::{
    Aet, Choice, CountingEngine, Curve, Engine, EngineName, Full, Granularity, Histogram,
    PageWeighted, ShardsFixedSize, Stack, Statistical,
};

use super::any_stack::any_stack;
use super::auto_engine::AutoEngine;
use super::outcome::Used;
use super::settings::{Reading, Units};
use super::settings::{Settings, Tuning};
use super::words;
use ballast_report::format;

/// While counting in touched pages, the most that the memory may grow before it is checked against
/// the budget, in bytes.
const STEP_BYTES_MAX: u64 = 8 << 20;
/// Pages of a tag whose state fits into a byte: each takes two bits.
const TOUCHED_PAGES_PER_BYTE: u64 = 4;

/// Counts references to pages.
pub(super) struct Counter {
    kind: CounterKind,
    granularity: Granularity,
    /// The tags of a block; the buffer is reused.
    tags: Vec<u64>,
    /// The greatest memory occupied so far, in bytes.
    memory_bytes: u64,
}

enum CounterKind {
    /// An engine that the user chose.
    Named(Box<dyn Engine>),
    /// An engine that the user chose, with distances in touched pages.
    Touched(Touched),
    /// Statistical sampling, which estimates only the working set.
    Statistical(Statistical),
    /// An engine that the program chooses.
    Auto(AutoEngine),
}

/// An exact engine whose distances are in touched pages.
struct Touched {
    engine: EngineName,
    weighted: PageWeighted<Box<dyn Stack>>,
    memory_bytes_max: u64,
}

/// The result of counting.
pub(super) struct Counts {
    pub(super) histogram: Option<Histogram>,
    pub(super) curve: Option<Curve>,
    pub(super) distinct: Option<u64>,
    pub(super) pages_touched: Option<u64>,
    pub(super) active_pages: Option<u64>,
    pub(super) used: Used,
}

impl Counter {
    /// The counter for `settings` and a trace of at most `references_max` references, if that is
    /// known.
    pub(super) fn new(settings: &Settings, references_max: Option<u64>) -> Self {
        let (tuning, units) = (settings.tuning, settings.units);
        let kind = match settings.engine {
            asked if units.reading == Reading::Touched => {
                let engine = asked.unwrap_or(EngineName::Exact);
                let weighted = PageWeighted::new(any_stack(engine), units.granularity);
                let memory_bytes_max = settings.memory_bytes;
                CounterKind::Touched(Touched { engine, weighted, memory_bytes_max })
            }
            Some(EngineName::Statistical) => CounterKind::Statistical(statistical(tuning, units)),
            Some(engine) => CounterKind::Named(build(engine, tuning)),
            None => CounterKind::Auto(AutoEngine::new(settings, references_max)),
        };
        Self { kind, granularity: units.granularity, tags: Vec::new(), memory_bytes: 0 }
    }

    /// Counts references to `pages`.
    ///
    /// # Errors
    /// There are too many different tags, or counting in touched pages takes too much memory.
    pub(super) fn record(&mut self, pages: &[u64]) -> anyhow::Result<()> {
        match &mut self.kind {
            CounterKind::Touched(touched) => touched.record(pages)?,
            _ => self.record_tags(pages)?,
        }
        self.memory_bytes = self.memory_bytes.max(match &self.kind {
            CounterKind::Named(engine) => engine.memory_bytes(),
            CounterKind::Statistical(engine) => engine.memory_bytes(),
            CounterKind::Auto(auto) => auto.occupied_bytes(),
            CounterKind::Touched(touched) => touched.weighted.memory_bytes(),
        });
        Ok(())
    }

    fn record_tags(&mut self, pages: &[u64]) -> Result<(), Full> {
        let tags = match self.granularity {
            Granularity::PAGE => pages,
            granularity => {
                self.tags.clear();
                self.tags.extend(pages.iter().map(|&page| granularity.tag(page)));
                &self.tags
            }
        };
        match &mut self.kind {
            CounterKind::Named(engine) => engine.record(tags),
            CounterKind::Statistical(engine) => engine.record(tags),
            CounterKind::Auto(auto) => auto.record(tags),
            CounterKind::Touched(_) => Ok(()),
        }
    }

    /// Ends the interval and returns what it counted, by distance.
    pub(super) fn end_interval(&mut self) -> Option<Histogram> {
        let histogram = self.histogram();
        match &mut self.kind {
            CounterKind::Named(engine) => engine.start_interval(),
            CounterKind::Statistical(engine) => engine.start_interval(),
            CounterKind::Auto(auto) => auto.start_interval(),
            CounterKind::Touched(touched) => touched.weighted.start_interval(),
        }
        histogram
    }

    fn histogram(&self) -> Option<Histogram> {
        match &self.kind {
            CounterKind::Named(engine) => engine.histogram(),
            CounterKind::Statistical(_) => None,
            CounterKind::Auto(auto) => auto.engine().histogram(),
            CounterKind::Touched(touched) => Some(touched.weighted.histogram()),
        }
    }

    /// What was counted since the interval started. `aged`, if given, replaces what was counted by
    /// distance.
    pub(super) fn counts(self, aged: Option<Histogram>) -> Counts {
        let is_aged = aged.is_some();
        let histogram = aged.or_else(|| self.histogram());
        let granularity = self.granularity;
        let used = |engine, why| Used { engine, why, memory_bytes: self.memory_bytes };
        let mut counts = match &self.kind {
            CounterKind::Named(engine) => Counts::of(&**engine, used(engine.name(), None)),
            CounterKind::Statistical(engine) => Counts {
                // The engine's number of distinct tags is its estimate of the working set.
                distinct: None,
                active_pages: engine
                    .working_set()
                    .map(|tags| tags.saturating_mul(granularity.pages())),
                ..Counts::of(engine, used(engine.name(), None))
            },
            CounterKind::Auto(auto) => {
                let engine = auto.engine();
                Counts::of(engine, used(engine.name(), Some(auto.why())))
            }
            CounterKind::Touched(touched) => Counts {
                histogram: None,
                curve: (!is_aged).then(|| touched.weighted.curve()),
                distinct: Some(touched.tags()),
                pages_touched: Some(touched.weighted.distinct()),
                active_pages: None,
                used: used(touched.engine, None),
            },
        };
        // Distances in touched pages need no conversion to pages.
        let is_in_pages = matches!(self.kind, CounterKind::Touched(_));
        let granularity = if is_in_pages { Granularity::PAGE } else { granularity };
        // The engine is dropped before the curve is built: each may take much memory.
        drop(self.kind);
        counts.curve =
            counts.curve.or_else(|| histogram.as_ref().map(|it| Curve::new(it, granularity)));
        counts.histogram = histogram;
        counts
    }
}

impl Counts {
    /// The counts of `engine`, without those by distance.
    fn of(engine: &dyn Engine, used: Used) -> Self {
        Self {
            histogram: None,
            curve: None,
            distinct: Some(engine.distinct()),
            pages_touched: None,
            active_pages: None,
            used,
        }
    }
}

impl Touched {
    fn tags(&self) -> u64 {
        self.weighted.order().len() as u64
    }

    fn record(&mut self, pages: &[u64]) -> anyhow::Result<()> {
        let step = STEP_BYTES_MAX * TOUCHED_PAGES_PER_BYTE / self.weighted.granularity().pages();
        for pages in pages.chunks(step as usize) {
            self.weighted.record(pages)?;
            if self.weighted.memory_bytes() > self.memory_bytes_max {
                bail!(
                    "--reading touched needs more than --memory {} at {}: a smaller --granularity, \
                     or --reading paper",
                    format::size(self.memory_bytes_max),
                    words::tags(self.tags()),
                );
            }
        }
        Ok(())
    }
}

/// The engine of this name; not for `statistical`.
fn build(engine: EngineName, tuning: Tuning) -> Box<dyn Engine> {
    let Tuning { rate, samples, seed, .. } = tuning;
    match engine {
        EngineName::List | EngineName::Avl => {
            Box::new(CountingEngine::new(engine, any_stack(engine)))
        }
        EngineName::Shards => Choice::Shards { rate }.build(seed),
        EngineName::ShardsFixedSize => {
            let samples = samples.unwrap_or(ShardsFixedSize::SAMPLES_DEFAULT);
            Box::new(ShardsFixedSize::new(samples, seed))
        }
        EngineName::Aet => Box::new(samples.map_or_else(Aet::new, |it| Aet::sampled(it, seed))),
        EngineName::Exact | EngineName::Statistical => Choice::Exact.build(seed),
    }
}

fn statistical(tuning: Tuning, units: Units) -> Statistical {
    let tags = tuning.allocation_pages.div_ceil(units.granularity.pages());
    let picked = tuning.samples.unwrap_or(Statistical::PICKED_DEFAULT);
    Statistical::new(tags, picked, tuning.seed).with_period(tuning.period)
}
