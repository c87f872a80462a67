//! The program inside a lab guest: its init process and each of its workloads.
//!
//! Idea: one static program with three modes. As process 1 it sets up the guest and serves the host
//! ([`agent`]). As `lab-guest workload SPEC` it runs a workload ([`engine`]); this works on any
//! machine and then prints a line of progress each second. As `lab-guest exec PROGRAM…` it drops
//! the privileges of process 1 and executes another program.
//! Limits: process 1 never exits: every failure powers the guest off.

mod agent;
mod backing;
mod boot;
mod child;
mod counters;
mod data_disk;
mod engine;
mod guest_agent;
mod outbox;
mod pipe;
mod port;
mod power;
mod proc_file;
mod program;
mod tasks;
mod workload;

use std::process::ExitCode;

use self::power::power_off;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        first_process();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["workload", rest @ ..] => workload::main(rest),
        ["exec", program, rest @ ..] => Err(child::become_program(program, rest)),
        _ => Err("expected: lab-guest workload [--file-dir DIR] SPEC, or lab-guest exec PROGRAM \
                  [ARGUMENT…]; without arguments only as process 1"
            .to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs as process 1. The kernel panics when process 1 exits, and a panicked guest may spin
/// forever, so every way out powers the guest off.
fn first_process() -> ! {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        power_off();
    }));
    let error = match boot::boot() {
        Ok(booted) => agent::serve(booted),
        Err(error) => error,
    };
    eprintln!("lab-guest: {error}: powering off");
    power_off()
}
