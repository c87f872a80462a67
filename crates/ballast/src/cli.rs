//! The command line: every subcommand.

use clap::{Parser, Subcommand};

use crate::commands::{
    advise, control, daemon, doctor, explain, journal, plan, policy, reserve, set, status, top,
    track,
};
use crate::lab::ProgramArguments;

/// Balances the memory of the virtual machines on a host.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ballast",
    version,
    after_help = "\
Examples:
  ballast daemon --config /etc/ballast/ballast.toml
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
    /// Run the balancer in the foreground until stopped.
    Daemon(daemon::Args),
    /// Show the host and all guests.
    Status(status::Args),
    /// Show the host and all guests, live in the terminal.
    Top(top::Args),
    /// Explain why a guest has the memory it has.
    Explain(explain::Args),
    /// Estimate from the journal what balancing would gain, and recommend what to change.
    Advise(advise::Args),
    /// Show the latest plan, or what Ballast would do now if it were balancing.
    Plan(plan::Args),
    /// List the policies, or describe one.
    Policy(policy::Args),
    /// Change a guest's bounds or the policy.
    Set(set::Args),
    /// Make room for a guest that is about to start.
    Reserve(reserve::Args),
    /// Show or set the mode: balance, or only observe.
    Mode(control::ModeArgs),
    /// Stop moving memory; keep observing, deciding and recording.
    #[command(after_help = "\
Example:
  ballast pause && ballast plan --dry-run && ballast resume")]
    Pause(control::OrderArgs),
    /// Move memory again after `ballast pause`.
    #[command(after_help = "\
Example:
  ballast resume")]
    Resume(control::OrderArgs),
    /// Compare two real guests with and without balancing.
    #[command(disable_help_flag = true)]
    Demo(ProgramArguments),
    /// Run several hosts as one fleet: members, and guests that should move to another host.
    #[command(disable_help_flag = true)]
    Fleet(ProgramArguments),
    /// Start real guests and play scenarios on them.
    #[command(disable_help_flag = true)]
    Lab(ProgramArguments),
    /// Export or summarize the journal.
    Journal(journal::Args),
    /// Compute miss-ratio curves and working sets from traces.
    #[command(disable_help_flag = true)]
    Mrc(ProgramArguments),
    /// Track the working set of a live guest.
    Track(track::Args),
    /// Check what works on this host, what does not, and how to fix it.
    Doctor(doctor::Args),
    /// Compute how often working sets need tracking, and the error of resting.
    #[command(disable_help_flag = true)]
    Imt(ProgramArguments),
    /// Compare policies on a simulated host.
    #[command(disable_help_flag = true)]
    Simulate(ProgramArguments),
    /// Replay a recorded journal under other policies.
    #[command(disable_help_flag = true)]
    Replay(ProgramArguments),
    /// Measure the speed and accuracy of Ballast's parts on this machine.
    #[command(disable_help_flag = true)]
    Bench(ProgramArguments),
}
