//! The `ballast` program: reads the command line, runs one command, and turns its end into an exit
//! status: 0 done, 1 failed, 2 wrong usage.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use ballast::bench;
use ballast::cli::{Cli, Command};
use ballast::commands::{
    control, daemon, demo, explain, harmless, imt, journal, lab, mrc, plan, policy, replay, set,
    simulate, status, track,
};
use ballast::story;
use clap::Parser;

fn main() -> ExitCode {
    if let Some(status) = lab::helper() {
        return status;
    }
    match start(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough, as in `ballast status | head -1`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<clap::Error>() {
            // Wrong usage that only shows when values are compared: clap prints it and ends with 2.
            Ok(usage) => usage.exit(),
            Err(error) => {
                // Nobody is left to tell if standard error is gone as well.
                let _ = writeln!(io::stderr(), "error: {}", shown(&told(&error)));
                ExitCode::FAILURE
            }
        },
    }
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
        Command::Explain(args) => explain::run(args).await,
        Command::Plan(args) => plan::run(args).await,
        Command::Policy(args) => policy::run(args),
        Command::Set(args) => set::run(args).await,
        Command::Pause(args) => control::pause(args).await,
        Command::Resume(args) => control::resume(args).await,
        Command::Journal(args) => journal::run(args),
        Command::Mrc(args) => mrc::run(args),
        Command::Imt(args) => imt::run(&args),
        Command::Track(args) => track::run(args).await,
        Command::Simulate(args) => simulate::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Daemon(args) => daemon::run(args).await,
        Command::Lab(args) => lab::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::LabDaemon(args) => story::daemon::run(args).await,
    }
}

/// The error and its causes; a cause that an error repeats in its own words is told once.
fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| {
        match (told.is_empty(), told.contains(&cause)) {
            (true, _) => cause,
            (false, true) => told,
            (false, false) => format!("{told}: {cause}"),
        }
    })
}

/// `text` as a terminal may have it: names in it are foreign, so it neither commands the terminal nor
/// begins a line that looks like one of this program's.
fn shown(text: &str) -> String {
    harmless(text).replace('\n', "\n  ")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(closed)
}
