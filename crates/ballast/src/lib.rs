//! The edge of Ballast: the daemon, the commands and everything that joins pure decisions with
//! mechanisms.
//!
//! Idea: `main` only starts what is here, so that tests and benchmarks can start it too.

#![forbid(unsafe_code)]

mod agents;
pub mod bench;
pub mod cli;
pub mod commands;
pub mod config;
mod csv;
pub mod daemon;
mod figures;
pub mod imt;
mod mrc;
mod output;
mod page;
mod replay;
pub mod server;
pub mod simulate;
pub mod story;
mod track;
