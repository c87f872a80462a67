//! The command line: every subcommand.

use clap::{Parser, Subcommand};

use crate::commands::{explain, orders, plan, run, status};

/// Several hosts as one fleet: who is in it, and which guests had better be on another host.
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

Plans are advice unless hosts are in mode `move`. Exit status: 0 done, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What `ballast-fleet` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Be a member of the fleet, in the foreground, until stopped.
    Run(run::Args),
    /// Who leads, which hosts there are, and how they are.
    Status(status::StatusArgs),
    /// The same, live in the terminal.
    Top(status::TopArgs),
    /// Which guests had better be on another host, and why.
    Plan(plan::Args),
    /// What is known of a guest, and what the plan has for it.
    Explain(explain::Args),
    /// Let the plan move all guests away from a host.
    Drain(orders::DrainArgs),
    /// Plan nothing until told otherwise.
    Pause(orders::PauseArgs),
    /// Plan again.
    Resume(orders::ResumeArgs),
}
