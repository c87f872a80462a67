//! What tracking costs a program, in every way there is.
//!
//! Idea: the tracker's library is loaded into a program that does nothing but touch memory at the
//! machine's own speed. Windows without tracking and with it take turns, so that a disturbance hits
//! both alike; the ways of the paper are measured beside ours in the same run. The form is that of MEB
//! Table I.
//!
//! Cost: half an hour; `--quick` takes two minutes.
//! Limits: program and tracker on the first core, the daemon's side on the last; with one core alone they
//! share it. Such a program has a trap for nearly each access to a page that is not hot, where others
//! compute in between: what it loses is an upper bound. The event by which phases are told is its own
//! count of touches here.

mod render;
mod report;
mod steer;
mod subject;
mod way;

use std::io::Write;

use anyhow::Context;
use rustix::thread::CpuSet;

use self::report::Figures;
use self::steer::Steer;
use self::subject::{Running, Subject};
use self::way::Way;
use super::super::machine::Machine;

pub(super) use self::render::render;
pub(super) use self::report::Report;

/// What is measured, and how often.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Choice {
    /// A way to track, as often as wanted [default: all]; of the table `cost`
    #[arg(long = "way", value_name = "NAME", value_enum)]
    ways: Vec<Way>,
    /// A program, as often as wanted [default: all]; of the table `cost`
    #[arg(long = "program", value_name = "NAME", value_enum)]
    programs: Vec<Subject>,
    /// Pairs of windows for each way and program; of the table `cost`
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
}

impl Choice {
    /// Whether less than everything was asked for.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.ways.is_empty() || !self.programs.is_empty()
    }
}

/// Measures; what runs is told to `progress`. This thread stays on the last core afterwards.
///
/// # Errors
/// The tracker or the program is not built or not allowed.
pub(super) fn measure(
    choice: &Choice,
    is_quick: bool,
    progress: &mut impl Write,
) -> anyhow::Result<Report> {
    let core = first_core()?;
    let machine = Machine::pinned()?;
    let ways = match choice.ways.is_empty() {
        true => Way::ALL.to_vec(),
        false => all_of(&choice.ways, &Way::ALL),
    };
    let programs = match choice.programs.is_empty() {
        true => Subject::ALL.to_vec(),
        false => all_of(&choice.programs, &Subject::ALL),
    };
    let rounds = if is_quick { 1 } else { usize::from(choice.rounds) };
    let mut figures = Vec::new();
    for program in programs {
        let mut running = Running::start(program, core)?;
        for &way in &ways {
            // Nobody reads it, or somebody does: the figures are the same.
            let _ = writeln!(progress, "{}: {}", program.name(), way.name());
            let found = pairs(&mut running, way, rounds)
                .with_context(|| format!("cannot track {} by {}", program.name(), way.name()))?;
            figures.push(found);
        }
    }
    Ok(Report::new(machine, is_quick, rounds, figures))
}

/// The first core that this thread may run on: the daemon's side takes the last.
fn first_core() -> anyhow::Result<usize> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .context("cannot tell which cores this thread may run on")?;
    Ok((0..CpuSet::MAX_CPU).find(|&core| allowed.is_set(core)).unwrap_or(0))
}

/// Those of `every` that were chosen, in its order.
fn all_of<T: Copy + PartialEq>(chosen: &[T], every: &[T]) -> Vec<T> {
    every.iter().copied().filter(|it| chosen.contains(it)).collect()
}

/// Pairs of windows.
fn pairs(running: &mut Running, way: Way, rounds: usize) -> anyhow::Result<Figures> {
    let mut steer = Steer::new(running, way)?;
    // What is seen for the first time costs more than the rest.
    steer.window(running, way.warm_up())?;
    let mut windows = Vec::new();
    for _ in 0..rounds {
        let off = steer.rest(running, way.rest())?;
        // Whether phases are stable is found out outside of the window.
        steer.window(running, way.settle())?;
        let on = steer.window(running, way.intervals())?;
        windows.push((off, on));
    }
    Ok(Figures::new(running.subject(), way, &windows, running.bytes()))
}
