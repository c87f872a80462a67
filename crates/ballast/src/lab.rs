//! Hands the lab's commands to the program `ballast-lab`.
//!
//! Idea: code that never runs on a host is a separate program, so hosts need not install it.
//! `ballast` knows only the names of its commands and executes `ballast-lab` in its place.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

/// The program with these commands.
const PROGRAM: &str = "ballast-lab";

/// Arguments passed on to `ballast-lab`, which parses them.
#[derive(Clone, Debug, clap::Args)]
pub struct LabArgs {
    /// As `ballast-lab` takes them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

impl LabArgs {
    /// Executes `ballast-lab` with the command `name` in place of this process; returns only on
    /// failure.
    ///
    /// # Errors
    /// `ballast-lab` is not installed, or cannot be executed.
    pub fn hand_on(self, name: &str) -> anyhow::Result<()> {
        let mut command = program(name)?;
        // Its usage and errors show the name the user typed.
        let error = command.arg0("ballast").arg(name).args(self.arguments).exec();
        Err(error).with_context(|| format!("cannot execute {}", command.get_program().display()))
    }
}

/// `ballast-lab` for the command `name`: the one in this program's folder, else the first on PATH.
///
/// # Errors
/// It is in neither place.
pub fn program(name: &str) -> anyhow::Result<Command> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let found = find(beside.iter().cloned().chain(env::split_paths(&path)), OsStr::new(PROGRAM));
    found.map(Command::new).ok_or_else(|| {
        let beside = beside.map_or(String::new(), |folder| format!("in {} nor ", folder.display()));
        anyhow!(
            "`ballast {name}` needs the program {PROGRAM}, which is neither {beside}on PATH: install \
             the package {PROGRAM}, or build it with `make build`"
        )
    })
}

/// The first file called `name` in `folders`.
fn find(folders: impl IntoIterator<Item = PathBuf>, name: &OsStr) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_the_program_wins() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| folder.path().join(name));
        for (index, folder) in folders.iter().enumerate() {
            std::fs::create_dir(folder).unwrap();
            if index > 0 {
                std::fs::write(folder.join("x"), "").unwrap();
            }
        }
        assert_eq!(find(folders.clone(), OsStr::new("x")), Some(folders[1].join("x")));
        assert_eq!(find(folders, OsStr::new("y")), None);
    }
}
