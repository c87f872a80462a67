//! The speed and accuracy of each contender on a workload.
//!
//! Idea: in each repetition every contender runs once from nothing, one after the other, so that a
//! disturbance affects all alike; the median of each counts. Building and dropping it is not timed,
//! its growth is. A block is copied to the nearer caches first, untimed, where a reader of traces
//! would leave it; otherwise the fastest contender would be timed reading memory.

use anyhow::ensure;
use ballast_mrc::{Curve, Form, Granularity, Histogram, mean_absolute_error};

use super::super::machine;
use super::contender::ContenderName;
use super::report::{EngineReport, Rate, WorkloadReport};
use super::workload::Workload;
use crate::scaffold::name_of;

/// References passed at once, as by the readers of traces.
const BLOCK: usize = 1 << 16;
/// The same for a contender that is stopped after a time.
const BLOCK_STOPPED: usize = 256;
/// The time after which it is stopped, in seconds.
const STOPPED_SECONDS: f64 = 1.0;
/// The same in a quick run.
const STOPPED_SECONDS_QUICK: f64 = 0.05;

/// What to measure, and how thoroughly.
pub(super) struct Plan {
    pub(super) contenders: Vec<ContenderName>,
    pub(super) repetitions: usize,
    pub(super) is_quick: bool,
}

/// One contender's runs.
struct ContenderRuns {
    name: ContenderName,
    /// Millions of references a second, by run.
    rates: Vec<f64>,
    references: usize,
    bytes_per_page: Option<f64>,
    /// By seed, from the first repetition.
    histograms: Vec<Histogram>,
}

/// Runs all contenders on a workload; `progress` gets the name of each.
///
/// # Errors
/// There are too many pages, or exact contenders disagree.
pub(super) fn measure(
    workload: &Workload,
    plan: &Plan,
    mut progress: impl FnMut(usize, ContenderName),
) -> anyhow::Result<WorkloadReport> {
    let mut all: Vec<ContenderRuns> =
        plan.contenders.iter().map(|&name| ContenderRuns::new(name)).collect();
    for repetition in 0..plan.repetitions {
        for runs in &mut all {
            progress(repetition, runs.name);
            for &seed in runs.name.seeds() {
                runs.run(workload, seed, plan.is_quick, repetition == 0)?;
            }
        }
        if repetition == 0 {
            check_exact(workload, &all)?;
        }
    }
    let truth = all.iter().find(|runs| runs.name.is_exact() && runs.is_whole(workload));
    let truth = truth.map(|runs| curve(&runs.histograms[0]));
    let engines = all.iter().map(|runs| runs.report(workload, truth.as_ref())).collect();
    Ok(WorkloadReport::new(workload, engines))
}

impl ContenderRuns {
    fn new(name: ContenderName) -> Self {
        Self { name, rates: vec![], references: 0, bytes_per_page: None, histograms: vec![] }
    }

    fn run(
        &mut self,
        workload: &Workload,
        seed: u64,
        is_quick: bool,
        keep: bool,
    ) -> anyhow::Result<()> {
        let pages = self.name.pages(workload);
        let mut contender = self.name.build(workload, seed);
        let seconds_max = if is_quick { STOPPED_SECONDS_QUICK } else { STOPPED_SECONDS };
        let seconds_max = self.name.is_given_some().then_some(seconds_max);
        let block = if seconds_max.is_some() { BLOCK_STOPPED } else { BLOCK };
        let (mut references, mut seconds) = (0, 0.0);
        let mut near = Vec::with_capacity(block);
        for block in pages.chunks(block) {
            near.clear();
            near.extend_from_slice(block);
            let start = machine::seconds();
            contender.take(&near)?;
            seconds += machine::seconds() - start;
            references += block.len();
            if seconds_max.is_some_and(|most| seconds > most) {
                break;
            }
        }
        // A clock may be too coarse for a tiny trace.
        let seconds = f64::max(seconds, 1e-9);
        self.rates.push(references as f64 / seconds / 1e6);
        self.references = references;
        self.bytes_per_page = contender.bytes_per_page();
        if keep {
            self.histograms.extend(contender.histogram());
        }
        Ok(())
    }

    fn is_whole(&self, workload: &Workload) -> bool {
        self.references == workload.pages.len()
    }

    fn report(&self, workload: &Workload, truth: Option<&Curve>) -> EngineReport {
        let mut errors = Vec::new();
        if let Some(truth) = truth.filter(|_| self.name.is_sampling()) {
            let error = |histogram| {
                let sizes = 1..=workload.distinct;
                mean_absolute_error(truth, &curve(histogram), sizes, Form::Total)
            };
            errors.extend(self.histograms.iter().map(error));
        }
        EngineReport {
            engine: name_of(self.name),
            references: self.references as u64,
            is_prefix: !self.is_whole(workload),
            million_per_second: Rate::of(&self.rates),
            share_of_floor: None,
            times_avl: None,
            times_exact: None,
            bytes_per_page: self.bytes_per_page,
            error_mean: (!errors.is_empty())
                .then(|| errors.iter().sum::<f64>() / errors.len() as f64),
            error_worst: errors.into_iter().reduce(f64::max),
        }
    }
}

fn curve(histogram: &Histogram) -> Curve {
    Curve::new(histogram, Granularity::PAGE)
}

/// Checks that exact contenders that got all references counted the same.
fn check_exact(workload: &Workload, all: &[ContenderRuns]) -> anyhow::Result<()> {
    let mut whole = all.iter().filter(|runs| runs.name.is_exact() && runs.is_whole(workload));
    let Some(first) = whole.next() else { return Ok(()) };
    for other in whole {
        ensure!(
            first.histograms == other.histograms,
            "{}: the histograms of {} and {} differ: one of them is wrong, and so are all figures",
            workload.name,
            name_of(first.name),
            name_of(other.name)
        );
    }
    Ok(())
}
