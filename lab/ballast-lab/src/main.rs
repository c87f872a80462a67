//! The `ballast-lab` program: reads the command line, runs one command, and sets the exit status: 0
//! success, 1 failure, 2 wrong usage.

use std::process::ExitCode;

use anyhow::Context;
use ballast_lab::cli::{Cli, Command};
use ballast_lab::commands::{
    demo, evaluate, imt, lab, lab_run, mrc, nested, replay, simulate, storm, track_page,
};
use clap::Parser;

fn main() -> ExitCode {
    if let Some(status) = lab::helper() {
        return status;
    }
    ballast_report::exit_code(start(Cli::parse()))
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    runtime.block_on(run(cli.command))
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Lab(args) => lab::run(args).await,
        Command::Run(args) => lab_run::run(*args).await,
        Command::Nested(args) => nested::run(args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Evaluate(args) => evaluate::run(args).await,
        Command::Storm(args) => storm::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Mrc(args) => mrc::run(args),
        Command::Imt(args) => imt::run(&args),
        Command::Bench(args) => ballast_bench::run(&args),
        Command::TrackPage(args) => track_page::run(&args),
        Command::LabDaemon(args) => ballast_scenario_run::daemon::run(args).await,
        Command::LabFollow(args) => ballast_scenario_run::follow::run(&args),
    }
}
