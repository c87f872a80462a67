//! The `ballast-fleet` program: parses the command line, runs one command and returns its exit
//! status: 0 done, 1 failed, 2 wrong usage.

use std::process::ExitCode;

use anyhow::Context;
use ballast_fleet_program::cli::{Cli, Command};
use ballast_fleet_program::commands::{explain, orders, plan, run, status};
use clap::Parser;

fn main() -> ExitCode {
    ballast_report::exit_code(start(Cli::parse()))
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(args).await,
            Command::Status(args) => status::run(args).await,
            Command::Top(args) => status::top(args).await,
            Command::Plan(args) => plan::run(args).await,
            Command::Explain(args) => explain::run(args).await,
            Command::Drain(args) => orders::drain(args).await,
            Command::Pause(args) => orders::pause(args).await,
            Command::Resume(args) => orders::resume(args).await,
            Command::Forget(args) => orders::forget(args).await,
        }
    })
}
