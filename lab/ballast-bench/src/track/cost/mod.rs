//! What tracking costs a program, for every way to track.
//!
//! Idea: the tracker's library is loaded into a program that only touches memory, at the machine's
//! own speed. Windows without tracking and with it alternate, so that a disturbance affects both
//! alike; the ways of the paper are measured together with ours in the same run. The form is that
//! of MEB Table I.
//!
//! The accuracy is measured, too: the n-th touch of the program is known, so the working set of
//! each interval is exact.
//!
//! Each interval of a window with tracking is compared with the windows without it before and
//! after, by the program's touches in the time that other programs left to it (see
//! [`native::clock`](super::native::clock)). If those two windows differ by a tenth, the program or
//! the machine changed meanwhile, and the window is left out (unless all windows are like that).
//! The cost of a sample is far below the variation of a shared machine's speed from second to
//! second, so many windows are needed; the standard error is shown.
//!
//! Cost: half an hour; `--quick` takes three minutes.
//! Limits: those of [`native`](super::native). Such a program traps at nearly each access to a page
//! that is not hot, while other programs compute in between: its slowdown is an upper bound.

pub(super) mod report;

use anyhow::Context;
use ballast_model::Bytes;

use self::report::{CostFindings, Figures, means};
use super::native::algorithm::TrackingAlgorithm;
use super::native::followed::Followed;
use super::native::program::{Subject, Truth};
use super::native::running::{HandlerPlacement, RunningProgram};
use super::native::steer::{Steer, WayTracker};
use super::native::way::Way;
use crate::machine::{Machine, allowed_cores};
use crate::scaffold::{Say, WithGoals, chosen, name_of};

/// What is measured, and how often.
#[derive(Clone, Debug, clap::Args)]
// Each table has such a type, and clap names the group of arguments after the type.
#[group(skip)]
pub(super) struct Choice {
    /// For the table `cost`: a way to track; repeatable [default: all]
    #[arg(long = "way", value_name = "NAME", value_enum)]
    ways: Vec<Way>,
    /// For the table `cost`: a program to track; repeatable [default: all]
    #[arg(long = "program", value_name = "NAME", value_enum)]
    programs: Vec<Subject>,
    /// For the table `cost`: where the tracker's thread that answers faults runs
    #[arg(long = "handler", value_name = "PLACE", value_enum, default_value_t)]
    place: HandlerPlacement,
    /// For the table `cost`: pairs of windows for each way and program; several times as many for
    /// ways that rest or sample
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
}

impl Choice {
    /// Whether the user asked for less than everything.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.ways.is_empty()
            || !self.programs.is_empty()
            || self.place != HandlerPlacement::default()
    }
}

/// Measures; progress goes to `say`. This thread stays on the last core afterwards.
///
/// # Errors
/// The tracker or the program is not built or not allowed.
pub(super) fn measure(
    choice: &Choice,
    is_quick: bool,
    say: Say<'_>,
) -> anyhow::Result<WithGoals<CostFindings>> {
    // Before this thread stays on one of them.
    let cores = allowed_cores()?;
    let machine = Machine::pinned()?;
    let ways = chosen(&choice.ways);
    let rounds = if is_quick { 1 } else { usize::from(choice.rounds) };
    let mut figures = Vec::new();
    for subject in chosen(&choice.programs) {
        let program = subject.program()?;
        let truth = program.truth()?;
        let mut running = RunningProgram::start(&program, cores.clone())?;
        for &way in &ways {
            say(&format!("{}: {}", name_of(subject), way.name()));
            let found = pairs(&mut running, (subject, &truth), way, choice.place, rounds)
                .with_context(|| format!("cannot track {} by {}", name_of(subject), way.name()))?;
            figures.push(found);
        }
    }
    let (handler, means) = (choice.place, means(&figures));
    Ok(WithGoals::new(CostFindings { machine, is_quick, rounds, handler, figures, means }))
}

fn tracker(
    way: Way,
    running: &mut RunningProgram,
    place: HandlerPlacement,
) -> anyhow::Result<Box<dyn WayTracker>> {
    if way == Way::Daemon {
        return Ok(Box::new(Followed::new(running, way.interval())?));
    }
    let algorithm = TrackingAlgorithm::of(way, Bytes::new(running.bytes()));
    Ok(Box::new(Steer::new(running, algorithm, way.interval(), place)?))
}

/// Windows with tracking, between windows without.
fn pairs(
    running: &mut RunningProgram,
    (subject, truth): (Subject, &Truth),
    way: Way,
    place: HandlerPlacement,
    rounds: usize,
) -> anyhow::Result<Figures> {
    let mut tracker = tracker(way, running, place)?;
    // The first touches of pages cost more than later ones.
    tracker.window(running, way.warm_up())?;
    let mut off = vec![tracker.rest(running, way.rest())?];
    let mut on = Vec::new();
    for _ in 0..rounds * way.pairs() {
        if way.settle() > 0 {
            tracker.window(running, way.settle())?;
        }
        on.push(tracker.window(running, way.intervals())?);
        off.push(tracker.rest(running, way.rest())?);
    }
    let memory = (running.bytes(), tracker.share());
    Ok(Figures::new(subject, way, &off, &on, memory, |touches| truth.touched(touches)))
}
