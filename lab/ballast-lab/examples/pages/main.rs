//! Writes the manual and the shells' completions of `ballast`, `ballast-fleet` and `ballast-lab`
//! into a folder, for packages: `cargo run -p ballast-lab --example pages -- FOLDER`.
//!
//! Idea: an example, so that no program carries it, and of this crate, as its tests know the
//! arguments of all.

mod render;

use std::path::PathBuf;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let folder: PathBuf = std::env::args_os().nth(1).context("expected a folder")?.into();
    render::write(&folder)
}
