//! The command line: every subcommand.

use clap::{Parser, Subcommand};

use crate::commands::{
    advise, control, daemon, doctor, explain, journal, plan, policy, reserve, set, status, top,
    track,
};
use crate::lab::PassedOn;

/// Balances the memory of the virtual machines on a host.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ballast",
    version,
    after_help = "\
Examples:
  ballast daemon --config /etc/ballast.toml
  ballast status
  ballast top
  ballast explain web-1
  ballast advise

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
    /// Balance, in the foreground, until stopped.
    Daemon(daemon::Args),
    /// Host and guests at a glance.
    Status(status::Args),
    /// Host and guests, live in the terminal.
    Top(top::Args),
    /// Why a guest has the memory it has.
    Explain(explain::Args),
    /// What balancing would have been worth, from what was recorded, and what to do.
    Advise(advise::Args),
    /// The latest plan, or what the next tick would do.
    Plan(plan::Args),
    /// Which policies there are, and what each does.
    Policy(policy::Args),
    /// Change a guest's bounds or the policy.
    Set(set::Args),
    /// Make room for a guest that is about to start.
    Reserve(reserve::Args),
    /// Whether memory is moved, or only said what would be.
    Mode(control::ModeArgs),
    /// Stop acting; observing, deciding and recording go on.
    Pause(control::PauseArgs),
    /// Act again.
    Resume(control::ResumeArgs),
    /// See it work: two real guests, without balancing and with it.
    #[command(disable_help_flag = true)]
    Demo(PassedOn),
    /// Several hosts as one fleet: who is in it, and which guests had better be elsewhere.
    #[command(disable_help_flag = true)]
    Fleet(PassedOn),
    /// Real guests to try things on.
    #[command(disable_help_flag = true)]
    Lab(PassedOn),
    /// What was recorded: export it, or say what there is.
    Journal(journal::Args),
    /// Miss-ratio curves and working sets of traces.
    #[command(disable_help_flag = true)]
    Mrc(PassedOn),
    /// The working set of a live guest.
    Track(track::Args),
    /// What works on this host, what does not, and what to do about it.
    Doctor(doctor::Args),
    /// How often working sets need tracking, and what resting costs.
    #[command(disable_help_flag = true)]
    Imt(PassedOn),
    /// Compare policies on a simulated host.
    #[command(disable_help_flag = true)]
    Simulate(PassedOn),
    /// What another policy would have done on recorded days.
    #[command(disable_help_flag = true)]
    Replay(PassedOn),
    /// Measure how fast and how exact Ballast's parts are on this machine.
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
}
