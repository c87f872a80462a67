//! Renders a manual page for each command, and completions for each program.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes everything into `folder`, which is created if it is missing.
///
/// # Errors
/// The folder or a file cannot be written; the error names it.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let commands = [
        ballast::cli::Cli::command(),
        ballast_lab::cli::Cli::command(),
        // Must come after `ballast`: its page of `ballast fleet` replaces the one of `ballast`.
        ballast_fleet_program::cli::Cli::command(),
    ];
    for mut command in commands {
        // Must come first: generating completions adds a `help` subcommand to every command.
        let pages = without_help(command.clone());
        clap_mangen::generate_to(pages, folder).context("write the manual")?;
        let name = command.get_name().to_owned();
        for shell in SHELLS {
            clap_complete::generate_to(shell, &mut command, &name, folder)
                .with_context(|| format!("write completions for {shell}"))?;
        }
    }
    Ok(())
}

/// The command and its subcommands, all without a `help` subcommand.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
