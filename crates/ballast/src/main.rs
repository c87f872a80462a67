//! The `ballast` program: parses the command line, runs one command and returns its exit status: 0
//! done, 1 failed, 2 wrong usage.

use std::process::ExitCode;

use anyhow::Context;
use ballast::cli::{Cli, Command};
use ballast::commands::{
    advise, control, daemon, doctor, explain, journal, plan, policy, reserve, set, status, top,
    track,
};
use clap::Parser;

fn main() -> ExitCode {
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
        Command::Status(args) => status::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Advise(args) => advise::run(&args),
        Command::Plan(args) => plan::run(args).await,
        Command::Policy(args) => policy::run(args),
        Command::Set(args) => set::run(args).await,
        Command::Reserve(args) => reserve::run(args).await,
        Command::Mode(args) => control::mode(args).await,
        Command::Pause(args) => control::pause(args).await,
        Command::Resume(args) => control::resume(args).await,
        Command::Journal(args) => journal::run(args),
        Command::Track(args) => track::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Daemon(args) => daemon::run(args).await,
        Command::Demo(args) => args.exec_lab("demo"),
        Command::Fleet(args) => args.exec_fleet(),
        Command::Lab(args) => args.exec_lab("lab"),
        Command::Mrc(args) => args.exec_lab("mrc"),
        Command::Imt(args) => args.exec_lab("imt"),
        Command::Simulate(args) => args.exec_lab("simulate"),
        Command::Replay(args) => args.exec_lab("replay"),
        Command::Bench(args) => args.exec_lab("bench"),
    }
}
