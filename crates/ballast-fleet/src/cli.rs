//! The command line: every subcommand.

use clap::{Parser, Subcommand};

use crate::commands::{explain, orders, plan, run, status};

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
    Status(status::StatusArgs),
    /// Show the status live in the terminal.
    Top(status::TopArgs),
    /// Show which guests should move to another host, and why.
    Plan(plan::Args),
    /// Show what the fleet knows of a guest, and what is planned for it.
    Explain(explain::Args),
    /// Plan to move all guests away from a host.
    Drain(orders::DrainArgs),
    /// Stop planning until `ballast fleet resume`.
    Pause(orders::PauseArgs),
    /// Plan again after `ballast fleet pause`.
    Resume(orders::ResumeArgs),
    /// Remove the record of a finished move whose source never comes back.
    Forget(orders::ForgetArgs),
}
