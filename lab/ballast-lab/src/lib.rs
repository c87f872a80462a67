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

/// The commit that this program was built from, with `-dirty` if its sources differed; `None`: it
/// was built without git.
const COMMIT: Option<&str> = option_env!("BALLAST_COMMIT");
