//! Tests the program as scripts use it: traces, series and simulations in; figures, files and
//! errors out.

mod evaluate;
mod examples;
mod imt;
mod mrc;
mod pages;
#[path = "../../../../crates/ballast/tests/program/mod.rs"]
mod program;
mod recording;
mod simulate;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_ballast-lab");
