//! The command line: every subcommand.

use clap::{Parser, Subcommand};

use crate::commands::orders::DrainArgs;
use crate::commands::{FleetArgs, GuestArgs, run};

/// Runs several hosts as one fleet and plans which guests should move to another host.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ballast-fleet",
    bin_name = "ballast fleet",
    version,
    after_help = "\
Examples:
  ballast-fleet run
  ballast fleet status
  ballast fleet plan
  ballast fleet drain node-3

Plans are only advice unless the hosts are in mode `move`. Exit status: 0 done, 1 failed, 2 wrong
usage."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `ballast-fleet` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run this host as a member of the fleet, in the foreground until stopped.
    Run(run::Args),
    /// Show the leader, the hosts and their memory, and moves under way.
    #[command(after_help = "\
Examples:
  ballast fleet status
  ballast fleet status --json | jq '.hosts[] | select(.short_bytes > 0)'")]
    Status(FleetArgs),
    /// Show the status live in the terminal.
    #[command(after_help = "\
Example:
  ballast fleet top

Ctrl-C stops it.")]
    Top(FleetArgs),
    /// Show which guests should move to another host, and why.
    #[command(after_help = "\
Examples:
  ballast fleet plan
  ballast fleet plan --json | jq -r '.plan.migrations[] | \"\\(.guest) \\(.to)\"'

In mode `advise` the plan is only advice. In mode `move` its moves are carried out, except those
from or to a host in mode `advise`; these are marked `by hand`.")]
    Plan(FleetArgs),
    /// Show what the fleet knows of a guest, and what is planned for it.
    #[command(after_help = "\
Examples:
  ballast fleet explain web-1
  ballast fleet explain web-1 --json")]
    Explain(GuestArgs),
    /// Plan to move all guests away from a host.
    #[command(after_help = "\
Examples:
  ballast fleet drain node-3 && ballast fleet plan
  ballast fleet drain node-3 --undo

No guest moves to a draining host. The order survives restarts of the host and of the leader.")]
    Drain(DrainArgs),
    /// Stop planning until `ballast fleet resume`.
    #[command(after_help = "\
Example:
  ballast fleet pause")]
    Pause(FleetArgs),
    /// Plan again after `ballast fleet pause`.
    #[command(after_help = "\
Example:
  ballast fleet resume")]
    Resume(FleetArgs),
    /// Remove the record of a finished move whose source never comes back.
    #[command(after_help = "\
Example:
  ballast fleet forget web-1

Only once the machine that the guest left is certainly gone: if it comes back without the record, a
copy that stands still there is neither resumed nor ended. A move that is not over is kept, as its
record may be all that keeps the only copy of the guest.")]
    Forget(GuestArgs),
}
