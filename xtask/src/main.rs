//! Developer commands of the workspace: `cargo xtask tidy`, `census` and `test`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use xtask::census::Census;
use xtask::suite::{self, Selection};
use xtask::tidy::{self, Tree};

/// Developer commands of the Ballast workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks the workspace's rules: crate dependencies, headers, file lengths, leftovers.
    Tidy,
    /// Counts lines, dependencies, test programs, import circles and repeated names of types, and
    /// checks their limits.
    Census,
    /// Builds and runs the tests; `scripts/test` gives them what they need around them.
    Test {
        /// Which tests.
        #[arg(default_value = "all")]
        selection: Selection,
        /// Number of test programs with real guests that run in parallel, one test of each at a
        /// time.
        #[arg(long = "beside", default_value_t = 2)]
        parallel: usize,
        /// Arguments for cargo.
        #[arg(last = true)]
        cargo: Vec<String>,
    },
}

fn main() -> ExitCode {
    let passed = match Arguments::parse().command {
        Command::Tidy => tidy(),
        Command::Census => census(),
        Command::Test { selection, parallel, cargo } => {
            suite::run(selection, parallel, &cargo).map(|tally| tally.is_success())
        }
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // `{:#}` prints the causes; `Debug` would print a stack backtrace too.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of this package; cargo finds the workspace from it.
fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn tidy() -> anyhow::Result<bool> {
    let tree = Tree::load(package())?;
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} files in {} packages, {} findings",
        tree.files.len(),
        tree.packages.len(),
        findings.len()
    );
    Ok(findings.is_empty())
}

fn census() -> anyhow::Result<bool> {
    let root = package().parent().context("the package is in no workspace")?;
    let census = Census::take(&Tree::load(package())?, root)?;
    print!("{}", census.lines());
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    let exceeded = census.exceeded(is_ci);
    for what in &exceeded {
        eprintln!("error: {what}");
    }
    Ok(exceeded.is_empty())
}
