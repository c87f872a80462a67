//! The lab's hidden commands as a program of their own, for tests.
//!
//! Idea: `ballast` has these commands too, but tests of the library must not need it.
//! `hold NAME GUESTS` owns a run until it is killed, and `up NAME GUESTS` starts a run that
//! outlives it, so that a test can kill either at any moment.

use std::ffi::OsString;
use std::process::ExitCode;

use ballast_lab_host::{
    GuestSpec, REAPER_COMMAND, Run, RunOptions, SUPERVISOR_COMMAND, reaper_main, supervisor_main,
    up,
};
use ballast_model::Bytes;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    match command.to_str() {
        Some(REAPER_COMMAND) => reaper_main(arguments),
        Some(SUPERVISOR_COMMAND) => supervisor_main(),
        Some("hold") => options(arguments).map_or(ExitCode::FAILURE, |options| hold(&options)),
        Some("up") => options(arguments).map_or(ExitCode::FAILURE, |options| {
            let started = up(&options, &|line| eprintln!("{line}"));
            if started.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }),
        _ => {
            eprintln!(
                "lab-helper: only for tests of the lab; expected hold or up, NAME and GUESTS"
            );
            ExitCode::FAILURE
        }
    }
}

/// Parses `NAME GUESTS`.
fn options(arguments: impl Iterator<Item = OsString>) -> Option<RunOptions> {
    let mut arguments = arguments.filter_map(|argument| argument.into_string().ok());
    let name = arguments.next()?.parse().ok()?;
    let count: usize = arguments.next()?.parse().ok()?;
    let guest = |number| Some(GuestSpec::new(format!("g{number}").parse().ok()?, Bytes::mib(256)));
    Some(RunOptions::new(name, (0..count).filter_map(guest).collect()))
}

/// Starts a run, prints that it is ready, and waits until it is killed.
fn hold(options: &RunOptions) -> ExitCode {
    match Run::start(options, &|line| eprintln!("{line}")) {
        Ok(_run) => {
            println!("ready");
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
