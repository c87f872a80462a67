//! The `ballast-lab` program: it evaluates Ballast and never runs on a production host.
//!
//! Begin reading at `cli.rs`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
mod evaluate;
pub mod imt;
mod mrc;
mod played;
mod replay;
mod state;
mod track_page;
