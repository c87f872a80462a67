//! Tests of the program without guests: run as a script does, and as a daemon of fake QMP peers.

mod advise;
mod commands;
mod daemon;
mod doctor;
mod events;
mod external;
#[path = "../harness/mod.rs"]
mod harness;
mod log;
mod openapi;
mod packaging;
mod page;
#[path = "../program/mod.rs"]
mod program;
mod prometheus;
mod top;
mod unit;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_ballast");
