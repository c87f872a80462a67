//! Measures one trace, from its first reference to its outcome.
//!
//! Cost: reading and counting, block by block; the memory is the engine's, whatever the trace's
//! length.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::Context;
use ballast_mrc::{Aging, EngineName, Histogram, Layout};
use ballast_trace::{Format, Progress, TraceError, TraceReader};

use super::counter::{Counter, Counts};
use super::outcome::{Outcome, WorkingSet};
use super::settings::Settings;
use super::verify::Oracle;

/// The name for standard input.
pub(crate) const STDIN: &str = "-";

/// The name to show for the trace at `path`.
pub(crate) fn name(path: &Path) -> String {
    let is_stdin = path == Path::new(STDIN);
    if is_stdin { "standard input".to_owned() } else { path.display().to_string() }
}

/// Finds mistakes in `paths` that can be found before anything is counted.
///
/// # Errors
/// A file cannot be opened, its format is unknown, or options do not fit the format.
pub(crate) fn check(paths: &[PathBuf], settings: &Settings) -> Result<(), TraceError> {
    paths.iter().try_for_each(|path| {
        let name = name(path);
        let mut options = settings.reading.clone();
        if path != Path::new(STDIN) {
            let cannot_open = |source| TraceError::Open { name: name.clone(), source };
            let metadata = fs::metadata(path).map_err(cannot_open)?;
            if metadata.is_file() || metadata.is_dir() {
                return TraceReader::open(path, &options).map(drop);
            }
            options.format = options.format.or_else(|| Format::from_path(path));
            if options.format.is_none() {
                return Err(TraceError::FormatUnknown { name });
            }
        }
        // A pipe is not read here: what is read from it is gone.
        TraceReader::from_read(&name, Box::new(io::empty()), &options).map(drop)
    })
}

/// Measures the trace at `path`; `show_progress` is called with the progress after each block.
///
/// # Errors
/// The trace cannot be read; it has more different pages than the engine can count; or the oracle's
/// counts differ.
pub(crate) fn measure(
    path: &Path,
    settings: &Settings,
    show_progress: &mut dyn FnMut(Progress),
) -> anyhow::Result<Outcome> {
    let name = name(path);
    let mut reader = match path == Path::new(STDIN) {
        true => TraceReader::stdin(&settings.reading)?,
        false => TraceReader::open(path, &settings.reading)?,
    };
    let started = Instant::now();
    let mut run = CountingRun::new(settings, references_max(&reader, settings));
    let mut block = Vec::new();
    loop {
        let read = reader.read_block(&mut block);
        // The block is counted even if an error follows it: it may have all the references that are
        // wanted.
        run.take(&block).with_context(|| name.clone())?;
        show_progress(reader.progress());
        if run.is_over() || read? == 0 {
            break;
        }
    }
    run.outcome(name, &reader, started.elapsed())
}

/// The most references that a trace can have, if its size shows that.
fn references_max(reader: &TraceReader, settings: &Settings) -> Option<u64> {
    let bytes = reader.progress().bytes_total.filter(|_| reader.compression().is_none());
    let by_size = bytes.and_then(|bytes| match reader.format() {
        Format::U64 => Some(bytes / 8),
        Format::OracleGeneral => Some(bytes / 24),
        // At least a digit and the end of the line.
        Format::Text | Format::Csv => Some(bytes / 2 + 1),
        // One access may span several pages.
        Format::Lackey => None,
    });
    by_size.into_iter().chain(settings.references_max).min()
}

/// The state of measuring a trace.
struct CountingRun<'a> {
    settings: &'a Settings,
    counter: Counter,
    oracle: Option<Oracle>,
    aging: Option<Aging>,
    references: u64,
    /// References in the current interval.
    in_interval: u64,
}

impl<'a> CountingRun<'a> {
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

    /// Whether it has as many references as are wanted.
    fn is_over(&self) -> bool {
        self.settings.references_max.is_some_and(|most| self.references >= most)
    }

    /// Counts a block, or the part of it that is still wanted.
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
        self.counter.record(pages)
    }

    fn end_interval(&mut self) {
        self.in_interval = 0;
        if let (Some(aging), Some(histogram)) = (&mut self.aging, self.counter.end_interval()) {
            aging.end_interval(&histogram);
        }
    }

    /// Ends the last interval and returns the aged sum of all; `None` if counts do not age.
    fn aged(&mut self) -> Option<Histogram> {
        if self.aging.is_some() && self.in_interval > 0 {
            self.end_interval();
        }
        self.aging.take().map(|aging| aging.histogram().clone())
    }

    /// The outcome after `elapsed` time.
    fn outcome(
        mut self,
        trace: String,
        reader: &TraceReader,
        elapsed: Duration,
    ) -> anyhow::Result<Outcome> {
        let aged = self.aged();
        let counts = self.counter.counts(aged);
        let oracle = self.oracle.as_ref();
        let verified = oracle.map(|oracle| oracle.compare(&counts)).transpose();
        let verified = verified.with_context(|| trace.clone())?;
        let of_oracle = oracle.map(|oracle| oracle.elapsed).unwrap_or_default();
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
            intervals: self.settings.intervals,
            used,
            histogram,
            curve,
            working_sets,
            active_pages,
            verified,
            // The oracle's time is not part of the engine's.
            elapsed: elapsed.saturating_sub(of_oracle),
        })
    }
}
