//! One trace, from its first reference to its outcome.
//!
//! Cost: reading and counting, block by block; memory is that of the engine, whatever the trace's
//! length.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use ballast_mrc::{Aging, Curve, EngineName, Granularity, Layout};
use ballast_trace::{Format, Progress, TraceReader};

use super::counter::{Counter, Counts};
use super::outcome::{Outcome, Reading, WorkingSet};
use super::settings::Settings;
use super::verify::Oracle;

/// What names standard input.
pub(crate) const STDIN: &str = "-";

/// Measures the trace at `path`; `told` is told how far it is, block by block.
///
/// # Errors
/// The trace cannot be read; it has more different pages than an engine takes; or the oracle counts
/// otherwise.
pub(crate) fn measure(
    path: &Path,
    settings: &Settings,
    told: &mut dyn FnMut(Progress),
) -> anyhow::Result<Outcome> {
    let name = if path == Path::new(STDIN) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let mut reader = match path == Path::new(STDIN) {
        true => TraceReader::stdin(&settings.reading)?,
        false => TraceReader::open(path, &settings.reading)?,
    };
    let started = Instant::now();
    let mut run = Run::new(settings, references_max(&reader, settings));
    let mut block = Vec::new();
    while reader.read_block(&mut block)? > 0 {
        run.take(&block).with_context(|| name.clone())?;
        told(reader.progress());
        if run.is_over() {
            break;
        }
    }
    let elapsed = started.elapsed();
    run.outcome(name, &reader).map(|outcome| Outcome {
        // The oracle's time is not the engine's.
        elapsed: elapsed.saturating_sub(outcome.elapsed),
        ..outcome
    })
}

/// The most references that a trace can have, where its size tells.
fn references_max(reader: &TraceReader, settings: &Settings) -> Option<u64> {
    let bytes = reader.progress().bytes_total.filter(|_| reader.compression().is_none());
    let by_size = bytes.and_then(|bytes| match reader.format() {
        Format::U64 => Some(bytes / 8),
        Format::OracleGeneral => Some(bytes / 24),
        // A digit and the end of the line.
        Format::Text | Format::Csv => Some(bytes / 2 + 1),
        // An access may span pages.
        Format::Lackey => None,
    });
    by_size.into_iter().chain(settings.references_max).min()
}

/// A trace being measured.
struct Run<'a> {
    settings: &'a Settings,
    counter: Counter,
    oracle: Option<Oracle>,
    aging: Option<Aging>,
    references: u64,
    /// References in the interval that is counted now.
    in_interval: u64,
}

impl<'a> Run<'a> {
    fn new(settings: &'a Settings, references_max: Option<u64>) -> Self {
        let engine = settings.engine.unwrap_or(EngineName::Exact);
        let aging = settings.intervals;
        Self {
            settings,
            counter: Counter::new(settings, references_max),
            oracle: settings.verify.then(|| Oracle::new(engine, settings.units)),
            aging: aging.and_then(|intervals| Aging::new(intervals.factor, Layout::Exact)),
            references: 0,
            in_interval: 0,
        }
    }

    /// Whether it has all references it may have.
    fn is_over(&self) -> bool {
        self.settings.references_max.is_some_and(|most| self.references >= most)
    }

    /// Counts a block, or as much of it as is still wanted.
    fn take(&mut self, pages: &[u64]) -> anyhow::Result<()> {
        let left = self.settings.references_max.map_or(u64::MAX, |most| most - self.references);
        let mut pages = &pages[..pages.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.references += pages.len() as u64;
        if let Some(oracle) = &mut self.oracle {
            oracle.record(pages)?;
        }
        while let Some(intervals) = self.settings.intervals {
            let to_end = intervals.references - self.in_interval;
            if (pages.len() as u64) < to_end {
                break;
            }
            let (of_this, of_next) = pages.split_at(to_end as usize);
            self.counter.record(of_this)?;
            self.end_interval();
            pages = of_next;
        }
        self.in_interval += pages.len() as u64;
        Ok(self.counter.record(pages)?)
    }

    fn end_interval(&mut self) {
        self.in_interval = 0;
        if let (Some(aging), Some(histogram)) = (&mut self.aging, self.counter.end_interval()) {
            aging.end_interval(&histogram);
        }
    }

    /// What came of it; `elapsed` is the oracle's.
    fn outcome(mut self, trace: String, reader: &TraceReader) -> anyhow::Result<Outcome> {
        let mut counts = self.counter.counts();
        if self.in_interval > 0 {
            self.end_interval();
        }
        if let Some(aging) = &self.aging {
            let histogram = aging.histogram().clone();
            let units = self.settings.units;
            // Touched pages are pages already.
            let granularity = match units.reading {
                Reading::Paper => units.granularity,
                Reading::Touched => Granularity::PAGE,
            };
            counts.curve = Some(Curve::new(&histogram, granularity));
            counts.histogram = Some(histogram);
        }
        let oracle = self.oracle.as_ref();
        let verified = oracle.map(|oracle| oracle.compare(&counts)).transpose();
        let verified = verified.with_context(|| trace.clone())?;
        let elapsed = oracle.map(|oracle| oracle.elapsed).unwrap_or_default();
        let Counts { histogram, curve, distinct, pages_touched, active_pages, used } = counts;
        let set = |epsilon: &f64| {
            let pages = curve.as_ref()?.working_set(*epsilon);
            Some(WorkingSet { epsilon: *epsilon, pages })
        };
        let working_sets = self.settings.epsilons.iter().filter_map(set).collect();
        let progress = reader.progress();
        Ok(Outcome {
            trace,
            format: reader.format(),
            is_divided: self.settings.reading.page_size.is_some(),
            skipped: progress.skipped,
            accesses: self.references,
            distinct,
            pages_touched,
            units: self.settings.units,
            used,
            histogram,
            curve,
            working_sets,
            active_pages,
            verified,
            elapsed,
        })
    }
}
