//! The command line: every subcommand and where it goes.

use clap::{Parser, Subcommand};

use crate::bench;
use crate::commands::{
    control, daemon, demo, explain, imt, journal, lab, mrc, plan, policy, replay, set, simulate,
    status, track,
};
use crate::story;

/// Balances the memory of the virtual machines on a host.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ballast",
    version,
    after_help = "\
Examples:
  ballast daemon --config /etc/ballast.toml
  ballast status
  ballast explain web-1

Sizes are written 512MiB, 2GiB or as plain bytes. Exit status: 0 done, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `ballast` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Balance, in the foreground, until told to stop.
    Daemon(daemon::Args),
    /// Host and guests at a glance.
    Status(status::Args),
    /// Why a guest has the memory it has.
    Explain(explain::Args),
    /// The latest plan, or what the next tick would do.
    Plan(plan::Args),
    /// Which policies there are, and what each does.
    Policy(policy::Args),
    /// Change a guest's bounds or the policy.
    Set(set::Args),
    /// Stop acting; observing, deciding and recording go on.
    Pause(control::PauseArgs),
    /// Act again.
    Resume(control::ResumeArgs),
    /// See it work: two real guests, without balancing and with it.
    Demo(demo::Args),
    /// Real guests to try things on.
    Lab(lab::Args),
    /// What was recorded: export it, or say what there is.
    Journal(journal::Args),
    /// Miss-ratio curves and working sets of traces.
    Mrc(mrc::Args),
    /// The working set of a live guest.
    Track(track::Args),
    /// How often working sets need tracking, and what resting costs.
    Imt(imt::Args),
    /// Compare policies on a simulated host.
    Simulate(simulate::Args),
    /// What another policy would have done on recorded days.
    Replay(replay::Args),
    /// Measure how fast and how exact Ballast's parts are on this machine.
    Bench(bench::Args),
    /// The daemon of a story, which ends with it.
    #[command(hide = true, name = story::daemon::COMMAND)]
    LabDaemon(story::daemon::Args),
}
