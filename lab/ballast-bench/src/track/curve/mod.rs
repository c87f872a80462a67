//! The error of a sample's miss curve.
//!
//! Idea: the n-th touch of a program is known. So the exact trace of each interval can be passed
//! through the tracker's hot set and revocations, and through the exact engine. The remaining
//! difference between that curve and the tracker's is the error of the sample. Two cases: the
//! daemon's way, where each page is seen once in an interval, and with the hot set of MEB.
//!
//! Cost: some five minutes, most of it for the exact curves; `--quick` takes one.
//! Limits: those of [`native`](super::native). Curves are compared beyond both hot sets, each
//! relative to its own misses at that size. The sample also estimates the number of misses, but
//! this table does not compare it.

mod model;
pub(super) mod report;

use std::time::Duration;

use anyhow::Context;
use ballast_model::Bytes;
use ballast_working_set::WatchPlannerSettings;
use clap::ValueEnum;

use self::model::{Model, distance};
use self::report::{CurveFindings, Figures};
use super::native::algorithm::TrackingAlgorithm;
use super::native::program::{Subject, Truth};
use super::native::running::{HandlerPlacement, RunningProgram};
use super::native::steer::{Interval, Steer, WayTracker};
use crate::machine::{Machine, allowed_cores};
use crate::scaffold::{Say, WithGoals, name_of};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals until the sample has found its size.
const WARM_UP: u32 = 10;
/// Intervals that are compared.
const COMPARED: u32 = 8;

/// Measures; progress goes to `say`. This thread stays on the last core afterwards.
///
/// # Errors
/// The tracker or the program is not built or not allowed.
pub(super) fn measure(is_quick: bool, say: Say<'_>) -> anyhow::Result<WithGoals<CurveFindings>> {
    // Before this thread stays on one of them.
    let cores = allowed_cores()?;
    let machine = Machine::pinned()?;
    let compared = if is_quick { 1 } else { COMPARED };
    let mut figures = Vec::new();
    for &subject in Subject::value_variants() {
        let program = subject.program()?;
        let truth = program.truth()?;
        let mut running = RunningProgram::start(&program, cores.clone())?;
        for has_hot_set in [false, true] {
            let what = if has_hot_set { "with a hot set" } else { "once an interval" };
            say(&format!("{}: {what}", name_of(subject)));
            let settings = WatchPlannerSettings {
                rest: None,
                hot_set: has_hot_set,
                ..WatchPlannerSettings::default()
            };
            let algorithm = TrackingAlgorithm::planner(settings, Bytes::new(running.bytes()));
            let window = Steer::new(&mut running, algorithm, INTERVAL, HandlerPlacement::Beside)
                .and_then(|mut steer| steer.window(&mut running, WARM_UP + compared))
                .with_context(|| format!("cannot track {} {what}", name_of(subject)))?;
            figures.push(compare(subject, &truth, &window.intervals, compared as usize));
        }
    }
    Ok(WithGoals::new(CurveFindings { machine, is_quick, intervals: compared, figures }))
}

/// Compares the last `compared` of the intervals with the exact result.
fn compare(subject: Subject, truth: &Truth, intervals: &[Interval], compared: usize) -> Figures {
    let mut model = Model::new();
    let mut figures = Figures::new(subject);
    let first = intervals.len().saturating_sub(compared);
    for (number, interval) in intervals.iter().enumerate() {
        let share = interval.watch.watched.share;
        let hot_pages = interval.watch.hot.map(|hot| (hot as f64 / share).round() as u64);
        let exact = model.interval(truth, interval.touches.clone(), hot_pages);
        let Some(result) = interval.result.as_ref().filter(|_| number >= first) else { continue };
        let from = Bytes::pages(hot_pages.unwrap_or(0));
        let apart = result
            .curve
            .as_ref()
            .zip(exact.curve.as_ref())
            .and_then(|(sampled, exact)| distance(sampled, exact, from));
        let all = interval.touches.end - interval.touches.start;
        figures.enter(apart, (interval.traps, exact.seen, all), (share, from.get()));
    }
    figures
}
