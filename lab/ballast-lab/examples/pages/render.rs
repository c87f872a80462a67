//! Renders a page of the manual for each command, and completions for each program.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// Those that have completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Writes everything into `folder`, which is made.
///
/// # Errors
/// The folder or a file cannot be written; the error names it.
pub(crate) fn write(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let commands = [
        ballast::cli::Cli::command(),
        ballast_lab::cli::Cli::command(),
        // After `ballast`, whose page of `ballast fleet` it replaces.
        ballast_fleet_program::cli::Cli::command(),
    ];
    for mut command in commands {
        // First, as what completes also makes a `help` of every command.
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

/// The command and those below it, none with a `help` of its own.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
