//! The command line: every subcommand and the code that handles it.

use clap::{Parser, Subcommand};

use crate::commands::{
    demo, evaluate, imt, lab, lab_run, mrc, nested, replay, simulate, storm, track_page,
};

/// Real guests, simulation, miss-ratio curves and benchmarks for Ballast.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ballast-lab",
    version,
    after_help = "\
Examples:
  ballast-lab demo
  ballast-lab lab up --guests 2
  ballast-lab simulate scenarios/meb-16.toml --policy all

demo, lab, mrc, imt, simulate, replay and bench are also commands of `ballast`. Sizes are written
512MiB, 2GiB or as plain bytes. Exit status: 0 done, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `ballast-lab` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Compare two real guests with and without balancing.
    Demo(demo::Args),
    /// Start real guests and play scenarios on them.
    Lab(lab::Args),
    /// Play a scenario on real guests; the same as `lab run`.
    Run(Box<lab_run::Args>),
    /// Run scenarios and commands on a real KVM host inside an emulated machine.
    Nested(nested::Args),
    /// Compute miss-ratio curves and working sets from traces.
    Mrc(mrc::Args),
    /// Compute how often working sets need tracking, and the error of resting.
    Imt(imt::Args),
    /// Compare policies on a simulated host.
    Simulate(simulate::Args),
    /// Compare the papers' tables and figures with ours.
    Evaluate(evaluate::Args),
    /// Inject faults into the daemon's engine and check that its guarantees hold.
    Storm(storm::Args),
    /// Replay a recorded journal under other policies.
    Replay(replay::Args),
    /// Measure the speed and accuracy of Ballast's parts on this machine.
    Bench(ballast_bench::Args),
    /// Draw an HTML page from the output of `ballast track --json`.
    TrackPage(track_page::Args),
    /// The daemon of a scenario run, which ends with it.
    #[command(hide = true, name = ballast_scenario_run::daemon::COMMAND)]
    LabDaemon(ballast_scenario_run::daemon::Args),
    /// A program of a scenario run, which ends with it.
    #[command(hide = true, name = ballast_scenario_run::follow::COMMAND)]
    LabFollow(ballast_scenario_run::follow::Args),
}
