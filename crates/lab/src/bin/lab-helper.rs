//! The hidden commands as a program of their own, for the lab's tests.
//!
//! Idea: `ballast` has these commands too; tests of the library must not need it. `hold NAME GUESTS`
//! holds a run until it is killed, so that a test can kill it.

use std::process::ExitCode;

use ballast_lab::{
    GuestSpec, REAPER_COMMAND, Run, RunOptions, SUPERVISOR_COMMAND, reaper_main, supervisor_main,
};
use ballast_model::Bytes;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    match command.to_str() {
        Some(REAPER_COMMAND) => reaper_main(arguments),
        Some(SUPERVISOR_COMMAND) => supervisor_main(),
        Some("hold") => hold(arguments.filter_map(|argument| argument.into_string().ok())),
        _ => {
            eprintln!("lab-helper: for tests of the lab; expected hold NAME GUESTS");
            ExitCode::FAILURE
        }
    }
}

/// Starts a run, says that it is ready, and never ends by itself.
fn hold(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let name = arguments.next().and_then(|name| name.parse().ok());
    let guests: Option<usize> = arguments.next().and_then(|count| count.parse().ok());
    let (Some(name), Some(guests)) = (name, guests) else { return ExitCode::FAILURE };
    let guests = (0..guests)
        .filter_map(|number| {
            Some(GuestSpec::new(format!("g{number}").parse().ok()?, Bytes::mib(256)))
        })
        .collect();
    match Run::start(&RunOptions::new(name, guests), &|line| eprintln!("{line}")) {
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
