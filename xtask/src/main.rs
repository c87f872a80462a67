//! Developer commands of the workspace: `cargo xtask tidy`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::tidy::{self, Severity, Tree};

/// Developer commands of the Ballast workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks what a machine can of the workspace's rules: arrows, headers, lengths, leftovers.
    Tidy,
}

fn main() -> anyhow::Result<ExitCode> {
    let Command::Tidy = Arguments::parse().command;
    let tree = Tree::load(Path::new(env!("CARGO_MANIFEST_DIR")))?;
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let failures = findings.iter().filter(|f| f.severity == Severity::Failure).count();
    println!(
        "tidy: {} files in {} packages, {failures} failures, {} warnings",
        tree.files.len(),
        tree.packages.len(),
        findings.len() - failures
    );
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
