//! `ballast bench`: the speed of those parts that could hold anything up.
//!
//! Idea: figures that everyone can get with an installed program, on their own machine and with
//! their own data. Benchmarks that need the source tree are in `benches/`.

#![forbid(unsafe_code)]

pub mod advise;
mod agent;
mod goal;
mod lab_guest;
mod machine;
mod mechanisms;
pub mod mrc;
pub mod policies;
mod process;
mod random;
mod scaffold;
mod shown;
pub mod sim;
pub mod solver;
mod timing;
pub mod track;

use clap::Subcommand;

/// Measure the speed and accuracy of Ballast's parts on this machine.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ballast bench advise
  ballast bench agent
  ballast bench mechanisms --quick
  ballast bench mrc
  ballast bench mrc --quick
  ballast bench policies
  ballast bench sim
  ballast bench solver
  ballast bench track --quick")]
pub struct Args {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum BenchCommand {
    /// Compare advice from a journal with what balancing then does.
    Advise(advise::Args),
    /// Measure the cost of guests' agents, and how soon an emergency is answered.
    Agent(agent::Args),
    /// Measure how fast memory is moved, and what that costs the guest.
    Mechanisms(mechanisms::Args),
    /// Compare engines for stack distances.
    Mrc(mrc::Args),
    /// Measure the time of one decision of each policy.
    Policies(policies::Args),
    /// Measure how much faster than real time a host is simulated.
    Sim(sim::Args),
    /// Compare solvers of the policy meb.
    Solver(solver::Args),
    /// Compare ways to track a program's pages.
    Track(track::Args),
}

/// Measures and prints.
///
/// # Errors
/// A trace cannot be read, engines or solvers disagree, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        BenchCommand::Advise(args) => advise::run(args),
        BenchCommand::Agent(args) => agent::run(args),
        BenchCommand::Mechanisms(args) => mechanisms::run(args),
        BenchCommand::Mrc(args) => mrc::run(args),
        BenchCommand::Policies(args) => policies::run(args),
        BenchCommand::Sim(args) => sim::run(args),
        BenchCommand::Solver(args) => solver::run(args),
        BenchCommand::Track(args) => track::run(args),
    }
}
