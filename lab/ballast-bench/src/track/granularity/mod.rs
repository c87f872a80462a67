//! Pages per granule: cost and accuracy of tracking in granules of different sizes.
//!
//! Idea: MEB Figs 2 and 3 repeated: every granule is watched, once in an interval, in granules of 1
//! to 1,024 pages, with 100 MiB of random pages, with 2.25 GiB of them, and with a recorded program
//! whose pages are not all adjacent. Then the switch from 32 to 512 pages above 2 GiB, and back.
//!
//! Cost: ten minutes and 3 GiB of memory; `--quick` takes two minutes.
//! Limits: those of [`native`](super::native). MEB's cost is mostly that of its histogram, ours
//! that of traps: the shape of the curve can be compared with the paper's, its height cannot.

pub(super) mod report;

use std::time::Duration;

use anyhow::Context;
use ballast_model::Bytes;
use ballast_mrc::Granularity;
use ballast_working_set::WatchPlannerSettings;

use self::report::{Footprint, GranularityFindings, Point, Switch};
use super::native::algorithm::TrackingAlgorithm;
use super::native::program::{Program, Subject, Truth};
use super::native::running::{HandlerPlacement, RunningProgram};
use super::native::steer::{Steer, WayTracker};
use crate::machine::{Machine, allowed_cores};
use crate::scaffold::{Say, WithGoals};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Windows with tracking, for each size of granules.
const ROUNDS: u32 = 3;
/// Length of a window without tracking.
const REST: Duration = Duration::from_millis(500);
/// Working sets of the switch in MiB, one part after the other, and touches in a part, which take
/// some seconds.
const SWITCH_MIB: [u32; 3] = [1024, 2304, 512];
const SWITCH_TOUCHES: u64 = 150_000_000;
/// Intervals of the switch, about two rounds.
const SWITCH_INTERVALS: u32 = 60;

/// Measures; progress goes to `say`. This thread stays on the last core afterwards.
///
/// # Errors
/// The tracker or the program is not built or not allowed, or there is too little memory.
pub(super) fn measure(
    is_quick: bool,
    say: Say<'_>,
) -> anyhow::Result<WithGoals<GranularityFindings>> {
    // Before this thread stays on one of them.
    let cores = allowed_cores()?;
    let machine = Machine::pinned()?;
    let rounds = if is_quick { 1 } else { ROUNDS };
    let mut points = Vec::new();
    for footprint in Footprint::ALL {
        let program = program(footprint)?;
        let truth = program.truth()?;
        let mut running = RunningProgram::start(&program, cores.clone())?;
        for shift in (0..=10).filter(|shift| !is_quick || shift % 5 == 0) {
            let pages = 1_u64 << shift;
            say(&format!("{}: granules of {pages} pages", footprint.name()));
            let point = point(&mut running, &truth, footprint, pages, rounds);
            points.push(point.with_context(|| format!("cannot track in {pages} pages"))?);
        }
    }
    say("the switch above 2 GiB");
    let switch = switch(cores, if is_quick { 3 } else { SWITCH_INTERVALS })?;
    Ok(WithGoals::new(GranularityFindings { machine, is_quick, points, switch }))
}

fn program(footprint: Footprint) -> anyhow::Result<Program> {
    Ok(match footprint {
        Footprint::Small => Program::random(128, &[100], 0),
        Footprint::Large => Program::random(2560, &[2304], 0),
        Footprint::Recorded => Subject::Python.program()?,
    })
}

fn point(
    running: &mut RunningProgram,
    truth: &Truth,
    footprint: Footprint,
    pages: u64,
    rounds: u32,
) -> anyhow::Result<Point> {
    let granule = Granularity::new(pages).context("no power of two")?;
    let mut steer = Steer::new(
        running,
        TrackingAlgorithm::granules(granule),
        INTERVAL,
        HandlerPlacement::Beside,
    )?;
    // The first touches of pages cost more than later ones.
    steer.window(running, 2)?;
    let mut off = vec![steer.rest(running, REST)?];
    let mut on = Vec::new();
    for _ in 0..rounds {
        steer.window(running, 1)?;
        on.push(steer.window(running, 2)?);
        off.push(steer.rest(running, REST)?);
    }
    Ok(Point::new(footprint, pages, &off, &on, |touches| truth.touched(touches)))
}

/// Runs the daemon's own planner without a sample.
fn switch(cores: Vec<usize>, intervals: u32) -> anyhow::Result<Vec<Switch>> {
    let program = Program::random(2560, &SWITCH_MIB, SWITCH_TOUCHES);
    let truth = program.truth()?;
    let mut running = RunningProgram::start(&program, cores)?;
    let settings =
        WatchPlannerSettings { sample: None, rest: None, ..WatchPlannerSettings::default() };
    let algorithm = TrackingAlgorithm::planner(settings, Bytes::new(running.bytes()));
    let mut steer = Steer::new(&mut running, algorithm, INTERVAL, HandlerPlacement::Beside)?;
    let window = steer.window(&mut running, intervals)?;
    Ok(window
        .intervals
        .iter()
        .map(|it| Switch::new(it, |touches| truth.touched(touches)))
        .collect())
}
