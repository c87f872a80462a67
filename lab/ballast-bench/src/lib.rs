//! `ballast bench`: the speed of those parts that could hold anything up.
//!
//! Idea: figures that everyone can get with an installed program, on their own machine and with
//! their own data. Benchmarks that need the source tree are in `benches/`.

#![forbid(unsafe_code)]

pub mod advise;
mod agent;
mod goal;
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

/// Measure how fast and how exact Ballast's parts are on this machine.
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
    /// How near advice from a journal comes to what balancing then does.
    Advise(advise::Args),
    /// What guests' agents cost, and how soon an emergency is answered.
    Agent(agent::Args),
    /// How fast memory is moved, and what that costs.
    Mechanisms(mechanisms::Args),
    /// Engines for stack distances, side by side.
    Mrc(mrc::Args),
    /// What one decision of each policy costs.
    Policies(policies::Args),
    /// How much faster than real time a host is simulated.
    Sim(sim::Args),
    /// Solvers of the policy meb, side by side.
    Solver(solver::Args),
    /// Ways to track a program's pages, side by side.
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
