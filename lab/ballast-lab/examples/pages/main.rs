//! Writes the manual pages and shell completions of `ballast`, `ballast-fleet` and `ballast-lab`
//! into a folder, for packages: `cargo run -p ballast-lab --example pages -- FOLDER`.
//!
//! Idea: this is an example so that none of the programs contains it. It is in this crate because
//! this crate's tests already know the arguments of all three programs.

mod render;

use std::path::PathBuf;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let folder: PathBuf = std::env::args_os().nth(1).context("expected a folder")?.into();
    render::write(&folder)
}
