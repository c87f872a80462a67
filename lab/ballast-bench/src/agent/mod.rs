//! `ballast bench agent`: what guests' agents cost, in the guest and on the host, and how soon an
//! emergency is answered.
//!
//! Idea: the agent's own program reports once a second on this machine, and in an emulated guest,
//! where reads of `/proc` cost some tens of times as much. Then a daemon listens in turns to a
//! thousand guests that report once a second, and to none of them, so that the difference is the
//! cost of listening. Cost: five minutes; `--quick` takes one.

mod daemon;
mod own;
mod peers;
mod report;

use std::path::PathBuf;

use report::AgentFindings;

use crate::machine;
use crate::scaffold::{self, Say, WithGoals};
use ballast_report::Output;

/// Measure what guests' agents cost, and how soon an emergency is answered.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench agent
  ballast bench agent --quick
  ballast bench agent --guests 100 --no-guest --json > agent.json

The agent is the program that guests of the lab are given. The daemon's guests are sockets that
speak QMP and the agents' protocol, in a process of their own; the daemon is this program, journal
included.")]
pub(super) struct Args {
    /// Guests that report to the daemon
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u16).range(1..=4000))]
    guests: u16,
    /// Boot no guest; measure only the agent on this machine and the daemon
    #[arg(long)]
    no_guest: bool,
    /// Measure few guests for a few seconds
    #[arg(long, conflicts_with = "guests")]
    quick: bool,
    /// Be the guests of a folder (how this command starts its other half)
    #[arg(long, value_name = "FOLDER", hide = true)]
    peers: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Measures and prints; progress goes to standard error.
///
/// # Errors
/// The agent is not built, a guest does not get ready, the daemon cannot be started, or standard
/// output cannot be written.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(folder) = &args.peers {
        return peers::serve(folder, args.guests.into());
    }
    scaffold::print(args.output, &measure(args, &scaffold::say)?, WithGoals::render)
}

fn measure(args: &Args, say: Say<'_>) -> anyhow::Result<WithGoals<AgentFindings>> {
    let mut agent = vec![own::here(args.quick, say)?];
    if !args.no_guest {
        agent.push(own::emulated(args.quick, say)?);
    }
    let plan = if args.quick { daemon::Plan::QUICK } else { daemon::Plan::whole(args.guests) };
    let daemon = daemon::measure(&plan, say)?;
    let (processor, is_quick) = (machine::processor(), args.quick);
    Ok(WithGoals::new(AgentFindings { processor, is_quick, agent, daemon }))
}
