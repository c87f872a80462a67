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

`ballast` hands these commands on. Sizes are written 512MiB, 2GiB or as plain bytes. Exit status: 0
done, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `ballast-lab` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// See it work: two real guests, without balancing and with it.
    Demo(demo::Args),
    /// Real guests to try things on.
    Lab(lab::Args),
    /// Play a scenario on real guests: the same as `lab run`.
    Run(Box<lab_run::Args>),
    /// Run scenarios and commands on a real KVM host inside an emulated machine.
    Nested(nested::Args),
    /// Miss-ratio curves and working sets of traces.
    Mrc(mrc::Args),
    /// How often working sets need tracking, and what resting costs.
    Imt(imt::Args),
    /// Compare policies on a simulated host.
    Simulate(simulate::Args),
    /// The papers' tables and figures beside ours.
    Evaluate(evaluate::Args),
    /// A storm of faults around the daemon's engine, and whether its promises hold.
    Storm(storm::Args),
    /// What another policy would have done on recorded days.
    Replay(replay::Args),
    /// Measure how fast and how exact Ballast's parts are on this machine.
    Bench(ballast_bench::Args),
    /// A page of what `ballast track --json` printed.
    TrackPage(track_page::Args),
    /// The daemon of a scenario run, which ends with it.
    #[command(hide = true, name = ballast_scenario_run::daemon::COMMAND)]
    LabDaemon(ballast_scenario_run::daemon::Args),
    /// A program of a scenario run, which ends with it.
    #[command(hide = true, name = ballast_scenario_run::follow::COMMAND)]
    LabFollow(ballast_scenario_run::follow::Args),
}
