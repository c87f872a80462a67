//! The `ballast-lab` program: everything that evaluates Ballast and never runs on a host.
//!
//! Begin reading at `cli.rs`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
mod evaluate;
pub mod imt;
mod mrc;
mod replay;
mod track_page;
