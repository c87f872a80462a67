//! The program inside a lab guest: its first process, and each of its workloads.
//!
//! Idea: one static program with three faces. As process 1 it sets the guest up and serves the host
//! ([`agent`]). As `lab-guest workload SPEC` it does what a workload says ([`engine`]); it can do so on
//! any machine, and then prints a line of progress each second. As `lab-guest exec PROGRAM…` it becomes
//! another program after it has given up the privileges of process 1.
//! Limits: process 1 never ends by itself: whatever stops it powers the guest off.

mod agent;
mod boot;
mod child;
mod counters;
mod data_disk;
mod engine;
mod ground;
mod guest_agent;
mod outbox;
mod pipe;
mod port;
mod proc_file;
mod program;
mod tasks;
mod workload;

use std::process::ExitCode;

use rustix::system::RebootCommand;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        first_process();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        ["workload", rest @ ..] => workload::main(rest),
        ["exec", program, rest @ ..] => Err(child::become_program(program, rest)),
        _ => Err("expected: lab-guest workload [--file-dir DIR] SPEC, or lab-guest exec PROGRAM \
                  [ARGUMENT…]; without arguments only as process 1"
            .to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Process 1: a kernel whose first process ends panics, and a panicked guest may spin for ever, so
/// that every way out is the power switch.
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

/// Powers the guest off; does not come back.
fn power_off() -> ! {
    loop {
        if let Err(error) = rustix::system::reboot(RebootCommand::PowerOff) {
            eprintln!("lab-guest: cannot power off: {error}");
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
