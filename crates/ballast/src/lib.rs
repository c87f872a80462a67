//! The `ballast` program: arguments and the operator's commands.
//!
//! Idea: `main` only calls this library, so that tests can call it too. The daemon is in
//! `crates/daemon`. Commands that no host needs are in `ballast-lab`; [`lab`] passes them on.
//!
//! Begin reading at `cli.rs`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
pub mod lab;
