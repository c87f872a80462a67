//! The edge of Ballast: the daemon, the commands and everything that joins pure decisions with
//! mechanisms.
//!
//! Idea: `main` only starts what is here, so that tests and benchmarks can start it too.

#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
pub mod config;
pub mod daemon;
pub mod server;
pub mod story;
